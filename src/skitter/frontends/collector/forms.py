"""Forms: bodies of POST requests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlencode

import msgspec
import xxhash

from skitter.errors import RequestError

URLENCODED = "application/x-www-form-urlencoded"


class FormFile(msgspec.Struct, frozen=True):
    """A file in a form of several parts (RFC 7578)."""

    name: str
    content: bytes
    content_type: str = "application/octet-stream"


def encode_form(fields: Mapping[str, str]) -> bytes:
    """Return fields as ``application/x-www-form-urlencoded``, by the URL standard (WHATWG), in UTF-8."""
    return urlencode(dict(fields)).encode()


def encode_multipart(parts: Mapping[str, str | bytes | FormFile]) -> tuple[bytes, str]:
    """Return parts as ``multipart/form-data`` (RFC 7578), and the value of its ``Content-Type``.

    The boundary follows from the content, so that the same form is the same request.
    Raises :class:`~skitter.errors.RequestError` for a content type that breaks its line.
    """
    pieces = [_piece(name, value) for name, value in parts.items()]
    boundary = f"skitter-{xxhash.xxh3_128_hexdigest(b'|'.join(pieces))}"
    mark = f"--{boundary}\r\n".encode()
    body = b"".join(mark + piece + b"\r\n" for piece in pieces) + f"--{boundary}--\r\n".encode()
    return body, f"multipart/form-data; boundary={boundary}"


def _piece(name: str, value: str | bytes | FormFile) -> bytes:
    head = f'Content-Disposition: form-data; name="{_quoted(name)}"'
    if isinstance(value, FormFile):
        if _BREAKS(value.content_type):
            raise RequestError(f"content type {value.content_type!r} has a line break", remedy="leave it out")
        head += f'; filename="{_quoted(value.name)}"\r\nContent-Type: {value.content_type}'
    content = value.content if isinstance(value, FormFile) else value
    return f"{head}\r\n\r\n".encode() + (content.encode() if isinstance(content, str) else content)


_BREAKS = re.compile(r"[\r\n]").search


def _quoted(text: str) -> str:
    """Escape what would end a name, as browsers do (HTML standard, multipart/form-data encoding)."""
    return text.replace("\n", "%0A").replace("\r", "%0D").replace('"', "%22")
