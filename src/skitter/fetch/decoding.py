"""Decodes the content codings gzip, deflate, br and zstd, up to a maximum size.

The client returns bodies as they were transferred. Decoding them here with fast libraries takes less than a third of
libcurl's time, and a decompression bomb is stopped at the limit and never expanded further.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Protocol

import brotli
from isal import isal_zlib

from skitter.fetch.contract import BodyTooLarge, UndecodableBody
from skitter.web.inflate import GZIP, GZIP_MAGIC, MAX_STREAMS, RAW, ZLIB, is_zlib

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAX_CODINGS = 3
"""Maximum number of codings that may be applied to one body."""

# The type stub of isal declares its error class as an instance.
_BROKEN: tuple[type[Exception], ...] = (isal_zlib.IsalError, zstd.ZstdError)  # type: ignore[assignment]
# RFC 9659: a sender must not require a window larger than 8 MiB.
_ZSTD_OPTIONS: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 23}


def decode_body(body: bytes, codings: Sequence[str], limit: int, *, cuts: bool = False) -> bytes:
    """Undo the codings of a ``Content-Encoding`` header (RFC 9110, 8.4), starting with the last one applied.

    ``limit``
        Maximum size of the decoded body in bytes, also between two codings.
    ``cuts``
        Whether to return the start of a body that is too large or truncated. It is at most one byte longer than the limit.

    An unknown coding ends the decoding and leaves the body as it is at that point, as in browsers: in practice such
    names (``utf-8``, ``none``) are mistakes in front of a plain body.

    Raises :class:`~skitter.fetch.contract.BodyTooLarge` above the limit, and
    :class:`~skitter.fetch.contract.UndecodableBody` for invalid or truncated data, or more than ``MAX_CODINGS``
    codings.
    """
    if len(codings) > MAX_CODINGS:
        raise UndecodableBody(f"too many content codings: {len(codings)} (at most {MAX_CODINGS})")
    for name in reversed(codings):
        undo = _DECODERS.get(name)
        if undo is None:
            break
        if body:
            body = undo(body, limit, cuts)
    return body


class _Stream(Protocol):
    """The common interface of the decompressors of zlib, isal and zstd."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /, max_length: int = ...) -> bytes: ...


def _expand(stream: _Stream, data: bytes, room: int, name: str, cuts: bool) -> bytes:
    """Expand one whole stream into at most ``room`` bytes."""
    output = _expand_part(stream, data, room, name, cuts)
    if not stream.eof and not cuts:
        raise _truncated(name)
    return output


def _expand_part(stream: _Stream, data: bytes, room: int, name: str, cuts: bool) -> bytes:
    try:
        # One byte more than the limit distinguishes a body of exactly that size from a larger one.
        output = stream.decompress(data, max_length=room + 1)
    except _BROKEN as error:
        raise UndecodableBody(f"invalid {name} data: {error}") from error
    if len(output) > room and not cuts:
        raise _too_large(name)
    return output


def _truncated(name: str) -> UndecodableBody:
    return UndecodableBody(f"truncated {name} data")


def _too_large(name: str) -> BodyTooLarge:
    return BodyTooLarge(
        f"the body exceeds the limit when its {name} coding is decoded",
        remedy="raise max_body to accept larger bodies",
        field="max_body",
    )


def _expand_all(
    open_stream: Callable[[], _Stream], magic: bytes, data: bytes, limit: int, name: str, cuts: bool
) -> bytes:
    """Expand consecutive streams; data after them is ignored, as in browsers."""
    stream = open_stream()
    output = _expand(stream, data, limit, name, cuts)
    rest = stream.unused_data
    if not rest.startswith(magic) or len(output) > limit:
        return output
    # Each decompressor copies the data after its stream, so the data is passed in small windows from here on.
    parts, room, streams, position = [output], limit - len(output), 2, 0
    stream = open_stream()
    while window := rest[position : position + _WINDOW]:
        position += len(window)
        parts.append(_expand_part(stream, window, room, name, cuts))
        room -= len(parts[-1])
        if room < 0:
            break
        if not stream.eof:
            continue
        position -= len(stream.unused_data)
        if not rest.startswith(magic, position):
            return b"".join(parts)
        streams += 1
        if streams > MAX_STREAMS:
            raise UndecodableBody(f"too many {name} streams in one body: more than {MAX_STREAMS}")
        stream = open_stream()
    if cuts:
        return b"".join(parts)
    raise _truncated(name)


_WINDOW = 32 * 1024


def _gunzip(data: bytes, limit: int, cuts: bool) -> bytes:
    return _expand_all(lambda: isal_zlib.decompressobj(GZIP), GZIP_MAGIC, data, limit, "gzip", cuts)


def _unzstd(data: bytes, limit: int, cuts: bool) -> bytes:
    return _expand_all(
        lambda: zstd.ZstdDecompressor(options=_ZSTD_OPTIONS), b"\x28\xb5\x2f\xfd", data, limit, "zstd", cuts
    )


def _inflate(data: bytes, limit: int, cuts: bool) -> bytes:
    if is_zlib(data):
        try:
            return _expand(isal_zlib.decompressobj(ZLIB), data, limit, "deflate", cuts)
        except UndecodableBody:
            # Raw data can start like a zlib header by chance. If it has neither format, this raises again.
            pass
    return _expand(isal_zlib.decompressobj(RAW), data, limit, "deflate", cuts)


def _unbrotli(data: bytes, limit: int, cuts: bool) -> bytes:
    stream = brotli.Decompressor()
    parts: list[bytes] = []
    room = limit
    try:
        while not stream.is_finished():
            part = stream.process(data, output_buffer_limit=room + 1)
            data = b""
            parts.append(part)
            room -= len(part)
            if room < 0:
                if cuts:
                    break
                raise _too_large("br")
            if not part and not stream.is_finished() and stream.can_accept_more_data():
                if cuts:
                    break
                raise UndecodableBody("truncated br data")
    except brotli.error as error:
        raise UndecodableBody(f"invalid br data: {error}") from error
    return parts[0] if len(parts) == 1 else b"".join(parts)


_DECODERS: dict[str, Callable[[bytes, int, bool], bytes]] = {
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "deflate": _inflate,
    "br": _unbrotli,
    "zstd": _unzstd,
}
