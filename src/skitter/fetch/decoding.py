"""Decodes the content codings gzip, deflate, br and zstd, up to a maximum size.

The client returns bodies as they were transferred. Decoding them here with fast libraries takes less than a third of
libcurl's time, and a decompression bomb is stopped at the limit and never expanded further.
"""

from __future__ import annotations

from collections.abc import Sequence

from skitter.fetch.contract import UndecodableBody

ACCEPT_ENCODING = "zstd, gzip, br, deflate"
"""The codings that :func:`decode_body` supports, in the order of preference."""

MAX_CODINGS = 3
"""Maximum number of codings that may be applied to one body."""


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
    if codings and body:
        from skitter.fetch.codings import DECODERS  # noqa: PLC0415 - loads four libraries, which plain bodies do not need
    for name in reversed(codings):
        undo = DECODERS.get(name)
        if undo is None:
            break
        if body:
            body = undo(body, limit, cuts)
    return body
