"""RequestCodec: the stored form of Scrapy's requests, and of the items that ``start()`` yields.

A stored request is a :class:`~skitter.request.Request`, so that skitter's commands can show it. Its ``meta`` holds one
value, the packed fields that only Scrapy knows. The format is not pickle: several machines read the queue, and unpickling
would execute code that the queue contains. Classes are found by name, and only requests and items are instantiated.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
import scrapy
import xxhash
from itemadapter import ItemAdapter
from itemloaders import ItemLoader
from parsel import Selector
from scrapy.dupefilters import BaseDupeFilter
from scrapy.http import Response
from scrapy.utils.httpobj import urlparse_cached
from scrapy.utils.misc import load_object
from scrapy.utils.request import RequestFingerprinter, request_from_dict

from skitter.errors import RequestError, UndecodableRecord, with_article
from skitter.frontier.records import Entry
from skitter.request import (
    SCRAPY_ITEM,
    SCRAPY_REQUEST,
    Request,
    encode_request,
    rejected_record,
)
from skitter.scrapy.callbacks import callback_name, find_callback
from skitter.worker.callbacks import describe_plain
from skitter.worker.links import DUPLICATE

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from skitter.frontier.records import JobInfo
    from skitter.politeness import Politeness
    from skitter.worker.links import LinkCollector

log = logging.getLogger("skitter.scrapy")

_ITEM_URL = "start-item://%d"
"""URL of an item of ``start()``, with its position in the output of ``start()``."""
_SLOT = "download_slot"
"""Key of ``meta`` in which Scrapy's downloader stores the slot of a request. User code can set it to choose the slot."""
_MAX_PRIORITY = 2**63 - 1
"""Frontiers store priorities with 64 bits. Scrapy does not limit them."""
_NO_HOST = "(none)"
"""Slot of URLs without a host, such as ``data:``."""
_IN_RECORD = ("url", "callback", "errback", "method", "body", "dont_filter")
"""Fields of Scrapy's requests that the stored request also has."""
_REMEDY = (
    "keep meta and cb_kwargs to plain values: strings, numbers, lists, dicts, dates and items; callbacks have to be methods "
    "of the spider or functions of its module, with their arguments in cb_kwargs"
)
_INSTEAD: dict[type, str] = {
    ItemLoader: "pass its load_item(), and create a loader with this item in the callback",
    Response: "pass the values that the callback needs",
    Selector: "pass its .get()",
}
"""What to store instead of values that projects often pass to the next page."""
_PLAIN = frozenset({str, int, float, bytes, bool, type(None)})
_CONTAINERS: tuple[type, ...] = (tuple, set, frozenset)
"""Types that are packed as a list. The position is the code of the type."""
_TEXTS: tuple[tuple[type, Callable[[Any], str], Callable[[str], Any]], ...] = (
    (datetime, datetime.isoformat, datetime.fromisoformat),
    (date, date.isoformat, date.fromisoformat),
    (time, time.isoformat, time.fromisoformat),
    (Decimal, str, Decimal),
    (UUID, str, UUID),
    (timedelta, lambda span: str(span // timedelta(microseconds=1)), lambda text: timedelta(microseconds=int(text))),
)  # fmt: skip
"""Types that are packed as text. The position, after the containers, is the code of the type."""
_ITEM = len(_CONTAINERS) + len(_TEXTS)
"""Code of items."""
_CODES: dict[type, int] = {
    kind: code for code, kind in enumerate((*_CONTAINERS, *(kind for kind, _, _ in _TEXTS)))
}
_encode = msgspec.msgpack.Encoder().encode
_PACK_ERRORS = (TypeError, ValueError, OverflowError, RecursionError)


class RequestCodec:
    """Converts Scrapy's requests into entries of the frontier, and leases into requests.

    The fingerprinter of the project decides which requests are the same.
    """

    def __init__(self, crawler: Crawler, links: LinkCollector, politeness: Politeness, info: JobInfo) -> None:
        self._spider = crawler.spider
        fingerprinter = crawler.request_fingerprinter
        assert fingerprinter is not None, "Scrapy creates it before the engine"
        self._fingerprint = fingerprinter.fingerprint
        self._is_by_url = type(fingerprinter) is RequestFingerprinter
        self._filters = load_object(crawler.settings["DUPEFILTER_CLASS"]) is not BaseDupeFilter
        """``False``: the project fetches each request, as if all requests had ``dont_filter``."""
        self._links = links
        self._slot_of = politeness.slot_of
        self._seed = info.fingerprint_seed

    def is_known(self, request: scrapy.Request) -> bool:
        """Return whether the job is certain to know a request. If ``False``, the job may still know it."""
        return self._links.cache.reason(request.url) == DUPLICATE and self.is_plain(request)

    def is_plain(self, request: scrapy.Request) -> bool:
        """Return whether only the URL identifies the request."""
        return self._is_by_url and self._dedups(request) and request.method == "GET" and not request.body

    def _dedups(self, request: scrapy.Request) -> bool:
        return self._filters and not request.dont_filter

    def entry(self, request: scrapy.Request, origin: bytes, host: str = "") -> Entry:
        """Return the entry of a request.

        ``origin``: identifies the request among those with its fingerprint, if it passes the duplicate filter. It has to
        be the same when the page that yields the request is fetched again. ``host``: of that page. Raises
        :class:`~skitter.errors.RequestError` for a request that cannot be stored.
        """
        own_host = urlparse_cached(request).hostname or _NO_HOST
        slot = request.meta.get(_SLOT)
        is_inherited = slot is not None and slot == host  # the downloader wrote it into the meta of the page
        record = self._record(request, leave_out_slot=is_inherited)
        try:
            identity = self._fingerprint(request)
        except Exception as error:
            raise RequestError(
                f"request {request.url!r} has no fingerprint: {describe_plain(error)}",
                remedy="correct the fingerprinter in REQUEST_FINGERPRINTER_CLASS",
            ) from error
        dedup = self._dedups(request)
        if not dedup:
            identity += origin  # so that a keyed store keeps the items of each such request
        fingerprint = xxhash.xxh3_128_digest(identity, self._seed)
        key = own_host if slot is None or is_inherited else str(slot)
        priority = _stored_priority(request)
        return Entry(fingerprint, self._slot_of(key), request.url, record, priority, dedup=dedup)

    def entry_or_rejection(self, request: scrapy.Request, origin: bytes, host: str = "") -> Entry:
        """Like :meth:`entry`. For a request that cannot be stored, return an entry that becomes a dead letter with the reason."""
        try:
            return self.entry(request, origin, host)
        except Exception as error:  # noqa: BLE001 - requests and fingerprinters are user code
            reason = f"{error}; {error.remedy}" if isinstance(error, RequestError) else describe_plain(error)
        log.error("a request cannot be stored: %s", reason)
        fingerprint = xxhash.xxh3_128_digest(request.url.encode() + origin, self._seed)
        return Entry(fingerprint, _NO_HOST, request.url, rejected_record(reason), dedup=False)

    def item_entry(self, item: Any, position: int) -> Entry:
        """Return the entry of an item that ``start()`` yields; one that becomes a dead letter if it cannot be stored."""
        url = _ITEM_URL % position
        try:
            record = encode_request(Request(url, meta={SCRAPY_ITEM: _encode(_pack(item, "item"))}))
        except (_Unstorable, *_PACK_ERRORS) as error:
            reason = f"item {position} of start() cannot be stored: {error}; keep items to plain values"
            log.error("%s", reason)  # noqa: TRY400 - one line
            record = rejected_record(reason)
        return Entry(xxhash.xxh3_128_digest(url.encode(), self._seed), _NO_HOST, url, record, dedup=False)

    def item(self, stored: Request) -> Any:
        """Return the item that a stored request stands for; ``None`` if it is an actual request.

        Raises :class:`~skitter.errors.UndecodableRecord` if the project cannot read it.
        """
        packed = stored.meta.get(SCRAPY_ITEM)
        if not stored.url.startswith("start-item:") or not isinstance(packed, bytes):
            return None
        try:
            return msgspec.msgpack.decode(packed, ext_hook=_unpack)
        except Exception as error:
            raise UndecodableRecord(
                f"the project cannot read an item that it has stored: {describe_plain(error)}",
                remedy="restore its class, and retry the dead letter",
            ) from error

    def _record(self, request: scrapy.Request, *, leave_out_slot: bool) -> bytes:
        fields = self._fields(request)
        fields["priority"] = _stored_priority(request)
        callback, errback = fields["callback"], fields["errback"]
        method, body, dont_filter = fields["method"], fields["body"], fields["dont_filter"]
        for name in _IN_RECORD:
            del fields[name]
        if leave_out_slot:
            fields["meta"] = {name: value for name, value in fields["meta"].items() if name != _SLOT}
        try:
            packed = _encode({name: _pack(value, name) for name, value in fields.items() if value})
        except (_Unstorable, *_PACK_ERRORS) as error:
            raise RequestError(
                f"request {request.url!r} for {callback or 'parse'} cannot be stored: {error}", remedy=_REMEDY
            ) from error
        return encode_request(
            Request(
                request.url,
                callback,
                method,
                body=body,
                errback=errback,
                dont_filter=dont_filter,
                meta={SCRAPY_REQUEST: packed},
            )
        )

    def _fields(self, request: scrapy.Request) -> dict[str, Any]:
        """Return the fields of a request, with the names of its callbacks."""
        spider, callbacks = self._spider, (request.callback, request.errback)
        assert spider is not None, "Scrapy creates the spider first"
        try:
            names = [
                callback_name(spider, callback) if callable(callback) else callback for callback in callbacks
            ]
        except ValueError as error:
            raise RequestError(
                f"request {request.url!r} cannot be stored: its callback {error}", remedy=_REMEDY
            ) from error
        # to_dict() only knows names of methods of instances
        request.callback = request.errback = None
        try:
            fields = request.to_dict(spider=spider)
        finally:
            request.callback, request.errback = callbacks
        fields["callback"], fields["errback"] = names
        return fields

    def request(self, stored: Request) -> scrapy.Request:
        """Return Scrapy's request. Raises :class:`~skitter.errors.UndecodableRecord` if the project cannot read it."""
        packed = stored.meta.get(SCRAPY_REQUEST)
        fields: dict[str, Any] = {
            "url": stored.url, "callback": stored.callback, "errback": stored.errback, "method": stored.method,
            "body": stored.body, "dont_filter": stored.dont_filter,
        }  # fmt: skip
        try:
            if isinstance(packed, bytes):
                fields |= msgspec.msgpack.decode(packed, ext_hook=_unpack)
            else:  # `skitter add` wrote it
                fields |= {"headers": stored.headers, "meta": stored.meta, "cb_kwargs": stored.cb_kwargs}
            if "_class" in fields:
                _check_class(
                    fields["_class"], is_allowed=issubclass(load_object(fields["_class"]), scrapy.Request)
                )
            assert self._spider is not None, "Scrapy creates the spider first"
            for name in ("callback", "errback"):
                if fields.get(name):
                    fields[name] = find_callback(self._spider, fields[name])
            return request_from_dict(fields)
        except Exception as error:
            raise UndecodableRecord(
                f"the project cannot read a request that it has stored: {describe_plain(error)}",
                remedy="restore the callback or the class, and retry the dead letter",
            ) from error


def _stored_priority(request: scrapy.Request) -> int:
    return max(-_MAX_PRIORITY, min(request.priority, _MAX_PRIORITY))


class _Unstorable(Exception):
    """A value that cannot be stored."""


def _pack(value: Any, path: str) -> Any:
    """Return a value in a form that MessagePack can encode. ``path``: the location of the value in the request."""
    kind = value.__class__
    if kind in _PLAIN:
        if kind is int and not -(2**63) <= value < 2**64:
            raise _Unstorable(f"{path} is an integer of more than 64 bits")
        return value
    if kind is dict:
        for key in value:
            if key.__class__ not in _PLAIN:
                raise _Unstorable(f"a key of {path} is {with_article(key.__class__.__qualname__)}")
        return {key: _pack(inner, f"{path}[{key!r}]") for key, inner in value.items()}
    if kind is list:
        return [_pack(inner, f"{path}[{place}]") for place, inner in enumerate(value)]
    return _pack_other(value, path)


def _pack_other(value: Any, path: str) -> Any:
    kind = value.__class__
    code = _CODES.get(kind)
    if code is not None and code < len(_CONTAINERS):
        return msgspec.msgpack.Ext(code, _encode([_pack(inner, path) for inner in value]))
    if code is not None:
        return msgspec.msgpack.Ext(code, _TEXTS[code - len(_CONTAINERS)][1](value).encode())
    if issubclass(kind, str):  # such as the strings of lxml
        return str(value)
    if not issubclass(kind, dict) and ItemAdapter.is_item(value):
        fields = {name: _pack(inner, f"{path}.{name}") for name, inner in ItemAdapter(value).items()}
        return msgspec.msgpack.Ext(_ITEM, _encode([f"{kind.__module__}.{kind.__qualname__}", fields]))
    instead = next((f": {remedy}" for known, remedy in _INSTEAD.items() if isinstance(value, known)), "")
    raise _Unstorable(f"{path} is {with_article(kind.__qualname__)}{instead}")


def _unpack(code: int, data: memoryview) -> Any:
    if code < len(_CONTAINERS):
        return _CONTAINERS[code](msgspec.msgpack.decode(data, ext_hook=_unpack))
    if code < _ITEM:
        return _TEXTS[code - len(_CONTAINERS)][2](bytes(data).decode())
    name, fields = msgspec.msgpack.decode(data, ext_hook=_unpack)
    kind = load_object(name)
    is_item = isinstance(kind, type) and (
        issubclass(kind, scrapy.Item) or dataclasses.is_dataclass(kind) or ItemAdapter.is_item_class(kind)
    )
    _check_class(name, is_allowed=is_item)
    return kind(**fields)


def _check_class(name: str, *, is_allowed: bool) -> None:
    if not is_allowed:
        raise UndecodableRecord(f"{name} is neither a request nor an item")
