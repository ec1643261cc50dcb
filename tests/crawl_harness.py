"""Runs crawls in tests: real workers crawl a real loopback site in the event loop of the test."""

import asyncio
from collections import Counter

from skitter.errors import CrawlFailed, StoreError
from skitter.frontier.embedded.frontier import EmbeddedFrontier
from skitter.frontier.rpc.client import remote_frontier
from skitter.frontier.rpc.server import FrontierServer
from skitter.item import encode_item
from skitter.run.builder import JobBuilder, RunOverrides
from skitter.run.job import JobSpec
from skitter.store.contract import GroupError
from skitter.testing import Answer

QUICK = {"retry_delay": 0.01, "connect_timeout": 20, "timeout": 60}
"""Crawls in tests use the default settings, including robots.txt and the adaptive delay, but retry sooner.

The timeouts end a test that hangs. They are longer than any pause of a busy machine, which would count as a failure.

"""


class Scripted:
    """A site that is defined by a dict of paths.

    A value is an :class:`Answer`, a list of hrefs (a page with these links), a function of the visit, or a tuple of
    these. A tuple gives one response after the other; the last one is repeated.
    """

    def __init__(self, pages):
        self._pages = pages
        self.visits = []
        """All visits in order, except requests for a robots.txt that the site does not have."""

    def __call__(self, visit):
        if visit.target == "/robots.txt" and visit.target not in self._pages:
            return Answer(b"", status=404)
        self.visits.append(visit)
        step = self._pages.get(visit.target, Answer(b"<title>Not found</title>", status=404))
        if isinstance(step, tuple):
            step = step[min(self.counts[visit.target], len(step)) - 1]
        if callable(step):
            step = step(visit)
        return page(*step) if isinstance(step, list) else step

    @property
    def counts(self):
        """Number of requests by path."""
        return Counter(visit.target for visit in self.visits)


def page(*hrefs, status=200, **fields):
    """Return an HTML page with links."""
    return Answer("".join(f'<a href="{href}">x</a>' for href in hrefs).encode(), status=status, **fields)


def redirect(location, status=302, **headers):
    return Answer(status=status, headers={"Location": location, **headers})


class MemoryStore:
    """A store in memory that all workers share: items by page."""

    buffering = None

    def __init__(self, groups):
        self._groups = groups

    async def open(self, context):
        pass

    async def write(self, groups):
        return [self._take(group) for group in groups]

    def _take(self, group):
        for index, item in enumerate(group.items):
            try:
                encode_item(item)
            except StoreError as error:
                return GroupError.of(error, index)
        self._groups[group.fingerprint] = list(group.items)
        return None

    async def close(self):
        pass


class CrawlReport:
    """The result of a crawl."""

    def __init__(self, state, failure, items, letters, status):
        self.state = state
        self.failure = failure
        self.items = items
        self.letters = letters
        """Error of each dead letter, by path."""
        self.status = status
        self.counters = status.counters


class CrawlHarness(JobBuilder):
    """Runs a job without the command line: ``ran = await CrawlHarness(spider, folder, delay=1).run(workers=2)``.

    ``frontier``: ``memory``, ``sqlite``, or ``socket`` (the workers share one SQLite frontier over a local socket).
    ``store``: replaces the store in memory. ``processes``: the number of workers that the job is configured for.
    """

    def __init__(self, spider, folder, *, frontier="memory", store=None, processes=1, **settings):
        spec = JobSpec(job="bench", spider="-", home=str(folder), workers=processes)
        super().__init__(spec, spider, RunOverrides(settings={**QUICK, **spider.custom_settings, **settings}))
        self.groups = {}
        """Items by page."""
        self.store = store
        self.frontier = None
        self._kind = frontier

    async def open_stores(self, worker):
        return [MemoryStore(self.groups) if self.store is None else self.store]

    async def run(self, workers=1):
        """Run workers until they end. A second call continues the same job."""
        context = self.frontier_context()
        if self._kind == "memory":
            self.frontier = self.frontier or EmbeddedFrontier(context.politeness, context.options)
            info = await self.frontier.open()
            return await self._finish(await self._work([self.frontier] * workers, info))
        await asyncio.to_thread(self.folder.path.mkdir, parents=True, exist_ok=True)
        path = self.folder.path / "frontier.db"
        self.frontier = EmbeddedFrontier(context.politeness, context.options, path=path)
        info = await self.frontier.open()
        try:
            if self._kind == "sqlite":
                return await self._finish(await self._work([self.frontier] * workers, info))
            return await self._over_socket(workers, info)
        finally:
            await self.frontier.close()

    async def _over_socket(self, workers, info):
        server = FrontierServer(self.frontier, info, self.folder.path / "s")
        await server.start()
        links = [remote_frontier(server.path, f"w{number}") for number in range(workers)]
        try:
            for link in links:
                await link.open()
            return await self._finish(await self._work(links, info))
        finally:
            for link in links:
                await link.close()
            await server.close()

    async def _work(self, frontiers, info):
        return await asyncio.gather(
            *(self.work(frontier, info, f"w{number}") for number, frontier in enumerate(frontiers)),
            return_exceptions=True,
        )

    async def _finish(self, ends):
        failures = [end for end in ends if isinstance(end, BaseException)]
        for failure in failures:
            if not isinstance(failure, CrawlFailed):
                raise failure
        status = await self.frontier.status()
        letters = {
            letter.url.partition("/")[2].partition("/")[2].partition("/")[2]: letter.reason
            for letter in await self.frontier.dead_letters.list(limit=10_000)
        }
        letters = {f"/{path}": error for path, error in letters.items()}
        items = [item for group in self.groups.values() for item in group]
        return CrawlReport(status.state, failures[0] if failures else None, items, letters, status)
