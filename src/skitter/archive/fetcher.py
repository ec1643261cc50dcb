"""WarcFetcher: returns the responses in WARC files instead of using the network.

``fetcher=warc:FILE`` runs a spider on the responses of an earlier crawl. Files of other programs work too, because only
features of the standard are used (ISO 28500:2017).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import xxhash
from fastwarc.warc import ArchiveIterator, WarcRecord, WarcRecordType

from skitter._utils.concurrency import SingleThreadExecutor
from skitter.errors import FetchError, SettingsError
from skitter.fetch.contract import UNCONDITIONAL, BodyTooLarge, FetcherCapabilities, HeaderHook, SendPermit
from skitter.fetch.identity.contract import SourceContext
from skitter.fetch.tdmrep import SITE_FILES
from skitter.request import Request
from skitter.response import Response
from skitter.web.urls import normalize

_RESPONSES = WarcRecordType.response | WarcRecordType.resource | WarcRecordType.revisit
_BUFFER = 16 * 1024
"""Bytes that are read at a time to find one record."""
_Key = tuple[str, str, int]
"""Method, URL, and the hash of the body; see :func:`_key`."""


class NotArchived(FetchError):
    """The archive has no response to the request."""

    kind = "archive"
    retryable = False


class _Location(NamedTuple):
    """Where the latest response to a request is."""

    time: float
    file: int
    offset: int
    original: str = ""
    """For a ``revisit`` record, the URL whose response has the same body."""


class WarcFetcher:
    """Responds to each request with its latest response in one or more WARC files, separated by commas.

    A request without a response raises :class:`NotArchived`. A robots.txt that is not in the archive counts as
    missing, so everything is allowed. Nothing is sent to any server.
    """

    capabilities = FetcherCapabilities()

    def __init__(self, context: SourceContext) -> None:
        self._files = [Path(name) for name in context.rest.split(",") if name]
        if not self._files:
            raise SettingsError(
                "the fetcher warc names no file", remedy="write fetcher=warc:FILE", field="fetcher"
            )
        self._max_body = context.settings.max_body
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
        return await self._thread.run_short(self._read, location, request)

    async def close(self) -> None:
        """Stop the thread."""
        self._thread.stop()

    def _read(self, location: _Location, request: Request) -> Response:
        limit = request.max_body or self._max_body
        try:
            with self._files[location.file].open("rb") as file:
                file.seek(location.offset)
                records = ArchiveIterator(file, auto_decode="all", strict_mode=False, buffer_size=_BUFFER)
                record = next(iter(records))
                body = record.reader.read(limit + 1)
        except (OSError, ValueError, StopIteration) as error:
            raise NotArchived(f"the record cannot be read: {error}") from error
        if len(body) > limit:
            raise BodyTooLarge(f"the archived body is longer than {limit} bytes")
        return _response(record, body, request)

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
            for record in _records(path):
                url = record.headers.get("WARC-Target-URI") or ""
                if record.record_type == WarcRecordType.request:
                    if (key := _key_of_request(record, url)) is not None:
                        ids[record.headers.get("WARC-Concurrent-To") or ""] = key
                    continue
                key = known.get(record.record_id or "") or _key("GET", url)
                original = ""
                if record.record_type == WarcRecordType.revisit:
                    original = record.headers.get("WARC-Refers-To-Target-URI") or ""
                    if not original or key in index:
                        continue  # not modified: the full response is elsewhere in the archive
                date = record.record_date
                # Without a valid date, the record counts as the oldest.
                time = 0.0 if date is None else date.timestamp()
                location = _Location(time, number, record.stream_pos, original)
                before = index.get(key)
                if before is None or before.original or before.time <= location.time:
                    index[key] = location
        return index, ids


def _records(path: Path) -> Iterator[WarcRecord]:
    try:
        with path.open("rb") as file:
            yield from ArchiveIterator(
                file, record_types=_RESPONSES | WarcRecordType.request, parse_http=False, strict_mode=False
            )
    except OSError as error:
        raise SettingsError(
            f"cannot read the archive {path}: {error.strerror or error}",
            remedy="name a WARC file (.warc or .warc.gz)",
            field="fetcher",
        ) from error


def _key(method: str, url: str, body: bytes = b"") -> _Key:
    return method, normalize(url) or url, xxhash.xxh3_64_intdigest(body) if body else 0


def _key_of_request(record: WarcRecord, url: str) -> _Key | None:
    """Return the key of a request; ``None`` for GET."""
    head, _, body = record.reader.read().partition(b"\r\n\r\n")
    method = head.partition(b" ")[0].decode("latin-1")
    return None if method == "GET" else _key(method, url, body)


def _response(record: WarcRecord, body: bytes, request: Request) -> Response:
    if not record.is_http_parsed:  # a resource
        headers = {"Content-Type": record.headers.get("Content-Type") or ""}
        return Response(request.url, 200, headers=headers, body=body, request=request)
    http = record.http_headers
    lines = [http.status_line_bytes or b"", *(b"%s: %s" % field for field in http.items_bytes())]
    return Response(
        request.url,
        http.status_code or 0,
        headers=b"\r\n".join(lines) + b"\r\n\r\n",
        body=body,
        request=request,
        ip=record.headers.get("WARC-IP-Address") or "",
        protocol=record.headers.get("WARC-Protocol") or "",
    )
