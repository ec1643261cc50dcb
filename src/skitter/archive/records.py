"""WARC records of the responses of a crawl (ISO 28500:2017, WARC 1.1).

Each record is a separate gzip member, as readers with an index expect (annex D of the standard).
"""

from __future__ import annotations

import base64
import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import chain
from typing import BinaryIO

from isal import igzip, isal_zlib

from skitter._version import VERSION
from skitter.request import Request
from skitter.response import Response
from skitter.store.contract import Capture

_LEVEL = 1
"""Compression level, from 0 to 3. Level 3 takes 1.5 times as long and saves 8% of the bytes."""
_ORIGINAL = "X-Archive-Orig-"
"""Prefix of a header that no longer describes the recorded body."""
_OF_BODY = frozenset({"content-encoding", "transfer-encoding", "content-length"})
_GZIP = 31
"""Window bits of a gzip stream."""
_NOT_MODIFIED = 304
_UNCHANGED = "http://netpreserve.org/warc/1.1/revisit/server-not-modified"
_RECORDED_HEADERS = frozenset(
    {
        "accept", "accept-encoding", "accept-language", "cache-control", "content-type", "from",
        "if-modified-since", "if-none-match", "origin", "range", "referer", "user-agent",
    }
)  # fmt: skip
"""Request headers that are recorded. All others may hold a secret."""
_NOTE = (
    f"software: skitter/{VERSION}\r\n"
    "format: WARC File Format 1.1\r\n"
    "conformsTo: http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/\r\n"
)


def encode_capture(capture: Capture, request_headers: Mapping[str, str]) -> bytes:
    """Return the records of one response: ``response`` or ``revisit``, and the ``request``.

    ``request_headers``: headers of each request of the job. Cookies, credentials and headers of unknown meaning are
    not recorded.
    """
    response, date = capture.response, _date(capture.fetched_at)
    head, body = _http_message(response)
    fields = {"WARC-Target-URI": response.url}
    if response.ip:
        fields["WARC-IP-Address"] = response.ip
    if response.protocol:
        fields["WARC-Protocol"] = response.protocol
    if response.is_truncated:
        fields["WARC-Truncated"] = "length"
    if response.status == _NOT_MODIFIED:
        kind, fields["WARC-Profile"] = "revisit", _UNCHANGED
    else:
        kind = "response"
        digest = hashlib.sha1(body, usedforsecurity=False).digest()
        fields["WARC-Payload-Digest"] = f"sha1:{base64.b32encode(digest).decode()}"
    record_id = _record_id()
    record = _member(kind, date, record_id, "application/http; msgtype=response", fields, head, body)
    asked = {"WARC-Target-URI": response.url, "WARC-Concurrent-To": record_id}
    message = _request_message(response.request or Request(response.url), request_headers)
    return record + _member(
        "request", date, _record_id(), "application/http; msgtype=request", asked, message
    )


def write_warc(file: BinaryIO, chunks: Iterable[bytes], *, is_compressed: bool) -> None:
    """Write a WARC file: a ``warcinfo`` record, followed by the given gzip members."""
    note = _NOTE.encode()
    first = _member("warcinfo", _date(time.time()), _record_id(), "application/warc-fields", {}, note)
    members = chain((first,), chunks)
    file.writelines(members if is_compressed else _decompressed(members))


def _decompressed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Decompress gzip members that follow each other. A chunk may end within a member."""
    stream = isal_zlib.decompressobj(_GZIP)
    for chunk in chunks:
        data = chunk
        while data:
            if stream.eof:
                stream = isal_zlib.decompressobj(_GZIP)
            yield stream.decompress(data)
            data = stream.unused_data


def _date(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _record_id() -> str:
    """Return a random UUID (RFC 9562, version 4). The module ``uuid`` takes three times as long."""
    number = bytearray(os.urandom(16))
    number[6] = number[6] & 0x0F | 0x40
    number[8] = number[8] & 0x3F | 0x80
    text = number.hex()
    return f"<urn:uuid:{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}>"


def _member(
    kind: str, date: str, record_id: str, content_type: str, fields: Mapping[str, str], *block: bytes
) -> bytes:
    """Return a record as a gzip member. ``block``: its parts."""
    lines = [
        "WARC/1.1",
        f"WARC-Type: {kind}",
        f"WARC-Record-ID: {record_id}",
        f"WARC-Date: {date}",
        *[f"{name}: {value}" for name, value in fields.items()],
        f"Content-Type: {content_type}",
        f"Content-Length: {sum(map(len, block))}\r\n\r\n",
    ]
    record = b"".join(("\r\n".join(lines).encode(), *block, b"\r\n\r\n"))
    compressed: bytes = igzip.compress(record, _LEVEL, mtime=0)
    return compressed


def _http_message(response: Response) -> tuple[bytes, bytes]:
    """Return head and body of a response as HTTP/1.1, the only form that WARC 1.1 defines.

    Transfer codings were removed, and a body without its original bytes is decoded. The headers that describe these
    codings keep their values under another name.
    """
    raw = response.raw_headers
    if not raw:
        return _rebuilt_head(response), response.body
    body = response.body if response.wire_body is None else response.wire_body
    if not raw.startswith(b"HTTP/1."):
        status, _, fields = raw.partition(b"\n")
        raw = b"HTTP/1.1 " + status.partition(b" ")[2].rstrip(b"\r") + b"\r\n" + fields
    if b"\ntransfer-encoding:" in raw.lower():
        lines = [
            _ORIGINAL.encode() + line if line.lower().startswith(b"transfer-encoding:") else line
            for line in raw.rstrip(b"\r\n").split(b"\n")
        ]
        raw = b"\n".join(lines) + b"\r\nContent-Length: %d\r\n\r\n" % len(body)
    return raw, body


def _rebuilt_head(response: Response) -> bytes:
    lines = [f"HTTP/1.1 {response.status} "]
    for name, value in response.headers.items():
        lines.append(f"{_ORIGINAL if name.lower() in _OF_BODY else ''}{name}: {value}")
    lines.append(f"Content-Length: {len(response.body)}\r\n\r\n")
    return "\r\n".join(lines).encode("latin-1", "replace")


def _request_message(request: Request, defaults: Mapping[str, str]) -> bytes:
    url = request.url.partition("#")[0]
    host = url.partition("://")[2].partition("/")[0]
    lines = [f"{request.method} {url[url.find(host) + len(host) :]} HTTP/1.1", f"Host: {host}"]
    headers = {**defaults, **request.headers} if request.headers else defaults
    lines += [f"{name}: {value}" for name, value in headers.items() if name.lower() in _RECORDED_HEADERS]
    lines.append(f"Content-Length: {len(request.body)}\r\n\r\n" if request.body else "\r\n")
    return "\r\n".join(lines).encode("latin-1", "replace") + request.body
