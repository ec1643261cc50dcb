"""SeedParser: reads seeds that users and programs add to a job, and checks them as its workers would."""

from __future__ import annotations

from collections.abc import Iterable

from skitter.fetch.address_guard import AddressGuard
from skitter.frontier.records import Entry
from skitter.request import Request
from skitter.run.builder import JobBuilder
from skitter.run.job import JobFolder
from skitter.run.job_access import OpenFrontier
from skitter.scope import Scope
from skitter.settings import api_settings
from skitter.worker.links import LinkCollector
from skitter.worker.seeds import checked_entry, read_seed


class SeedParser:
    """Turns the text of seeds into entries for the frontier of a job.

    ``priority``, ``callback`` and ``queue`` are the defaults for seeds that do not set them.
    ``trusted``: whether a seed may name a proxy, whose address the address guard does not check, or a fetcher by the path of
    its code, and exceed the largest body that API users may set.
    """

    def __init__(
        self,
        folder: JobFolder,
        opened: OpenFrontier,
        *,
        priority: int = 0,
        callback: str | None = None,
        queue: str = "",
        trusted: bool = True,
    ) -> None:
        self._priority = priority
        self._callback = callback
        self._queue = queue
        self._is_trusted = trusted
        self._guard = AddressGuard(notes=opened.frontier.notes)
        self._spider: object | None = None
        """``None`` if this machine does not know the spider of the job."""
        spec = folder.read()
        if spec.spider:
            spec.reads_references = False  # nothing is fetched
            builder = JobBuilder(spec)
            self._spider = builder.spider
            self._links = builder.link_collector(opened.info)
            self._guard = builder.guard(opened.frontier.notes)
        else:
            assert opened.frontier.politeness is not None
            self._links = LinkCollector(Scope(), opened.frontier.politeness, opened.info.fingerprint_seed)

    async def open_networks(self, entries: Iterable[Entry]) -> None:
        """Open the networks of seeds for the workers of the job. Call it before adding the entries."""
        await self._guard.open_for_seeds(entry.url for entry in entries)

    def entry(self, text: bytes | str) -> Entry | str:
        """Return the entry of a seed, or the reason to refuse it.

        Raises :class:`~skitter.errors.RequestError` for a seed that cannot be read.
        """
        request = read_seed(text, priority=self._priority)
        if not self._is_trusted and (refusal := _refusal(request)) is not None:
            return refusal
        changes = {}
        if request.callback is None and self._callback is not None:
            changes["callback"] = self._callback
        if self._queue and not request.queue:
            changes["queue"] = self._queue
        if changes:
            request = request.replace(**changes)
        return checked_entry(request, self._spider, self._links)


def _refusal(request: Request) -> str | None:
    """Return the reason to refuse a seed that is not trusted."""
    if request.proxy is not None:
        return "a seed cannot name a proxy here"
    if ":" in request.fetcher:
        return "a seed cannot name a fetcher by its path here"
    largest = api_settings()["max_body"]
    if largest is not None and (request.max_body or 0) > largest:
        return f"the max_body of a seed can be at most {largest} here"
    return None
