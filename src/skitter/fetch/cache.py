"""CachingFetcher: stores responses in a folder, so that trying out a spider fetches each page once.

Unlike in a browser cache, ``cache_ttl`` decides about freshness, not the server. Only responses to GET requests without
a body are stored, and only if their status is cacheable (RFC 9110, 15.1) and the server does not forbid storing.
robots.txt and tdmrep.json are never stored, because they have their own lifetimes. Headers, cookies and session of a request are part of
the key. ``Cache-Control`` of a request is obeyed: ``no-cache`` fetches and stores again, ``no-store`` skips the cache.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
import uuid
from pathlib import Path

import msgspec
import xxhash

from skitter.errors import SettingsError
from skitter.fetch.contract import (
    UNCONDITIONAL,
    Aborted,
    Fetcher,
    FetcherCapabilities,
    HeaderHook,
    SendPermit,
    WrappingFetcher,
    fetch_with_hook,
)
from skitter.fetch.tdmrep import SITE_FILES
from skitter.request import Request, as_builtin
from skitter.response import Response

_FORMAT = 1
_STORED_STATUSES = frozenset({200, 203, 204, 300, 301, 308, 404, 410})


class _Stored(msgspec.Struct, array_like=True):
    """One response, as it is stored in a file."""

    format: int
    key: bytes
    at: float
    """Unix time of the fetch."""
    status: int
    headers: bytes
    body: bytes


_encode = msgspec.msgpack.Encoder(enc_hook=as_builtin).encode
_decode = msgspec.msgpack.Decoder(_Stored).decode


class CachingFetcher(WrappingFetcher):
    """Returns stored responses from a folder, and fetches all other requests with another fetcher.

    Implements :class:`Fetcher`.

    Several processes may share the folder. Its size is not limited, and it may be deleted at any time. Cookies of a
    stored response are not set again.

    ``ttl``
        Lifetime of a stored response in seconds; ``None``: no limit.
    """

    def __init__(self, fetcher: Fetcher, folder: str | Path, ttl: float | None = None) -> None:
        super().__init__(fetcher)
        self._folder = Path(folder)
        self._ttl = ttl

    async def open(self) -> None:
        """Create the folder. Raises :class:`~skitter.errors.SettingsError` if it cannot be written."""
        await asyncio.to_thread(self._check_folder)
        await super().open()

    def _check_folder(self) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._folder):
                pass
        except OSError as error:
            raise SettingsError(
                f"cache_dir {self._folder} cannot be written: {error.strerror}",
                remedy="name a folder that you may write, or leave out cache_dir",
                field="cache_dir",
            ) from error

    @property
    def capabilities(self) -> FetcherCapabilities:
        """The capabilities of the wrapped fetcher. The headers of a stored response are also shown first."""
        return msgspec.structs.replace(self._fetcher.capabilities, shows_headers=True)

    async def fetch(
        self,
        request: Request,
        *,
        permit: SendPermit = UNCONDITIONAL,
        on_headers: HeaderHook | None = None,
    ) -> Response:
        directives = _directives(request)
        if not _is_cacheable(request) or "no-store" in directives:
            return await fetch_with_hook(self._fetcher, request, permit, on_headers)
        replaces = "no-cache" in directives or request.retries > 0  # user code wants another response
        key = _key(request, replaces=replaces)
        name = xxhash.xxh3_128_hexdigest(key)
        path = self._folder / name[:2] / name[2:]
        if not replaces:
            stored = await asyncio.to_thread(self._read, path, key)
            if stored is not None:
                return await _response_of(stored, request, on_headers)
        response = await fetch_with_hook(self._fetcher, request, permit, on_headers)
        is_whole = response.status in _STORED_STATUSES and not response.is_truncated
        if is_whole and "no-store" not in response.header("cache-control").lower():
            await asyncio.to_thread(_write, path, _stored(response, key))
        return response

    def _read(self, path: Path, key: bytes) -> _Stored | None:
        try:
            stored = _decode(path.read_bytes())
        except (OSError, msgspec.MsgspecError):  # missing, or not a file of this cache: fetch the page
            return None
        fresh = self._ttl is None or 0 <= time.time() - stored.at < self._ttl
        return stored if stored.format == _FORMAT and stored.key == key and fresh else None


async def _response_of(stored: _Stored, request: Request, on_headers: HeaderHook | None) -> Response:
    response = Response(request.url, stored.status, headers=stored.headers, body=stored.body, request=request)
    if on_headers is not None and not await on_headers(response.replace(body=b"")):
        raise Aborted("the header hook rejected the response")
    return response


def _is_cacheable(request: Request) -> bool:
    plain = request.browsing is None or not (request.browsing.actions or request.browsing.keep_page)
    # The response to a request with its own size limit may be too large for the cache, or go to a sink.
    plain = plain and request.max_body is None
    return request.method == "GET" and not request.body and plain and not request.url.endswith(SITE_FILES)


def _directives(request: Request) -> str:
    return " ".join(
        value for name, value in request.headers.items() if name.lower() == "cache-control"
    ).lower()


def _key(request: Request, *, replaces: bool) -> bytes:
    """Return the key of a response. A response that ``replaces`` the stored one may be that to a conditional request."""
    left_out = {"cache-control", "if-none-match", "if-modified-since"} if replaces else {"cache-control"}
    headers = sorted(
        (name.lower(), value) for name, value in request.headers.items() if name.lower() not in left_out
    )
    by = [request.fetcher, request.browsing] if request.fetcher or request.browsing is not None else []
    return _encode([request.url, headers, sorted(request.cookies.items()), request.session, *by])


def _stored(response: Response, key: bytes) -> _Stored:
    lines = "".join(f"{name}: {value}\r\n" for name, value in response.headers.items())
    return _Stored(
        _FORMAT, key, time.time(), response.status, lines.encode("latin-1", "replace"), response.body
    )


def _write(path: Path, stored: _Stored) -> None:
    """Write the file atomically. Errors are ignored, because the page has been fetched anyway."""
    draft = path.with_name(f"{uuid.uuid4().hex}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(_encode(stored))
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
