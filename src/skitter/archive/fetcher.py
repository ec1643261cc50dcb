"""WarcFetcher: returns the responses in WARC files instead of using the network.

``fetcher=warc:FILE`` runs a spider on the responses of an earlier crawl. Files of other programs work too, because only
features of the standard are used (ISO 28500:2017).
"""

from __future__ import annotations

import gzip
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import xxhash
from fastwarc.warc import ArchiveIterator, WarcRecord, WarcRecordType

from skitter._utils.concurrency import SingleThreadExecutor
from skitter.archive.messages import NotArchived, decode_message, split_message
from skitter.errors import SettingsError
from skitter.fetch.contract import UNCONDITIONAL, FetcherCapabilities, HeaderHook, SendPermit
from skitter.fetch.identity.contract import SourceContext
from skitter.fetch.tdmrep import SITE_FILES
from skitter.fetch.transfer import cuts_body
from skitter.request import Request
from skitter.response import Response
from skitter.web.headers import THROTTLED
from skitter.web.inflate import GZIP_MAGIC
from skitter.web.urls import normalize

log = logging.getLogger("skitter.crawl")

_RESPONSES = WarcRecordType.response | WarcRecordType.resource | WarcRecordType.revisit
_BUFFER = 16 * 1024
"""Bytes that are read at a time to find one record."""
_PIECE = 1 << 16
_RECORD_END = 4
"""Length of the two empty lines after a record."""
_SERVER_ERROR = 500
_MAX_HEAD = 1 << 20
"""Maximum number of bytes of the status line and the headers of a response."""
_Key = tuple[str, str, int]
"""Method, URL, and the hash of the body; see :func:`_key`."""


class _Location(NamedTuple):
    """Where the latest response to a request is."""

    time: float
    file: int
    offset: int
    original: str = ""
    """For a ``revisit`` record, the URL whose response has the same body."""


class WarcFetcher:
    """Responds to each request with its latest response in one or more WARC files, separated by commas.

    A request without a response raises :class:`NotArchived`. A robots.txt that is not in the archive, or that the server
    failed to send, counts as missing, so everything is allowed. Nothing is sent to any server.
    """

    capabilities = FetcherCapabilities()

    def __init__(self, context: SourceContext) -> None:
        self._files = [Path(name) for name in context.rest.split(",") if name]
        if not self._files:
            raise SettingsError(
                "the fetcher warc names no file", remedy="write fetcher=warc:FILE", field="fetcher"
            )
        self._settings = context.settings
        self._index: dict[_Key, _Location] = {}
        self._thread = SingleThreadExecutor("warc")

    async def open(self) -> None:
        """Read the files once to index their responses.

        Raises :class:`~skitter.errors.SettingsError` for a file that cannot be read or holds no responses.
        """
        self._index = await self._thread.run(self._read_index)

    async def fetch(
        self,
        request: Request,
        *,
        permit: SendPermit = UNCONDITIONAL,  # noqa: ARG002 - no server is asked
        on_headers: HeaderHook | None = None,  # noqa: ARG002 - the capabilities exclude it
    ) -> Response:
        """Return the latest response of the archive. Raises :class:`NotArchived`."""
        key = _key(request.method, request.url, request.body)
        location = self._index.get(key)
        if location is not None and location.original:
            location = self._index.get(_key("GET", location.original))
        if location is None:
            if request.url.endswith(SITE_FILES):
                return Response(request.url, 404, request=request)
            raise NotArchived("the archive has no response to this request")
        response = await self._thread.run_short(self._read, location, request)
        failed = response.status >= _SERVER_ERROR or response.status in THROTTLED
        if failed and request.url.endswith(SITE_FILES):
            return Response(request.url, 404, request=request)
        return response

    async def close(self) -> None:
        """Stop the thread."""
        self._thread.stop()

    def _read(self, location: _Location, request: Request) -> Response:
        limit = request.max_body or self._settings.max_body
        room = 2 * limit + _MAX_HEAD  # the coding of a body may be longer than the body
        try:
            with self._files[location.file].open("rb") as file:
                file.seek(location.offset)
                record = next(iter(ArchiveIterator(file, parse_http=False, buffer_size=_BUFFER)))
                block = record.reader.read(room)
        except (OSError, ValueError, StopIteration) as error:
            raise NotArchived(f"the record cannot be read: {error}") from error
        if len(block) < min(record.content_length, room):
            raise NotArchived(
                f"the record is cut off after {len(block):,} of its {record.content_length:,} bytes"
            )
        return self._response(record, block, request, limit)

    def _response(self, record: WarcRecord, block: bytes, request: Request, limit: int) -> Response:
        headers: dict[str, str] | bytes
        if record.is_http:
            status, headers, body = split_message(block)
        else:  # a resource
            status, headers, body = 200, {"Content-Type": record.headers.get("Content-Type") or ""}, block
        response = Response(
            request.url, status, headers=headers, body=body, request=request,
            ip=record.headers.get("WARC-IP-Address") or "", protocol=record.headers.get("WARC-Protocol") or "",
        )  # fmt: skip
        response.is_archived = True
        response.is_truncated = bool(record.headers.get("WARC-Truncated"))
        decode_message(
            response,
            limit,
            cuts=response.is_truncated or cuts_body(request, self._settings),
            needs_body=response.ok or status in self._settings.allowed_statuses,
        )
        return response

    def _read_index(self) -> dict[_Key, _Location]:
        index, ids = self._scan({})
        if ids:  # for responses to requests other than GET, the keys are known only now
            index, _ = self._scan(ids)
        if not index:
            raise SettingsError(
                f"no responses in {', '.join(map(str, self._files))}",
                remedy="name a WARC file that holds response records",
                field="fetcher",
            )
        return index

    def _scan(self, known: dict[str, _Key]) -> tuple[dict[_Key, _Location], dict[str, _Key]]:
        """Return the locations of all responses, and the keys of requests other than GET by the ids of their responses.

        ``known``: these keys, from an earlier scan.
        """
        index: dict[_Key, _Location] = {}
        ids: dict[str, _Key] = {}
        for number, path in enumerate(self._files):
            last = -1
            for record in _records(path):
                if record.stream_pos == last:
                    raise SettingsError(
                        f"the archive {path} is compressed as a whole, so its records cannot be found one by one",
                        remedy="decompress it (gunzip), and name the .warc file",
                        field="fetcher",
                    )
                last = record.stream_pos
                url = _uri(record, "WARC-Target-URI")
                if record.record_type == WarcRecordType.request:
                    if (key := _key_of_request(record, url)) is not None:
                        ids[record.headers.get("WARC-Concurrent-To") or ""] = key
                    continue
                key = known.get(record.record_id or "") or _key("GET", url)
                original = ""
                if record.record_type == WarcRecordType.revisit:
                    original = _uri(record, "WARC-Refers-To-Target-URI")
                    if not original or key in index:
                        continue  # not modified: the full response is elsewhere in the archive
                date = record.record_date
                # Without a valid date, the record counts as the oldest.
                time = 0.0 if date is None else date.timestamp()
                location = _Location(time, number, record.stream_pos, original)
                before = index.get(key)
                if before is None or before.original or before.time <= location.time:
                    index[key] = location
            if last >= 0 and not known and _is_cut_off(path, last):
                log.warning("the archive %s ends within a record, so responses may be missing", path)
        return index, ids


def _records(path: Path) -> Iterator[WarcRecord]:
    try:
        with path.open("rb") as file:
            yield from ArchiveIterator(
                file, record_types=_RESPONSES | WarcRecordType.request, parse_http=False
            )
    except OSError as error:
        raise SettingsError(
            f"cannot read the archive {path}: {error.strerror or error}",
            remedy="name a WARC file (.warc or .warc.gz)",
            field="fetcher",
        ) from error


def _is_cut_off(path: Path, offset: int) -> bool:
    """Return whether a file ends within a record. ``offset``: the start of its last response or request."""
    end = b""
    with path.open("rb") as file:
        file.seek(offset)
        start = file.read(len(GZIP_MAGIC))
        file.seek(offset)
        if not start.startswith((GZIP_MAGIC, b"WA")):  # another compression
            return False
        stream = gzip.GzipFile(fileobj=file) if start == GZIP_MAGIC else file
        try:
            while piece := stream.read(_PIECE):
                end = (end + piece)[-_RECORD_END:]
        except (EOFError, gzip.BadGzipFile):
            return True
    return not end.endswith((b"\r\n\r\n", b"\n\n"))


def _uri(record: WarcRecord, name: str) -> str:
    """Return a URI among the headers of a record. WARC 1.0 puts it between ``<`` and ``>``, and GNU Wget does so."""
    return (record.headers.get(name) or "").removeprefix("<").removesuffix(">")


def _key(method: str, url: str, body: bytes = b"") -> _Key:
    return method, normalize(url) or url, xxhash.xxh3_64_intdigest(body) if body else 0


def _key_of_request(record: WarcRecord, url: str) -> _Key | None:
    """Return the key of a request; ``None`` for GET."""
    head, _, body = record.reader.read().partition(b"\r\n\r\n")
    method = head.partition(b" ")[0].decode("latin-1")
    return None if method == "GET" else _key(method, url, body)
