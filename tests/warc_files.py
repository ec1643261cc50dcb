"""Reads WARC files with warcio, which is independent of skitter's writer, and writes archives as other programs do."""

import io
from typing import NamedTuple

from warcio.archiveiterator import ArchiveIterator
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter


class Record(NamedTuple):
    kind: str
    url: str
    headers: dict
    """Headers of the record."""
    status: str
    """The first line of the HTTP message, or an empty string."""
    fields: list
    """Headers of the HTTP message."""
    body: bytes
    """As recorded."""


def read_warc(data):
    """Return all records of a WARC file. An invalid digest is an error."""
    records = []
    for record in ArchiveIterator(io.BytesIO(data), check_digests="raise"):
        http = record.http_headers
        body = record.raw_stream.read()
        records.append(
            Record(
                record.rec_type,
                record.rec_headers.get_header("WARC-Target-URI") or "",
                dict(record.rec_headers.headers),
                "" if http is None else f"{http.protocol} {http.statusline}",
                [] if http is None else http.headers,
                body,
            )
        )
    return records


def of_kind(records, kind):
    return [record for record in records if record.kind == kind]


class ForeignArchive:
    """A WARC file as another program would write it."""

    def __init__(self):
        self._buffer = io.BytesIO()
        self._writer = WARCWriter(self._buffer, gzip=True)

    @property
    def data(self):
        return self._buffer.getvalue()

    def add(self, url, body, *, status="200 OK", date="2026-01-01T00:00:00Z", fields=(), request=None):
        """Add a response, and the request (method and body) that it answers."""
        http = StatusAndHeaders(status, [("Content-Type", "text/html"), *fields], protocol="HTTP/1.1")
        response = self._writer.create_warc_record(
            url,
            "response",
            payload=io.BytesIO(body),
            http_headers=http,
            warc_headers_dict={"WARC-Date": date},
        )
        if request is None:
            self._writer.write_record(response)
            return
        method, sent = request
        line = StatusAndHeaders(f"{method} / HTTP/1.1", [("Host", "a")], is_http_request=True)
        asked = self._writer.create_warc_record(url, "request", payload=io.BytesIO(sent), http_headers=line)
        self._writer.write_request_response_pair(asked, response)

    def add_revisit(self, url, original):
        """Add a record whose body was already recorded for another URL."""
        http = StatusAndHeaders("200 OK", [("Content-Type", "text/html")], protocol="HTTP/1.1")
        self._writer.write_record(
            self._writer.create_revisit_record(
                url, "sha1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", original, "2026-01-01T00:00:00Z", http
            )
        )

    def add_resource(self, url, body, content_type):
        self._writer.write_record(
            self._writer.create_warc_record(
                url, "resource", payload=io.BytesIO(body), warc_content_type=content_type
            )
        )
