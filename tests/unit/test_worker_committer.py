"""Committer: items before commits. If a store fails, the crawl fails without any loss."""

import asyncio
import logging

import pytest

from crawl_harness import CrawlHarness, MemoryStore, Scripted
from skitter import Request, Spider
from skitter.errors import FrontierError, StoreError
from skitter.frontier.embedded.frontier import EmbeddedFrontier
from skitter.frontier.records import JobState, Outcome, Resolution
from skitter.links import Links
from skitter.testing import Answer
from skitter.worker import committer

PAGES = {"/": [f"/{number}" for number in range(10)], **{f"/{number}": [] for number in range(10)}}


class Follower(Spider):
    async def start(self):
        yield Request(self.url)

    def parse(self, response):
        yield {"url": response.url}
        yield response.follow_all("a")


class FullOnce(MemoryStore):
    """Has no space at the first write of more than the front page."""

    def __init__(self, groups):
        super().__init__(groups)
        self.writes = 0

    async def write(self, groups):
        self.writes += 1
        if self.writes == 2:
            raise StoreError("cannot write items: the disk is full", remedy="free some space")
        return await super().write(groups)


@pytest.fixture
def make_crawl(serve, tmp_path):
    def make(pages=PAGES, spider=Follower, **settings):
        site = Scripted(pages)
        made = CrawlHarness(spider(url=serve(site).url), tmp_path, **settings)
        made.site = site
        return made

    return make


async def test_a_store_that_fails_fails_the_crawl_and_a_rerun_loses_nothing(make_crawl):
    crawl = make_crawl()
    crawl.store = FullOnce(crawl.groups)
    ran = await crawl.run()
    assert str(ran.failure) == "cannot write items: the disk is full"
    assert ran.failure.remedy == "free some space"
    assert (ran.status.done, ran.status.leased, len(ran.items)) == (1, 0, 1)
    assert ran.letters == {}
    again = await crawl.run()
    assert (again.state, len(again.items), again.counters["items"]) == (JobState.FINISHED, 11, 11)


async def test_items_are_durable_before_their_page_is_committed(make_crawl):
    crawl = make_crawl()
    context = crawl.frontier_context()

    class Checking(EmbeddedFrontier):
        async def commit(self, outcomes):
            committed = (await self.status()).done + len(outcomes)
            assert len(crawl.groups) >= committed
            return await super().commit(outcomes)

    crawl.frontier = Checking(context.politeness, context.options)
    assert len((await crawl.run()).items) == 11


@pytest.mark.parametrize("queued", [None, 5_000])
async def test_very_many_links_of_a_page_enter_the_queue_in_parts(make_crawl, queued):
    class Listing(Follower):
        def parse(self, response):
            return Links(response.url, [f"/{number}" for number in range(9_000)], {})

    crawl = make_crawl(spider=Listing, max_pages=1, max_queued=queued)
    context = crawl.frontier_context()
    calls = []

    class Counting(EmbeddedFrontier):
        async def add(self, entries, seeds=None):
            calls.append(len(entries))
            return await super().add(entries, seeds)

        async def commit(self, outcomes):
            calls.append(sum(len(outcome.entries) for outcome in outcomes))
            return await super().commit(outcomes)

    crawl.frontier = Counting(context.politeness, context.options)
    ran = await crawl.run()
    assert ran.status.added == 9_001
    assert calls[:4] == [1, 2_000, 2_000, 2_000]
    if queued is None:
        assert max(calls) <= 2_000


async def test_the_late_commit_of_a_taken_over_page_is_reported_and_discarded(
    make_crawl, caplog, monkeypatch
):
    monkeypatch.setattr(logging.getLogger("skitter"), "propagate", True)

    class Slow(Follower):
        async def parse(self, response):
            # As if the worker had been stopped for longer than its lease.
            frontier = crawl.frontier
            if response.url.endswith("/3") and not taken:
                (held,) = [one for one in frontier._leases if one.row.url == response.url]
                taken.append(await frontier.commit([Outcome(held.id, Resolution.RETRY, error="lost: away")]))
                while (await frontier.status()).counters.get("pages", 0) < 10:
                    await asyncio.sleep(0.01)
            return [{"url": response.url}, response.follow_all("a")]

    taken = []
    crawl = make_crawl({**PAGES, "/3": ([], Answer(delay=0.3))}, Slow)
    ran = await crawl.run()
    assert taken == [[True]]
    assert any(
        record.message.startswith("late: http") and "/3 " in record.message for record in caplog.records
    )
    assert (ran.state, ran.counters["items"], ran.counters["pages"]) == (JobState.FINISHED, 11, 11)


async def test_a_page_whose_items_cannot_be_written_follows_no_links_and_counts_nothing(make_crawl):
    class Bad(Follower):
        def parse(self, response):
            yield {"url": response.url} if response.url.endswith("/") else {"url": object()}
            yield response.follow_all("a")

    ran = await make_crawl({"/": ["/bad"], "/bad": ["/hidden"], "/hidden": []}, Bad).run()
    assert list(ran.letters) == ["/bad"]
    assert (ran.counters["pages"], ran.counters["items"], ran.counters["links"]) == (1, 1, 1)
    assert ran.counters["failed/store"] == 1


async def test_many_pages_are_committed_together(make_crawl):
    crawl = make_crawl(
        {"/": [f"/{n}" for n in range(100)], **{f"/{n}": Answer(b"x") for n in range(100)}},
        concurrency_per_slot=64,
    )
    context = crawl.frontier_context()

    class Counting(EmbeddedFrontier):
        commits = 0

        async def commit(self, outcomes):
            Counting.commits += 1
            return await super().commit(outcomes)

    crawl.frontier = Counting(context.politeness, context.options)
    ran = await crawl.run()
    assert ran.status.done == 101
    assert Counting.commits < 60


class TwoPartitions:
    def __init__(self, frontier):
        self._frontier = frontier

    def of_lease(self, lease_id):
        return lease_id % 2

    async def unknown(self, fingerprints, slots):
        assert len(slots) == len(fingerprints)
        return await self._frontier.unknown(fingerprints)


class Halves(EmbeddedFrontier):
    """Two partitions. After the front page, one of them is away until the other has taken four pages."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.is_back = asyncio.Event()
        self.taken = []

    @property
    def partitions(self):
        return TwoPartitions(self)

    async def commit(self, outcomes):
        (lane,) = {self.partitions.of_lease(outcome.lease_id) for outcome in outcomes}
        if self.taken and lane == 0:
            await self.is_back.wait()
        self.taken += [lane] * len(outcomes)
        if len(self.taken) > 4:
            self.is_back.set()
        return await super().commit(outcomes)


async def test_an_unavailable_partition_does_not_delay_the_others(make_crawl):
    crawl = make_crawl()
    context = crawl.frontier_context()
    crawl.frontier = Halves(context.politeness, context.options)
    async with asyncio.timeout(30):
        ran = await crawl.run()
    assert (ran.state, ran.status.done, len(ran.items)) == (JobState.FINISHED, 11, 11)
    assert crawl.frontier.taken[1:5] == [1] * 4


class Broken(Halves):
    """Cannot commit to one of its partitions."""

    async def commit(self, outcomes):
        if self.partitions.of_lease(outcomes[0].lease_id) == 0:
            raise FrontierError("this part is gone", remedy="bring it back")
        return await super().commit(outcomes)


async def test_a_part_of_the_frontier_that_fails_fails_the_crawl(make_crawl):
    crawl = make_crawl()
    context = crawl.frontier_context()
    crawl.frontier = Broken(context.politeness, context.options)
    async with asyncio.timeout(30):
        ran = await crawl.run()
    assert str(ran.failure) == "this part is gone"


async def test_a_commit_waits_for_no_more_pages_when_none_can_come(make_crawl, monkeypatch):
    monkeypatch.setattr(committer, "_BATCH_DELAY", 3600)
    chain = make_crawl({"/": ["/1"], "/1": ["/2"], "/2": ["/3"], "/3": []})
    async with asyncio.timeout(60):
        assert (await chain.run()).status.done == 4


async def test_a_page_is_committed_at_once_while_no_request_is_left_to_fetch(make_crawl, monkeypatch):
    monkeypatch.setattr(committer, "_BATCH_DELAY", 3600)
    linked = asyncio.Event()

    class Waiting(Follower):
        async def parse(self, response):
            if response.url.endswith("/waits"):
                await linked.wait()
            elif response.url.endswith("/linked"):
                linked.set()
            return response.follow_all("a")

    crawl = make_crawl(
        {"/": ["/waits", "/links"], "/waits": [], "/links": ["/linked"], "/linked": []}, Waiting
    )
    async with asyncio.timeout(60):
        assert (await crawl.run()).status.done == 4
