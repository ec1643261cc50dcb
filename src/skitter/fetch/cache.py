"""CachingFetcher: keeps answers in a folder, so that a page is fetched once however often a spider is tried out.

It is no cache of a browser: freshness is what ``cache_ttl`` says, not the server. Only GET without a body, and only
answers that RFC 9110 (15.1) calls cacheable and whose server does not forbid to store them; never robots.txt, which has
an age of its own. Headers, cookies and the session of a request are part of the key. ``Cache-Control`` of a request
is heeded: ``no-cache`` fetches and renews, ``no-store`` leaves the cache alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from pathlib import Path

import msgspec
import xxhash

from skitter.fetch.contract import Aborted, Fetcher, HeaderHook, asks_before_sending, fetch_watched
from skitter.request import Request
from skitter.response import Response

_FORMAT = 1
_STORED_STATUSES = frozenset({200, 203, 204, 300, 301, 308, 404, 410})


class _Kept(msgspec.Struct, array_like=True):
    """One answer in its file."""

    format: int
    key: bytes
    at: float
    """Unix time of the fetch."""
    status: int
    headers: bytes
    body: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Kept).decode


class CachingFetcher:
    """Answers from a folder what it holds, and has another fetcher fetch the rest.

    Several processes may share the folder. It has no bound on its size and may be deleted at any time. Cookies that a
    kept answer sets are not set again.

    ``ttl``
        Seconds for which an answer is kept; ``None``: for ever.
    """

    def __init__(self, fetcher: Fetcher, folder: str | Path, ttl: float | None = None) -> None:
        self._fetcher = fetcher
        self._folder = Path(folder)
        self._ttl = ttl
        self.asks_before_sending = asks_before_sending(fetcher)
        self.blocked_statuses: frozenset[int] = getattr(fetcher, "blocked_statuses", frozenset())

    async def open(self) -> None:
        """Open the other fetcher."""
        await self._fetcher.open()

    async def close(self) -> None:
        """Close the other fetcher."""
        await self._fetcher.close()

    async def fetch_watched(self, request: Request, on_headers: HeaderHook) -> Response:
        """Fetch one request, or find it; raises as the other fetcher, and Aborted if the body is not wanted."""
        return await self.fetch(request, on_headers)

    async def fetch(self, request: Request, on_headers: HeaderHook | None = None) -> Response:
        """Fetch one request, or find it; raises as the other fetcher."""
        wish = _directives(request)
        if not _may_be_kept(request) or "no-store" in wish:
            return await self._pass_on(request, on_headers)
        key = _key(request)
        path = self._path(key)
        if "no-cache" not in wish:
            kept = await asyncio.to_thread(self._read, path, key)
            if kept is not None:
                return await _shown(kept, request, on_headers)
        response = await self._pass_on(request, on_headers)
        if response.status in _STORED_STATUSES and "no-store" not in response.header("cache-control").lower():
            await asyncio.to_thread(_write, path, _of(response, key))
        return response

    async def _pass_on(self, request: Request, on_headers: HeaderHook | None) -> Response:
        if on_headers is None:
            return await self._fetcher.fetch(request)
        return await fetch_watched(self._fetcher, request, on_headers)

    def _path(self, key: bytes) -> Path:
        name = xxhash.xxh3_128_hexdigest(key)
        return self._folder / name[:2] / name[2:]

    def _read(self, path: Path, key: bytes) -> _Kept | None:
        try:
            kept = _decode(path.read_bytes())
        except (OSError, msgspec.MsgspecError):  # nothing there, or nothing of ours: fetch it
            return None
        fresh = self._ttl is None or 0 <= time.time() - kept.at < self._ttl
        return kept if kept.format == _FORMAT and kept.key == key and fresh else None


async def _shown(kept: _Kept, request: Request, on_headers: HeaderHook | None) -> Response:
    response = Response(request.url, kept.status, headers=kept.headers, body=kept.body, request=request)
    if on_headers is not None and not await on_headers(response.replace(body=b"")):
        raise Aborted("the body was not wanted")
    return response


def _may_be_kept(request: Request) -> bool:
    return request.method == "GET" and not request.body and not request.url.endswith("/robots.txt")


def _directives(request: Request) -> str:
    return " ".join(
        value for name, value in request.headers.items() if name.lower() == "cache-control"
    ).lower()


def _key(request: Request) -> bytes:
    headers = sorted(
        (name.lower(), value) for name, value in request.headers.items() if name.lower() != "cache-control"
    )
    return _encode([request.url, headers, sorted(request.cookies.items()), request.session])


def _of(response: Response, key: bytes) -> _Kept:
    lines = "".join(f"{name}: {value}\r\n" for name, value in response.headers.items())
    return _Kept(
        _FORMAT, key, time.time(), response.status, lines.encode("latin-1", "replace"), response.body
    )


def _write(path: Path, kept: _Kept) -> None:
    """Write in one step; a folder that cannot be written makes no page fail."""
    draft = path.with_name(f"{uuid.uuid4().hex}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(_encode(kept))
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
