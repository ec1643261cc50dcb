"""HTTP messages in WARC records, as skitter and other programs record them.

A message is read like a response from the network: with the same tolerance, and by the same decoders.
"""

from __future__ import annotations

import re

from skitter.errors import FetchError
from skitter.fetch.contract import BodyTooLarge, UndecodableBody
from skitter.fetch.decoding import decode_body
from skitter.response import Response
from skitter.web.headers import content_codings


class NotArchived(FetchError):
    """The archive has no response to the request, or none that can be read."""

    kind = "archive"
    retryable = False


def split_message(block: bytes) -> tuple[int, bytes, bytes]:
    """Return the status, the head and the body of an HTTP message. Raises :class:`NotArchived` if it has no status.

    Interim responses (1xx) before it are skipped, and lines may end with LF only.
    """
    while True:
        found = _STATUS(block)
        if found is None:
            raise NotArchived("the record has no HTTP status")
        blank = _BLANK_LINE(block, found.end())
        end = len(block) if blank is None else blank.end()
        status, head, block = int(found[1]), block[:end], block[end:]
        if status >= _FINAL or not block.startswith(b"HTTP/"):
            return status, head, block


_STATUS = re.compile(rb"(?:HTTP/\d(?:\.\d)?|ICY)[ \t]+(\d{3})(?!\d)").match
_BLANK_LINE = re.compile(rb"\r?\n\r?\n").search
_FINAL = 200
"""Statuses below belong to interim responses."""


def decode_message(response: Response, limit: int, *, cuts: bool, needs_body: bool) -> None:
    """Undo the transfer coding ``chunked`` and the content codings of a recorded response.

    ``limit``: maximum size of the decoded body in bytes. ``cuts``: whether to return the start of a body that is larger,
    or incomplete. ``needs_body``: whether a body that cannot be decoded is an error. If not, it becomes empty.

    Raises :class:`~skitter.fetch.contract.BodyTooLarge`, and :class:`NotArchived` for a body that is incomplete or damaged.
    """
    fields = response.raw_headers.lower()
    if b"chunked" in fields and "chunked" in response.header("transfer-encoding").lower():
        response.body = without_chunks(response.body, cuts=cuts)
    if response.body and (codings := content_codings(fields)):
        response.wire_body = response.body
        try:
            response.body = decode_body(response.body, codings, limit, cuts=cuts)
        except UndecodableBody as error:
            if needs_body:
                raise NotArchived(f"the archived body cannot be decoded: {error}") from error
            response.body = b""
    if len(response.body) > limit:
        if not cuts:
            raise BodyTooLarge(f"the archived body is longer than {limit} bytes")
        response.body, response.is_truncated = response.body[:limit], True


def without_chunks(body: bytes, *, cuts: bool = False) -> bytes:
    """Undo the transfer coding ``chunked`` (RFC 9112, 7.1).

    A body that does not begin with a chunk stays as it is: some programs remove the coding, but record its header.
    ``cuts``: whether to return the start of an incomplete body, instead of raising :class:`NotArchived`.
    """
    found = _CHUNK(body)
    if found is None:
        return body
    parts: list[bytes] = []
    while found is not None:
        size = int(found[1], 16)
        if not size:
            return b"".join(parts)
        end = found.end() + size
        parts.append(body[found.end() : end])
        found = _CHUNK(body, end)
    if not cuts:
        raise NotArchived("the archived body is incomplete: its last chunk is missing")
    return b"".join(parts)


_CHUNK = re.compile(rb"(?:\r?\n)?([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r?\n").match
