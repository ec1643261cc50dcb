"""MediaPipeline: downloads the files that items name, and completes the items.

If the files of a page are not stored yet, its items wait in the frontier in an *items request*, which is added with the
commit of the page. Additional *file requests* download the files at the same time. ``docs/design/media.md`` describes
the protocol.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec

from skitter._utils.backoff import Backoff
from skitter._utils.notes import Notes
from skitter.errors import UndecodableRecord, counted
from skitter.fetch.contract import BodySink, BodyTooLarge, Disconnected, UndecodableBody
from skitter.frontier.records import Entry, PageVisit, Resolution
from skitter.item import OutputRange, field_of, pack_items, unpack_items
from skitter.request import Request, decode_request, encode_request
from skitter.response import Response
from skitter.settings import Settings
from skitter.store.media import DraftSource, FileDraft, FileRecord, MediaStore, suffix_of
from skitter.web.headers import REDIRECTS, media_type, parse_length, strong_last_modified
from skitter.web.inflate import CODINGS, InflateError, Inflater
from skitter.web.urls import is_same_origin, normalize, origin_of, split_userinfo
from skitter.worker.links import LinkCollector
from skitter.worker.page import FILE, ITEMS, Page
from skitter.worker.retry import DONE, RetryDecision, redirected

log = logging.getLogger("skitter.crawl")

_IDENTITY = "skitter:files"
"""Key of ``meta`` that distinguishes the identity of these requests from the identity of a page with the same URL."""
_CLAIM_SECONDS = 6.0
"""Seconds after which the claim of a worker that downloads a file ends, unless it is renewed."""
_CLAIM_RETRY = 1.0
"""Seconds after which an items request checks again for a file that another worker is downloading."""
_OUTAGE_TIMEOUT = 600.0
"""Seconds to wait for a store that does not respond, as for outputs."""
_SMALL_BODY = 64 * 1024
_NO_RANGE = frozenset(
    {HTTPStatus.PARTIAL_CONTENT, HTTPStatus.PRECONDITION_FAILED, HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE}
)
"""Statuses with which a server refuses to continue a partial download. The file is then downloaded from the beginning."""
_T = TypeVar("_T")


class ItemFiles(msgspec.Struct, array_like=True, frozen=True):
    """The URLs in one field of an item."""

    item: int
    """Position of the item in its page."""
    field: str
    """Field for the results."""
    urls: list[str]


_CONDITIONS = {"etag": "If-None-Match", "last-modified": "If-Modified-Since"}
"""The conditional request header for each validator of a response."""


class FileWork(msgspec.Struct, frozen=True):
    """The data of a file request or an items request, stored in its ``cb_kwargs``."""

    since: float
    """Unix time at which the page was processed. Files stored after that time need no new download."""
    page: str = ""
    """URL of the page."""
    item_key: bytes = b""
    """The key under which keyed stores write the items of the page."""
    items: bytes = b""
    """The packed items of the page; empty for a file request."""
    files: list[ItemFiles] = []
    visit: PageVisit | None = None
    """The visit of the page, which is complete when the items are written."""


@dataclass
class Download:
    """The download of one file by one leased request."""

    url: str
    request: Request
    """The request as it was leased."""
    work: FileWork
    renewal: asyncio.Task[None]
    stored: FileRecord | None
    """The expired file of the URL, which the server may confirm."""
    part: FileDraft | None
    """The draft of an interrupted download, which the request continues."""
    drafting: asyncio.Future[FileDraft] | None = None
    sink: FileSink | None = None
    """Takes the body, if the response has the file."""
    head: Response | None = None
    """A response without the file, whose body was not read."""
    is_settled: bool = False
    """Whether the result is stored in the index."""


class FileSink:
    """Writes a body to a draft (an unfinished file), up to a maximum size, and decodes gzip and deflate."""

    def __init__(self, draft: FileDraft, limit: int, coding: str) -> None:
        self.draft = draft
        self._begin = draft.size
        self._limit = limit
        self._inflater = None
        if coding in CODINGS:
            self._inflater = Inflater(coding)
        elif coding not in {"", "identity"}:
            raise UndecodableBody(
                f"the server used the content coding {coding!r}, which the request did not accept"
            )

    @property
    def received(self) -> int:
        """Bytes that this response has added to the draft."""
        return self.draft.size - self._begin

    async def write(self, data: bytes) -> None:
        """Write a part of the body.

        Raises :class:`~skitter.errors.FetchError` for a file that cannot be used.
        """
        await asyncio.to_thread(self._write, data)

    async def finish(self) -> None:
        """Check that the file is complete."""
        if self._inflater is not None and not self._inflater.is_complete:
            raise UndecodableBody("truncated compressed data")
        source = self.draft.source
        if source is not None and source.length and self.draft.size != source.length:
            if self.draft.size > source.length:
                self.draft.source = None
            raise Disconnected(f"the file has {self.draft.size} bytes so far, and {source.length} in all")

    def _write(self, data: bytes) -> None:
        if self._inflater is None:
            self._append(data)
            return
        try:
            for part in self._inflater.feed(data):
                self._append(part)
        except InflateError as error:
            raise UndecodableBody(str(error)) from error

    def _append(self, data: bytes) -> None:
        if self.draft.size + len(data) > self._limit:
            self.draft.source = None
            raise BodyTooLarge(
                f"the file is larger than {self._limit} bytes",
                remedy="raise files_max_size",
                field="files_max_size",
            )
        self.draft.write(data)


class MediaPipeline:
    """The files of one worker.

    :meth:`hold` replaces the items of a page by requests. When one of these requests is leased, the worker calls
    :meth:`begin`, then :meth:`accept`, :meth:`receive` and :meth:`finish` if a file is to be downloaded, and
    :meth:`close`.

    ``sends_by_http``: whether the requests name the fetcher ``http``.
    """

    def __init__(
        self,
        store: MediaStore,
        settings: Settings,
        links: LinkCollector,
        notes: Notes,
        worker: str,
        *,
        sends_by_http: bool,
    ) -> None:
        self._store = store
        self._settings = settings
        self._links = links
        self._notes = notes
        self._worker = worker.encode()
        self._fetcher = "http" if sends_by_http else ""
        self._backoff = Backoff(f"files_store {store.place}", _OUTAGE_TIMEOUT)
        self._downloading: set[str] = set()

    # --- pages -----------------------------------------------------------------------------------------

    def hold(
        self, items: list[Any], request: Request, item_key: bytes, base_url: str, visit: PageVisit | None
    ) -> tuple[list[Any], list[Entry]]:
        """Hold back the items of a page that name files, and its visit.

        Return the items to write now, and the requests to add instead. One of the two is empty. Raises
        :class:`~skitter.errors.StoreError` for an item that cannot be stored.
        """
        wanted = [
            ItemFiles(index, result, [_normal(url, base_url) for url in urls])
            for index, item in enumerate(items)
            for field, result in self._settings.files_fields.items()
            if (urls := _urls_in(item, field)) is not None
        ]
        if not wanted:
            return items, []
        work = FileWork(time.time(), request.url, item_key, pack_items(items), wanted, visit)
        urls = _fetchable(work)
        if not urls:
            return self._complete(work, {}), []
        common = Request(
            "", callback=FILE, meta={**request.meta, _IDENTITY: "file"}, fingerprint_keys=(_IDENTITY,),
            priority=request.priority + 1, depth=request.depth + 1, referer=request.url, session=request.session,
            queue=request.queue, proxy=request.proxy, cb_kwargs={"work": _plain(FileWork(work.since))},
        )  # fmt: skip
        requests = [common.replace(url=url) for url in urls] if len(urls) > 1 else []
        requests.append(
            common.replace(
                url=urls[0], callback=ITEMS, dont_filter=True, cb_kwargs={"work": _plain(work)},
                meta={**request.meta, _IDENTITY: item_key},
            )
        )  # fmt: skip
        return [], [self._links.entry_of_file(file_request) for file_request in requests]

    def _complete(self, work: FileWork, found: dict[str, FileRecord]) -> list[Any]:
        """Return the items with their files."""
        items = unpack_items(work.items)
        for wanted in work.files:
            items[wanted.item][wanted.field] = [_result(url, found.get(url)) for url in wanted.urls]
        return list(items)

    # --- leases ----------------------------------------------------------------------------------------

    async def begin(self, page: Page) -> bool:
        """Begin the download of a missing file, or complete the items if all of their files are known.

        Return whether there is a file to download. Then ``page.request`` is the request to send for it. Raises
        :class:`~skitter.errors.UndecodableRecord` for a request without the data of its files.
        """
        request, slot = page.request, page.lease.slot
        work = _work_of(request)
        found, missing = await self._find_all(request, work)
        if page.lease.attempt and missing:
            if request.url not in missing:  # the attempts so far were for a file that is now stored
                page.entries.append(self._again(request, missing[0]))
                return False
            missing = [request.url]  # the attempts of a request count for one file only
        if missing and self._is_here(request, slot, missing):
            page.download = await self._begin_download(request, slot, work, missing)
            if page.download is not None:
                page.request = self._request_of(request, page.download)
                return True
            if work.items:
                text = "file: another worker downloads it"
                page.finish(RetryDecision(Resolution.RETRY, text, _CLAIM_RETRY, free=True))
        elif missing:
            page.entries.append(self._again(request, missing[0]))
        elif work.items:
            self._complete_items(page, request, work, found)
        return False

    async def accept(self, download: Download, response: Response) -> bool | BodySink:
        """Decide by the headers how to treat a body: a file is written to the store, a long error page is not read."""
        coding = response.header("content-encoding").strip().lower()
        part = download.part
        if response.status == HTTPStatus.PARTIAL_CONTENT and part is not None:
            if _continues(part, response):
                download.sink = FileSink(part, self._settings.files_max_size, "")
                return download.sink
            download.head = response
            return False
        if response.status in {200, 203}:
            await self._start_over(download)
            # If the transfer fails in the meantime, this call is cancelled, but not its thread: close() removes the
            # draft.
            download.drafting = asyncio.ensure_future(asyncio.to_thread(self._store.draft))
            draft = await asyncio.shield(download.drafting)
            draft.source = _source_of(response, coding)
            download.sink = FileSink(draft, self._settings.files_max_size, coding)
            return download.sink
        length = parse_length(response.header("content-length"))
        if length is not None and length <= _SMALL_BODY:
            return True
        download.head = response
        return False

    async def receive(self, page: Page, response: Response) -> bool:
        """Store a downloaded file, or record the response that the server sent instead.

        Return ``False`` for an error status. Raises :class:`~skitter.errors.RedirectError` for a redirect that
        cannot be followed.
        """
        download = page.download
        assert download is not None
        if response.status in REDIRECTS:
            target = redirected(page.request, response, self._settings.max_redirects).url
            page.count("redirects")
            page.entries.append(await self._moved(download, page.request, target))
        elif download.sink is not None:
            page.count("bytes", await self._keep(download, download.sink, response))
            page.count("files")
            if response.status == HTTPStatus.PARTIAL_CONTENT:
                page.count("files/continued")
        elif response.status == HTTPStatus.NOT_MODIFIED and download.stored is not None:
            await self._settle(download, msgspec.structs.replace(download.stored, at=time.time()))
            page.count("files/unchanged")
        elif response.status in _NO_RANGE and download.part is not None:
            await self._start_over(download)
            text = f"range: status {response.status} does not continue the file"
            page.finish(RetryDecision(Resolution.RETRY, text, free=True))
        else:
            return False
        return True

    async def finish(self, page: Page) -> None:
        """Decide how the lease of a download ends, and complete the items if it was their last file.

        A file that cannot be downloaded is a result, too.
        """
        download, before = page.download, page.decision
        assert download is not None
        decision = await self._decide(download, before)
        if decision is not before:
            page.revise(decision)
            page.count("files/failed")
            log.warning("%s: no file: %s", download.url, before.error or "refused by robots.txt or a hook")
        request, work = download.request, download.work
        if work.items and page.decision is DONE:
            found, missing = await self._find_all(request, work)
            if missing:
                page.entries.append(self._again(request, missing[0]))
            else:
                self._complete_items(page, request, work, found)

    async def close(self, page: Page) -> None:
        """Release the resources of a request for files."""
        download = page.download
        if download is not None:
            download.renewal.cancel()
            self._downloading.discard(download.url)
            # Release it even if the request is cancelled, as at the end of a failed run.
            await asyncio.shield(self._release(download))

    async def _find_all(self, request: Request, work: FileWork) -> tuple[dict[str, FileRecord], list[str]]:
        """Return the stored files of a request by their URLs, and the URLs that have to be downloaded."""
        return await self._call(self._find, _fetchable(work) if work.items else [request.url], work.since)

    def _find(self, urls: Sequence[str], since: float) -> tuple[dict[str, FileRecord], list[str]]:
        found, missing = {}, []
        for url in urls:
            place, record = url, self._store.find([url], since).get(url)
            for _ in range(self._settings.max_redirects):
                if record is None or not record.moved:
                    break
                place = record.moved
                record = self._store.find([place], since).get(place)
            if record is None:
                missing.append(place)
            elif record.moved:
                found[url] = FileRecord(
                    url, record.at, error=f"more than {counted(self._settings.max_redirects, 'redirect')}"
                )
            else:
                found[url] = record
        return found, list(dict.fromkeys(missing))

    def _complete_items(
        self, page: Page, request: Request, work: FileWork, found: dict[str, FileRecord]
    ) -> None:
        """Add the items that waited for their files, which are now all known, to a page."""
        if work.visit is not None and not self._is_here(request, page.lease.slot, [work.page]):
            # Only the page's own slot can hold its visit.
            page.entries.append(self._again(request, work.page))
            return
        items = self._complete(work, found)
        if self._settings.files_required and (error := _first_error(items, work)):
            page.finish(RetryDecision(Resolution.FAILED, error))
            return
        page.items, page.item_key, page.has_output, page.visit = items, work.item_key, True, work.visit
        page.request = page.request.replace(url=work.page)
        page.response = Response(work.page, request=page.request)
        page.count("pages")
        page.count("items", len(items))

    def _is_here(self, request: Request, slot: str, urls: Sequence[str]) -> bool:
        """Return whether any of the URLs is in the slot of the lease."""
        return any(self._links.slot_of(url, request.queue) == slot for url in urls)

    def _again(self, request: Request, url: str) -> Entry:
        """Return an items request for the slot of another URL."""
        return self._links.entry_of_file(request.replace(url=url, dont_filter=True))

    # --- downloads -------------------------------------------------------------------------------------

    async def _begin_download(
        self, request: Request, slot: str, work: FileWork, missing: Sequence[str]
    ) -> Download | None:
        """Begin the download of a missing file on the host of the lease.

        Return ``None`` if other workers have downloaded or are downloading all of them.
        """
        for url in sorted(missing, key=lambda url: url != request.url):  # the URL of the lease first
            if url in self._downloading or self._links.slot_of(url, request.queue) != slot:
                continue
            self._downloading.add(url)
            download = None
            try:
                download = await self._claimed_download(url, request, work)
            finally:
                if download is None:
                    self._downloading.discard(url)
            if download is not None:
                return download
        return None

    async def _claimed_download(self, url: str, request: Request, work: FileWork) -> Download | None:
        """Return the download of a file; ``None`` if another worker downloads it, or has stored it since the lookup."""
        if not await self._claim(url) or not (await self._call(self._find, [url], work.since))[1]:
            return None
        stored = await self._call(self._store.stored, url)
        part = await self._call(self._store.resume, url)
        # Create the task last: if the request is cancelled earlier, no task is left that renews the claim.
        return Download(url, request, work, asyncio.create_task(self._renew(url)), stored, part)

    def _request_of(self, request: Request, download: Download) -> Request:
        """Return the request to send for a file.

        It asks for the rest if an earlier request was interrupted (RFC 9110, sections 14.2 and 13.1.5), and is
        conditional if the store has the file (section 13.1).
        """
        url = download.url
        headers = {"Accept": "*/*", "Accept-Encoding": "identity", **_referer(request.referer or "", url)}
        part = download.part
        if part is not None and part.source is not None:
            headers |= {"Range": f"bytes={part.size}-", "If-Range": part.source.validator}
        elif download.stored is not None:
            validators = download.stored.validators
            headers |= {name: validators[key] for key, name in _CONDITIONS.items() if key in validators}
        return request.replace(
            url=url, headers=headers, fetcher=self._fetcher, timeout=self._settings.files_timeout,
            max_body=self._settings.files_max_size, truncate_body=False,
        )  # fmt: skip

    async def _start_over(self, download: Download) -> None:
        """Discard the data that an earlier request has downloaded."""
        part, download.part = download.part, None
        if part is not None:
            await asyncio.to_thread(part.discard)

    async def _keep(self, download: Download, sink: FileSink, response: Response) -> int:
        """Store a downloaded file. Return the number of bytes of the response."""
        await sink.finish()
        draft = sink.draft
        kind = media_type(response.header("content-type")).name
        validators = {name: value for name in _CONDITIONS if (value := response.header(name))}
        if draft is download.part and draft.source is not None:  # a 206 response may omit these headers
            kind, validators = draft.source.type, draft.source.validators | validators
        suffix = await self._suffix(draft.checksum, suffix_of(download.url, kind))
        await self._call(self._store.keep, draft, download.url, kind, suffix, validators)
        download.is_settled = True
        return sink.received

    async def _suffix(self, checksum: str, suffix: str) -> str:
        """Return the file suffix for a content. All workers use the suffix of the first one."""
        stored: str | None = await self._call(self._store.stored_suffix, checksum)
        if stored is not None:
            return stored
        key = f"skitter:file-suffix:{checksum}"
        if await self._notes.compare_and_swap(key, None, suffix.encode(), _OUTAGE_TIMEOUT):
            return suffix
        first = await self._notes.get(key)
        return suffix if first is None else first.decode()

    async def _moved(self, download: Download, request: Request, target: str) -> Entry:
        """Record a redirect. Return a request for its target."""
        await self._settle(download, FileRecord(download.url, time.time(), moved=target))
        return self._links.entry_of_file(
            request.replace(
                url=target, callback=FILE, dont_filter=False, meta={**request.meta, _IDENTITY: "file"},
                cb_kwargs={"work": _plain(FileWork(download.work.since))},
            )
        )  # fmt: skip

    async def _decide(self, download: Download, decision: RetryDecision) -> RetryDecision:
        """Return how the lease of a download ends, and record a failure that is not retried."""
        if download.is_settled or decision.resolution is Resolution.RETRY:
            return decision
        error = decision.error or "refused: by robots.txt or a hook"
        if self._settings.files_required:
            failed = RetryDecision(Resolution.FAILED, error)
            return failed if download.work.items else DONE  # the items request will try again
        await self._settle(download, FileRecord(download.url, time.time(), error=error))
        return DONE

    async def _settle(self, download: Download, record: FileRecord) -> None:
        """Store the result of a download in the index."""
        await self._call(self._store.remember, record)
        download.is_settled = True

    async def _release(self, download: Download) -> None:
        drafting = download.drafting
        for draft in (None if drafting is None else await drafting, download.part):
            if draft is None:
                continue
            if download.is_settled:
                draft.source = None
            await asyncio.to_thread(self._store.suspend, draft, download.url)

    # --- claims ----------------------------------------------------------------------------------------

    async def _claim(self, url: str) -> bool:
        """Return whether this worker is to download a file now. A claim only saves work: two downloads do no harm."""
        key = _claim_key(url)
        if await self._notes.compare_and_swap(key, None, self._worker, _CLAIM_SECONDS):
            return True
        return await self._notes.get(key) == self._worker

    async def _renew(self, url: str) -> None:
        key = _claim_key(url)
        while True:
            await asyncio.sleep(_CLAIM_SECONDS / 3)
            with suppress(Exception):  # the next renewal, or the lease itself, reports the error
                await self._notes.compare_and_swap(key, self._worker, self._worker, _CLAIM_SECONDS)

    async def _call(self, function: Callable[..., _T], /, *arguments: object) -> _T:
        """Call a method of the store in a thread. While the store does not respond, try again."""
        return await self._backoff.call(lambda: asyncio.to_thread(function, *arguments))


_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,19})-[0-9]{1,19}/([0-9]{1,19}|\*)", re.IGNORECASE).fullmatch


def _source_of(response: Response, coding: str) -> DraftSource | None:
    """Return the data that a later request needs to continue this response.

    ``None`` if that request could not verify that the content is the same.
    """
    validator = response.header("etag")
    if not validator:
        validator = strong_last_modified(response.header("last-modified"), response.header("date"))
    elif not validator.startswith('"'):  # weak
        return None
    if not validator or coding not in {"", "identity"} or response.header("accept-ranges").lower() == "none":
        return None
    return DraftSource(
        validator,
        media_type(response.header("content-type")).name,
        {name: value for name in _CONDITIONS if (value := response.header(name))},
        parse_length(response.header("content-length")) or 0,
    )


def _continues(part: FileDraft, response: Response) -> bool:
    """Return whether a 206 response continues a draft.

    It must have the same content (RFC 9110, 15.3.7.3) and start where the draft ends.
    """
    source, found = part.source, _CONTENT_RANGE(response.header("content-range").strip())
    if source is None or found is None or response.header("content-encoding").lower() not in {"", "identity"}:
        return False
    if int(found[1]) != part.size or (source.length and found[2] not in {"*", str(source.length)}):
        return False
    before = source.validators
    return all(response.header(name) in {"", before.get(name, "")} for name in _CONDITIONS)


def _referer(page: str, url: str) -> dict[str, str]:
    """Return the ``Referer`` that browsers send for a file of a page (policy ``strict-origin-when-cross-origin``)."""
    if page.startswith("https:") and not url.startswith("https:"):
        return {}
    return {"Referer": page if is_same_origin(page, url) else f"{origin_of(page)}/"}


def _claim_key(url: str) -> str:
    return f"skitter:file:{url}"


def _work_of(request: Request) -> FileWork:
    """Return the data of a leased request for files. Raises :class:`~skitter.errors.UndecodableRecord`."""
    try:
        return msgspec.convert(request.cb_kwargs["work"], FileWork)
    except (KeyError, msgspec.ValidationError) as error:
        raise UndecodableRecord(f"not a request for a file: {error}") from error


def with_ranges(items_request: Entry, ranges: list[OutputRange]) -> Entry:
    """Return an items request that adds ranges to the visit of its page."""
    request = decode_request(items_request.url, items_request.record)
    work = _work_of(request)
    assert work.visit is not None
    work = msgspec.structs.replace(work, visit=msgspec.structs.replace(work.visit, ranges=ranges))
    record = encode_request(request.replace(cb_kwargs={"work": _plain(work)}))
    return msgspec.structs.replace(items_request, record=record)


def _plain(work: FileWork) -> Any:
    return msgspec.to_builtins(work, builtin_types=(bytes,))


def _urls_in(item: Any, field: str) -> list[str] | None:
    """Return the URLs in a field of an item; ``None`` if it has no such field. A null value in a list is an empty URL."""
    value = field_of(item, field)
    if value is None:
        return None
    return [value] if isinstance(value, str) else ["" if url is None else str(url) for url in value]


def _normal(url: str, base_url: str) -> str:
    """Return the normalized form of a URL; the URL itself if it is invalid.

    An empty URL and a fragment are invalid: they mean the page itself, as in the ``src`` of an image without a source.
    """
    if not url.strip() or url.lstrip().startswith("#"):
        return url
    joined = normalize(url, base_url)
    if joined is None or not joined.startswith(("http://", "https://")):
        return url
    return split_userinfo(joined)[0].partition("#")[0]


def _fetchable(work: FileWork) -> list[str]:
    urls = dict.fromkeys(url for wanted in work.files for url in wanted.urls)
    return [url for url in urls if url.startswith(("http://", "https://"))]


def _first_error(items: Sequence[Any], work: FileWork) -> str:
    """Return the first error among the files of completed items; empty if all files are stored."""
    results = [result for wanted in work.files for result in items[wanted.item][wanted.field]]
    return next((f"file: {result['url']}: {result['error']}" for result in results if "error" in result), "")


def _result(url: str, record: FileRecord | None) -> dict[str, Any]:
    """Return the entry of an item about one of its files."""
    if record is None:
        return {"url": url, "error": "not an http(s) URL"}
    if record.error:
        return {"url": url, "error": record.error}
    result = {
        "url": url, "path": record.path, "checksum": record.checksum, "size": record.size, "type": record.type,
    }  # fmt: skip
    return {**result, "thumbnails": record.thumbnails} if record.thumbnails else result
