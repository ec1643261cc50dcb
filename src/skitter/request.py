"""Request: an immutable request that refers to its callback by name and is stored without pickle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from types import AsyncGeneratorType, CoroutineType, GeneratorType, MethodType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import msgspec
import xxhash
from msgspec.structs import force_setattr

from skitter.browsing import Browsing, browsing_of
from skitter.errors import MissingFingerprintKey, RequestError, UndecodableRecord, with_article
from skitter.queues import NAME_RULE, is_queue_name
from skitter.web.encoding import codec_of
from skitter.web.headers import with_defaults
from skitter.web.urls import canonical

RECORD_VERSION = 1
"""First byte of every stored record. Readers reject unknown versions."""

FINGERPRINT_VERSION = 1
"""Version of the fingerprint algorithm, stored with each job. It changes when fingerprints of existing requests change."""


FormFields = Mapping[str, Any] | Iterable[tuple[str, Any]]

if TYPE_CHECKING:
    type_of_callback = str | Callable[..., Any] | None
else:  # the stored value is always the name
    type_of_callback = str | None


class Request(msgspec.Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """One request of a job.

    ``url``
        Absolute http(s) URL. The fragment is not sent and does not belong to the identity.
    ``method``, ``headers``, ``body``
        As in HTTP. A ``str`` body is encoded as UTF-8.
    ``callback``, ``errback``
        Name of a spider method. A bound method is accepted and stored by its name. ``None`` means the callback ``parse``,
        and no errback.
    ``cb_kwargs``, ``meta``
        Keyword arguments for the callback, and values that the request carries. Their values must be encodable as
        MessagePack: ``None``, booleans, 64-bit integers, floats, strings, bytes, datetimes with a time zone, lists and
        dicts. A tuple is read back as a list. The request copies the dict, as it does with ``headers`` and ``cookies`` that are not empty.
    ``priority``
        Any integer; higher is fetched first. Default 0.
    ``depth``
        Depth of the parent + 1. The engine sets it and overwrites the value from a callback.
    ``depth_limit``
        Maximum depth of the pages that links from this page lead to. ``None``, the default: the setting applies. Children
        do not inherit it, so a callback must pass it to its requests.
    ``dont_filter``
        Skip the duplicate test. The request is still counted and leased like any other.
    ``cookies``
        Cookies of this request only, sent in addition to the cookies of its ``session``.
    ``session``
        Name of the cookie jar that this request reads and writes. Default: the shared jar ``""``.
    ``fingerprint_keys``
        Names of ``meta`` keys that are part of the identity: two requests with the same URL and different values are
        different requests. A key that is missing in ``meta`` raises :class:`~skitter.errors.MissingFingerprintKey`.
    ``delay``
        Minimum time in seconds between adding the request and its fetch.
    ``not_before``
        Unix time before which the request is not fetched. If ``delay`` is set too, the later time applies.
    ``queue``
        Name of the queue of the request, 1 to 64 letters, digits, dashes and underscores. Empty, the default: the queue of
        its page; for a seed: ``default``. The queue does not belong to the identity.
    ``timeout``, ``max_retries``
        Time limit for the whole transfer in seconds, and maximum number of retries. ``None``: the settings apply.
    ``max_body``
        Maximum size of the body in bytes. ``None``: the setting applies.
    ``truncate_body``
        Whether a larger body is cut at ``max_body`` instead of being an error. ``None``: the setting applies.
    ``lastmod``
        When the page last changed, as its sitemap states it: a W3C datetime such as ``2026-11-01``. With the setting
        ``use_lastmod``, it decides whether a remembered page is fetched again. Empty, the default: unknown. Neither
        children nor the targets of redirects inherit it.
    ``proxy``
        Proxy URL for this request (``http://user:password@host:port``, ``socks5h://...``).
    ``fetcher``
        Name of the fetcher: ``http``, ``browser``, ``adaptive``, or a plugin. Empty, the default: the first of
        ``fetcher_rules`` that matches, or else the setting ``fetcher``.
    ``browsing``
        How a browser loads the page: a :class:`~skitter.browsing.Browsing` or the same as a dict, with actions such as
        ``{"do": "click", "selector": "#more"}``. ``None``: the rule or the settings apply.
    ``encoding``
        Character encoding of the page, such as ``gbk``, whatever the page declares. ``None``, the default: what the page
        declares or its bytes show. Raises :class:`~skitter.errors.RequestError` for an unknown name.
    ``referer``, ``redirects``
        URL of the page that linked to this request, and the chain of URLs that redirected to it. Set by the engine.
    ``cookie_hop``
        Length of that chain when one of its redirects last set a cookie; 0 if none did. Set by the engine.
    ``retries``
        Number of retries so far that count: 0 at the first attempt. Set by the engine for each attempt, and not stored.
    ``is_last_attempt``
        Whether no retry follows if this attempt fails: ``max_retries`` are used up. In ``on_error`` and an errback: whether
        the retry rules let the request fail, for whatever reason. Set by the engine, and not stored.
    """

    url: str
    callback: type_of_callback = None
    method: str = "GET"
    headers: dict[str, str] = {}
    body: bytes = b""
    errback: type_of_callback = None
    cb_kwargs: dict[str, Any] = {}
    meta: dict[str, Any] = {}
    priority: int = 0
    depth: int = 0
    dont_filter: bool = False
    cookies: dict[str, str] = {}
    session: str = ""
    fingerprint_keys: tuple[str, ...] = ()
    delay: float = 0.0
    not_before: float = 0.0
    timeout: float | None = None
    max_retries: int | None = None
    proxy: str | None = None
    referer: str | None = None
    redirects: tuple[str, ...] = ()
    cookie_hop: int = 0
    depth_limit: int | None = None
    queue: str = ""
    fetcher: str = ""
    browsing: Browsing | None = None
    encoding: str | None = None
    max_body: int | None = None
    truncate_body: bool | None = None
    lastmod: str = ""
    retries: int = 0
    is_last_attempt: bool = False

    def __post_init__(self) -> None:
        if self.url.__class__ is not str:
            force_setattr(self, "url", _url_text(self.url))
        if self.method != "GET" and not self.method.isupper():
            force_setattr(self, "method", self.method.upper())
        callback = self.callback
        if callback is not None and callback.__class__ is not str:
            force_setattr(self, "callback", name_of_callback(callback))
        errback = self.errback
        if errback is not None and errback.__class__ is not str:
            force_setattr(self, "errback", name_of_callback(errback))
        if self.body.__class__ is not bytes:
            force_setattr(self, "body", _to_bytes(self.body))
        if self.browsing is not None:
            force_setattr(self, "browsing", browsing_of(self.browsing))
        if self.encoding is not None:
            force_setattr(self, "encoding", known_codec(self.encoding))
        if self.queue and not is_queue_name(self.queue):
            raise RequestError(f"request {self.url!r} has queue {self.queue!r:.80}", remedy=NAME_RULE)
        _copy_dicts(self)

    @classmethod
    def form(
        cls,
        url: str,
        fields: FormFields,
        callback: str | Callable[..., Any] | None = None,
        *,
        method: str = "POST",
        **request_fields: Any,
    ) -> Request:
        """Return a request that sends the fields of a form, without a page that contains the form.

        :meth:`Response.form <skitter.Response.form>` fills in a form of a page.

        ``fields``
            Values by name, or pairs of a name and a value. A list sends its name several times; ``None`` is not sent. They
            are encoded as UTF-8 (WHATWG URL, ``application/x-www-form-urlencoded``).
        ``method``
            With ``GET``, the fields replace the query of the URL.

        ``request_fields`` are the other fields of a request. Raises :class:`~skitter.errors.RequestError` for a value
        that is not text, bytes or a number.
        """
        query = encode_form(fields)
        if method.upper() == "GET":
            url = urlsplit(_url_text(url))._replace(query=query).geturl()
            return cls(url, callback, method=method, **request_fields)
        headers = with_defaults(request_fields.pop("headers", {}), {"Content-Type": URLENCODED})
        return cls(url, callback, method=method, headers=headers, body=query.encode(), **request_fields)

    @classmethod
    def json(
        cls,
        url: str,
        data: Any,
        callback: str | Callable[..., Any] | None = None,
        *,
        method: str = "POST",
        **request_fields: Any,
    ) -> Request:
        """Return a request with a JSON body.

        ``data``
            Value that JSON can express; also dataclasses and dates. Keys are sorted, so that equal data are one request.

        The headers ``Content-Type`` and ``Accept`` name JSON unless they are given. ``request_fields`` are the other fields of a
        request. Raises :class:`~skitter.errors.RequestError` for data that JSON cannot express.
        """
        try:
            body = _encode_json(data)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise RequestError(
                f"the JSON body for {url!r} cannot be encoded: {error}",
                remedy="pass dicts, lists, strings, numbers, dates or dataclasses",
                field="data",
            ) from None
        headers = with_defaults(request_fields.pop("headers", {}), _JSON_HEADERS)
        return cls(url, callback, method=method, headers=headers, body=body, **request_fields)

    def replace(self, **changes: Any) -> Request:
        """Return a copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)


_CONVERSIONS: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (bytes, bytes),
    (Decimal, Decimal),
    (datetime, lambda at: datetime.combine(date(at.year, at.month, at.day), at.timetz())),
    (date, lambda day: date(day.year, day.month, day.day)),
    (timedelta, lambda span: timedelta(span.days, span.seconds, span.microseconds)),
)
"""A class precedes its base class."""


def as_builtin(value: Any) -> Any:
    """Return a value of a class derived from a built-in one, such as a string of lxml, as the built-in class.

    msgspec encodes only built-in classes. Raises TypeError for a value of any other class.
    """
    for kind, convert in _CONVERSIONS:
        if isinstance(value, kind) and not isinstance(value, bool):
            return convert(value)
    raise TypeError(f"Encoding objects of type {type(value).__qualname__} is unsupported")


URLENCODED = "application/x-www-form-urlencoded"
_JSON_HEADERS = {"Content-Type": "application/json", "Accept": "application/json, */*;q=0.1"}
_encode_json = msgspec.json.Encoder(enc_hook=as_builtin, order="deterministic").encode


def encode_form(fields: FormFields) -> str:
    """Return the fields of a form as a query; see :meth:`Request.form`."""
    try:
        named = [(name, value) for name, value in (fields.items() if isinstance(fields, Mapping) else fields)]
    except (TypeError, ValueError):
        raise RequestError(
            f"the fields of a form are {with_article(type(fields).__name__)}",
            remedy="pass a dict, or pairs of a name and a value",
            field="fields",
        ) from None
    pairs = []
    for name, value in named:
        for part in value if isinstance(value, (list, tuple)) else (value,):
            if not isinstance(part, (str, bytes, int, float, type(None))):
                raise RequestError(
                    f"the form field {name!r} is of type {type(part).__name__}",
                    remedy="pass text, bytes, numbers or lists of them; response.form() also sends files",
                    field="fields",
                )
            if not (_is_unicode(name) and _is_unicode(part)):
                raise RequestError(
                    f"the form field {name!r} contains a lone surrogate",
                    remedy=_NO_SURROGATES,
                    field="fields",
                )
            if part is not None:
                pairs.append((name, part))
    return urlencode(pairs)


def _copy_dicts(request: Request) -> None:
    """Give a request its own dicts. A callback may change its dict for the next request before this one is stored.

    Empty ``headers`` and ``cookies`` are not copied, because that would take as long as the rest.
    """
    if isinstance(request.meta, dict):
        force_setattr(request, "meta", dict(request.meta))
    if isinstance(request.cb_kwargs, dict):
        force_setattr(request, "cb_kwargs", dict(request.cb_kwargs))
    if request.headers and isinstance(request.headers, dict):
        force_setattr(request, "headers", dict(request.headers))
    if request.cookies and isinstance(request.cookies, dict):
        force_setattr(request, "cookies", dict(request.cookies))


def _url_text(url: Any) -> str:
    if not isinstance(url, str):
        raise RequestError(
            f"the URL of a request is {'None' if url is None else f'of type {type(url).__name__}'}, not a string",
            remedy="check the query that selects it" if url is None else "write Request(url, ...)",
            field="url",
        )
    return str(url)  # a subclass, such as the strings of lxml


_CALLED = (GeneratorType, AsyncGeneratorType, CoroutineType)
"""What a call of a callback returns."""


class CallbackName(str):
    """The name of a callback that user code has passed as a function.

    It is equal to the plain name, which is all that is stored.
    """

    __slots__ = ("function",)
    function: Callable[..., Any]
    """The function. A worker checks that the spider has it under this name."""

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


def name_of_callback(callback: Any) -> str:
    """Return the name under which a callback is stored. Raises :class:`~skitter.errors.RequestError` for a callback without a name."""
    if callback.__class__ is CallbackName:  # the request is a copy
        return callback
    return _name_of_method(callback) if callback.__class__ is MethodType else _name_of_function(callback)


def _name_of_function(callback: Any) -> CallbackName:
    name = getattr(callback, "__name__", None)
    if isinstance(callback, _CALLED):
        raise RequestError(
            f"callback is the result of calling {name}(...), not a method",
            remedy=f"pass the method: self.{name}, and its arguments as cb_kwargs",
            field="callback",
        )
    if not isinstance(name, str) or name == "<lambda>":
        raise RequestError(
            f"callback {callback!r} has no name that a worker could look up",
            remedy="pass a method of the spider, or its name as a string",
        )
    if name.startswith("__") and not name.endswith("__") and callback.__class__ is MethodType:
        owner = callback.__qualname__.rpartition(".")[0].rpartition(".")[2]
        name = f"_{owner.lstrip('_')}{name}"  # the private name under which the class has it
    found = CallbackName(name)
    found.function = callback
    return found


_name_of_method = lru_cache(maxsize=16)(_name_of_function)
"""Only names of methods are cached, because a nested function would keep its page in memory."""


def known_codec(encoding: str) -> str:
    """Return the Python codec of a character encoding. Raises :class:`~skitter.errors.RequestError` for an unknown one."""
    codec = codec_of(encoding)
    if codec is None:
        raise RequestError(
            f"unknown character encoding {encoding!r:.80}",
            remedy="use a name such as utf-8, gbk or windows-1252",
            field="encoding",
        )
    return codec


def _to_bytes(body: Any) -> bytes:
    if isinstance(body, str):
        try:
            return body.encode()
        except UnicodeEncodeError:
            raise RequestError(
                f"the request body contains a lone surrogate: {body!r:.60}",
                remedy=_NO_SURROGATES,
                field="body",
            ) from None
    if isinstance(body, (bytearray, memoryview)):
        return bytes(body)
    raise RequestError(
        f"the request body must be bytes or str, not {type(body).__name__}",
        remedy="encode the body first",
    )


_encode = msgspec.msgpack.Encoder(enc_hook=as_builtin).encode
_decode = msgspec.msgpack.Decoder(Request).decode
_VERSION_BYTE = bytes([RECORD_VERSION])
_REJECTED = b"!"
"""First byte of the record of a rejected seed."""
SCRAPY_REQUEST, SCRAPY_ITEM = "scrapy", "scrapy_item"
"""Keys of ``meta`` for the packed fields of a request of a Scrapy project, and for a packed item of its ``start()``."""
SCRAPY_KEYS = frozenset({SCRAPY_REQUEST, SCRAPY_ITEM})
"""Only the Scrapy project can compute the fingerprint of a request with one of these keys."""


def encode_request(request: Request) -> bytes:
    """Return the stored form of a request: a version byte, then a MessagePack map.

    The map does not contain the URL, which is stored next to the record. So the URL is readable, and all links of a page
    share one record. Nor does it contain the number of the attempt. Raises :class:`~skitter.errors.RequestError` if a
    field holds a value that MessagePack cannot encode.
    """
    try:
        _refuse_lossy(request.meta, "meta", request.url)
        _refuse_lossy(request.cb_kwargs, "cb_kwargs", request.url)
        record = _encode(msgspec.structs.replace(request, url="", retries=0, is_last_attempt=False))
        _decode(record)  # report a field of the wrong type at once, where the caller made the mistake
    except UnicodeEncodeError as error:
        names = [name for name, value in msgspec.structs.asdict(request).items() if not _is_unicode(value)]
        raise RequestError(
            f"request {request.url!r} cannot be stored: {' and '.join(names)} contains a lone surrogate",
            remedy=_NO_SURROGATES,
        ) from error
    except (TypeError, OverflowError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise RequestError(
            f"request {request.url!r} cannot be stored: {error}",
            remedy="give each field a value of the type that Request documents",
        ) from error
    return _VERSION_BYTE + record


def _is_unicode(value: Any) -> bool:
    try:
        _encode(value)
    except UnicodeEncodeError:
        return False
    return True


_NO_SURROGATES = "decode the text with errors='replace', or remove the surrogates"
_PLAIN = (str, int, float, bytes, bool, type(None))


def _refuse_lossy(value: Any, path: str, url: str) -> None:
    """Raise an error for a value that MessagePack would change or cannot encode. ``path`` is its location in the request."""
    if isinstance(value, _PLAIN) or (isinstance(value, datetime) and value.tzinfo is not None):
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            _refuse_lossy(key, f"a key of {path}", url)
            _refuse_lossy(inner, f"{path}[{key!r}]", url)
    elif isinstance(value, (list, tuple)):
        for place, inner in enumerate(value):
            _refuse_lossy(inner, f"{path}[{place}]", url)
    else:
        raise RequestError(
            f"request {url!r} cannot be stored: {path} is {with_article(type(value).__qualname__)}",
            remedy="keep meta and cb_kwargs to plain values (strings, numbers, lists, dicts), such as asdict(item) of an item",
        )


def rejected_record(reason: str) -> bytes:
    """Return the record of a seed that could not be read. Decoding it raises an error with the reason."""
    return _REJECTED + reason.encode("utf-8", "replace")


def is_rejected(record: bytes) -> bool:
    """Return whether a record belongs to a seed that could not be read, so that it never was a request."""
    return record == b"" or record[:1] == _REJECTED


def decode_request(url: str, record: bytes) -> Request:
    """Return a request from its stored form.

    Raises :class:`~skitter.errors.UndecodableRecord` for an unknown version or damaged bytes.
    """
    if not record or record[0] != RECORD_VERSION:
        raise _unreadable(record)
    try:
        request = _decode(record[1:])
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        raise UndecodableRecord(f"stored request is damaged: {error}") from error
    force_setattr(request, "url", url)
    return request


ATTEMPT_FIELDS = frozenset({"retries", "is_last_attempt"})
"""Fields that the engine sets for each attempt."""


def set_attempt(request: Request, retries: int, *, is_last: bool) -> None:
    """Set the number of the attempt of a leased request. Only for the engine."""
    force_setattr(request, "retries", retries)
    force_setattr(request, "is_last_attempt", is_last)


def _unreadable(record: bytes) -> UndecodableRecord:
    if is_rejected(record):
        reason = bytes(record[1:]).decode("utf-8", "replace") or "a rejected seed has no stored request"
        return UndecodableRecord(reason, remedy="correct the seed and add it again", field="seed")
    return UndecodableRecord(
        f"stored request has format version {record[0]}; this version of skitter reads {RECORD_VERSION}",
        remedy="replay it with the version of skitter that wrote it",
    )


def fingerprint(request: Request, seed: int) -> bytes:
    """Return the 128-bit identity of a request.

    The identity is the XXH3-128 hash, with the job's secret ``seed``, of the method, the canonical URL, the body and the
    values of the extra keys. For a plain GET, only the canonical URL is hashed. So all links of a page can be tested
    without creating requests; see :func:`fingerprint_of_url`.

    Raises :class:`~skitter.errors.MissingFingerprintKey`.
    """
    url = canonical(request.url)
    if request.method == "GET" and not request.body and not request.fingerprint_keys:
        return xxhash.xxh3_128_digest(url.encode(), seed)
    identity = [request.method, url, request.body, _extra_values(request)]
    try:
        encoded = _encode_sorted(identity)
    except (TypeError, OverflowError, ValueError) as error:
        raise RequestError(
            f"request {request.url!r} has no identity: {error}",
            remedy="name only meta keys with plain values in fingerprint_keys",
        ) from error
    # A canonical URL never begins with a zero byte, so the two forms cannot collide.
    return xxhash.xxh3_128_digest(b"\0" + encoded, seed)


def fingerprint_of_url(canonical_url: str, seed: int) -> bytes:
    """Return the fingerprint of a plain GET of a canonical URL."""
    return xxhash.xxh3_128_digest(canonical_url.encode(), seed)


_encode_sorted = msgspec.msgpack.Encoder(enc_hook=as_builtin, order="deterministic").encode


def _extra_values(request: Request) -> list[tuple[str, Any]]:
    try:
        return [(key, request.meta[key]) for key in sorted(request.fingerprint_keys)]
    except KeyError as missing:
        raise MissingFingerprintKey(
            f"request {request.url!r} has no meta value for the fingerprint key {missing}",
            remedy=f"add {missing} to meta, or remove it from fingerprint_keys",
        ) from None
