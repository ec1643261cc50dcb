"""Content codings: gzip, deflate, br and zstd, undone under a cap.

The client hands over bodies as they were on the wire; decoding here with fast libraries costs less than a
third of what libcurl takes, and a decompression bomb is stopped at the cap, never expanded past it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Protocol

import brotli
from isal import isal_zlib

from skitter.fetch.contract import BodyTooLarge, UndecodableBody

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ACCEPT_ENCODING = "zstd, gzip, br, deflate"
"""What :func:`decode_body` can undo, in the order of preference."""

MAX_CODINGS = 3
"""Codings that one body may carry on top of each other."""

_GZIP = 31
_ZLIB = 15
_RAW = -15
# The stub of isal calls its error an instance.
_BROKEN: tuple[type[Exception], ...] = (isal_zlib.IsalError, zstd.ZstdError)  # type: ignore[assignment]
# RFC 9659: a sender must not ask for a window above 8 MiB.
_ZSTD_OPTIONS: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 23}


def decode_body(body: bytes, codings: Sequence[str], limit: int) -> bytes:
    """Undo the codings of a ``Content-Encoding`` header (RFC 9110, 8.4), last applied first.

    ``limit``
        Bytes that a decoded body may have, also between two codings.

    A coding of an unknown name ends the decoding and leaves the body as it is then, as browsers do: such
    names are in practice mistakes (``utf-8``, ``none``) in front of a plain body.

    Raises :class:`~skitter.fetch.contract.BodyTooLarge` past the limit and
    :class:`~skitter.fetch.contract.UndecodableBody` for broken or truncated data, or more than
    ``MAX_CODINGS`` codings.
    """
    if len(codings) > MAX_CODINGS:
        raise UndecodableBody(f"the body has {len(codings)} codings, more than {MAX_CODINGS}")
    for name in reversed(codings):
        undo = _DECODERS.get(name)
        if undo is None:
            break
        if body:
            body = undo(body, limit)
    return body


class _Stream(Protocol):
    """What the decompressors of zlib, isal and zstd have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /, max_length: int = ...) -> bytes: ...


def _expand(stream: _Stream, data: bytes, room: int, name: str) -> bytes:
    """Expand one whole stream into at most ``room`` bytes."""
    try:
        # One byte more than allowed tells a body of exactly the limit from one that is larger.
        output = stream.decompress(data, max_length=room + 1)
    except _BROKEN as error:
        raise UndecodableBody(f"broken {name} data: {error}") from error
    if len(output) > room:
        raise _too_large(name)
    if not stream.eof:
        raise UndecodableBody(f"{name} data ends early")
    return output


def _too_large(name: str) -> BodyTooLarge:
    return BodyTooLarge(
        f"the body passes the limit when its {name} coding is undone",
        remedy="raise max_body if such bodies are wanted",
    )


def _expand_all(
    open_stream: Callable[[], _Stream], magic: bytes, data: bytes, limit: int, name: str
) -> bytes:
    """Expand streams that follow each other; what follows them is ignored, as browsers do."""
    stream = open_stream()
    output = _expand(stream, data, limit, name)
    rest = stream.unused_data
    if not rest.startswith(magic):
        return output
    parts, room = [output], limit - len(output)
    while rest.startswith(magic):
        stream = open_stream()
        parts.append(_expand(stream, rest, room, name))
        room -= len(parts[-1])
        rest = stream.unused_data
    return b"".join(parts)


def _gunzip(data: bytes, limit: int) -> bytes:
    return _expand_all(lambda: isal_zlib.decompressobj(_GZIP), b"\x1f\x8b", data, limit, "gzip")


def _unzstd(data: bytes, limit: int) -> bytes:
    return _expand_all(
        lambda: zstd.ZstdDecompressor(options=_ZSTD_OPTIONS), b"\x28\xb5\x2f\xfd", data, limit, "zstd"
    )


def _inflate(data: bytes, limit: int) -> bytes:
    # "deflate" means the zlib format; many servers send bare deflate data under that name.
    if len(data) > 1 and data[0] & 15 == 8 and (data[0] << 8 | data[1]) % 31 == 0:
        try:
            return _expand(isal_zlib.decompressobj(_ZLIB), data, limit, "deflate")
        except UndecodableBody:
            # Bare data can begin like a zlib header by chance; if it is neither, this raises again.
            pass
    return _expand(isal_zlib.decompressobj(_RAW), data, limit, "deflate")


def _unbrotli(data: bytes, limit: int) -> bytes:
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
                raise _too_large("br")
            if not part and not stream.is_finished() and stream.can_accept_more_data():
                raise UndecodableBody("br data ends early")
    except brotli.error as error:
        raise UndecodableBody(f"broken br data: {error}") from error
    return parts[0] if len(parts) == 1 else b"".join(parts)


_DECODERS: dict[str, Callable[[bytes, int], bytes]] = {
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "deflate": _inflate,
    "br": _unbrotli,
    "zstd": _unzstd,
}
