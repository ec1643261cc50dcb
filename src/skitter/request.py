"""Request: one thing to fetch. Immutable, serialisable without pickle, names its callback."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
import xxhash
from msgspec.structs import force_setattr

from skitter.errors import MissingFingerprintKey, RequestError, UndecodableRecord
from skitter.queues import NAME_RULE, is_queue_name
from skitter.web.urls import canonical

RECORD_VERSION = 1
"""First byte of every stored record. A reader refuses versions that it does not know."""

FINGERPRINT_VERSION = 1
"""Changes whenever the same request would get another fingerprint; stored with each job."""


if TYPE_CHECKING:
    type_of_callback = str | Callable[..., Any] | None
else:  # what is kept is always the name
    type_of_callback = str | None


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request of a job.

    ``url``
        Absolute http(s) URL. The fragment is not sent and is no part of the identity.
    ``method``, ``headers``, ``body``
        As in HTTP. A ``str`` body is encoded as UTF-8.
    ``callback``, ``errback``
        Name of a spider method (a bound method is accepted and kept by its name). ``None`` means
        ``parse`` for the callback and none for the errback.
    ``cb_kwargs``
        Keyword arguments for the callback. ``meta``: values that travel with the request.
        Both must be made of what MessagePack can carry: ``None``, booleans, 64-bit integers,
        floats, strings, bytes, datetimes with a time zone, lists and dicts. A tuple comes back as a list.
    ``priority``
        Any integer; higher is fetched first. Default 0.
    ``depth``
        Set by the engine to the parent's depth + 1; whatever a callback puts here is overwritten.
    ``depth_limit``
        Deepest page that may be reached by links from here; ``None``, the default: what the setting says. A request
        that a callback gives has its own, so it is to be handed on.
    ``dont_filter``
        Skip the duplicate test (the request is still counted and leased like any other).
    ``cookies``
        Cookies for this request only, sent besides those of its ``session``.
    ``session``
        Name of the cookie jar that this request reads and writes. Default: the shared jar ``""``.
    ``fingerprint_keys``
        Names of ``meta`` keys that are part of the identity (two requests with the same URL and
        different values are different requests). A key that ``meta`` lacks raises
        :class:`~skitter.errors.MissingFingerprintKey`.
    ``delay``
        Seconds to wait, from the moment the request is added, before it may be fetched.
    ``not_before``
        Unix time before which it may not be fetched. The later of the two rules.
    ``queue``
        Name of the queue that it waits in (``docs/queues.md``), 1 to 64 letters, digits, dashes and underscores. Empty,
        the default: that of the page that gave it; of a seed: ``default``. It is no part of the identity.
    ``timeout``
        Seconds for the whole transfer, instead of the setting. ``max_retries``: likewise.
    ``proxy``
        Proxy URL for this request (``http://user:password@host:port``, ``socks5h://...``).
    ``referer``, ``redirects``
        Where the request came from: the page that linked to it and the chain of URLs that
        redirected to it. Set by the engine.
    ``cookie_hop``
        Length of that chain when a redirect of it last set a cookie; 0 if none did. Set by the engine.
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

    def __post_init__(self) -> None:
        if not self.method.isupper():
            force_setattr(self, "method", self.method.upper())
        callback = self.callback
        if callback is not None and callback.__class__ is not str:
            force_setattr(self, "callback", _name_of(callback))
        if self.errback is not None and self.errback.__class__ is not str:
            force_setattr(self, "errback", _name_of(self.errback))
        if self.body.__class__ is not bytes:
            force_setattr(self, "body", _to_bytes(self.body))
        if self.queue and not is_queue_name(self.queue):
            raise RequestError(f"request {self.url!r} has queue {self.queue!r:.80}", remedy=NAME_RULE)

    def replace(self, **changes: Any) -> Request:
        """Return a copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)


def _name_of(callback: Any) -> str:
    name = getattr(callback, "__name__", None)
    if not isinstance(name, str) or name == "<lambda>":
        raise RequestError(
            f"callback {callback!r} has no name that a worker could look up",
            remedy="pass a method of the spider, or its name as a string",
        )
    return name


def _to_bytes(body: Any) -> bytes:
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, (bytearray, memoryview)):
        return bytes(body)
    raise RequestError(
        f"a request body is bytes or str, not {type(body).__name__}",
        remedy="encode the body before it is given to Request",
    )


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Request).decode
_VERSION_BYTE = bytes([RECORD_VERSION])


def encode_request(request: Request) -> bytes:
    """Return the stored form of a request: a version byte, then a MessagePack map.

    The URL is not in it: it is kept beside the record, where people can read it, and all links of a
    page share one record. Raises :class:`~skitter.errors.RequestError` if ``meta``, ``cb_kwargs`` or
    another field holds a value that MessagePack cannot carry.
    """
    try:
        _refuse_lossy(request.meta, "meta", request.url)
        _refuse_lossy(request.cb_kwargs, "cb_kwargs", request.url)
        record = _encode(msgspec.structs.replace(request, url="") if request.url else request)
        _decode(record)  # a field of the wrong type is the caller's mistake, to be told here and now
    except (TypeError, OverflowError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise RequestError(
            f"request {request.url!r} cannot be stored: {error}",
            remedy="give each field a value of the type that Request documents",
        ) from error
    return _VERSION_BYTE + record


_PLAIN = (str, int, float, bytes, bool, type(None))


def _refuse_lossy(value: Any, path: str, url: str) -> None:
    """Raise for a value that would not come back as it is, or not at all; ``path`` leads to it."""
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
            f"request {url!r} cannot be stored: {path} is a {type(value).__qualname__}",
            remedy="keep meta and cb_kwargs to plain values (strings, numbers, lists, dicts)",
        )


def decode_request(url: str, record: bytes) -> Request:
    """Read a stored request back.

    Raises :class:`~skitter.errors.UndecodableRecord` for an unknown version or damaged bytes.
    """
    if not record:
        raise UndecodableRecord(
            "it is no request, only the text of a seed that was refused", remedy="add it anew, put right"
        )
    if record[:1] != _VERSION_BYTE:
        raise UndecodableRecord(
            f"stored request has format version {record[0]}, this skitter reads {RECORD_VERSION}",
            remedy="replay it with the version that wrote it",
        )
    try:
        request = _decode(memoryview(record)[1:])
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        raise UndecodableRecord(f"stored request is damaged: {error}") from error
    force_setattr(request, "url", url)
    return request


def fingerprint(request: Request, seed: int) -> bytes:
    """Return the 128-bit identity of a request.

    XXH3-128 with the job's secret ``seed`` over method, canonical URL, body and the values of the
    extra keys. A plain GET hashes its canonical URL alone, which lets a whole page of links be
    tested without building a request each (see :func:`fingerprint_of_url`).

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
    # A canonical URL never begins with a zero byte, so the two forms cannot meet.
    return xxhash.xxh3_128_digest(b"\0" + encoded, seed)


def fingerprint_of_url(canonical_url: str, seed: int) -> bytes:
    """Fingerprint of a plain GET of an already canonical URL."""
    return xxhash.xxh3_128_digest(canonical_url.encode(), seed)


_encode_sorted = msgspec.msgpack.Encoder(order="deterministic").encode


def _extra_values(request: Request) -> list[tuple[str, Any]]:
    try:
        return [(key, request.meta[key]) for key in sorted(request.fingerprint_keys)]
    except KeyError as missing:
        raise MissingFingerprintKey(
            f"request {request.url!r} names the fingerprint key {missing} but its meta lacks it",
            remedy=f"put {missing} into meta, or take it out of fingerprint_keys",
        ) from None
