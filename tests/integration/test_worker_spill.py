"""Back-pressure: above ``max_queued``, workers keep the links of further pages, and nothing is lost or blocked."""

import asyncio

import pytest

from crawl_harness import CrawlHarness, Scripted
from skitter import Request, Spider
from skitter.frontier.records import Entry, JobState, Outcome, Resolution
from skitter.worker import spill
from skitter.worker.committer import Committer
from skitter.worker.inflight import QueueCapacity
from skitter.worker.seeds import ExternalSeedReader
from skitter.worker.spill import SpilledPage, SpillQueue


class Follower(Spider):
    async def start(self):
        yield Request(self.url)

    def parse(self, response):
        yield {"url": response.url}
        yield response.follow_all("a")


class Seeded(Spider):
    async def start(self):
        for number in range(3_000):
            yield f"{self.url}{number}"

    def parse(self, response):
        yield {"url": response.url}


def tree(pages, fanout):
    """Return pages that link to ``fanout`` others each. No page has two parents."""
    return {
        ("/" if number == 0 else f"/{number}"): [
            f"/{child}" for child in range(number * fanout + 1, number * fanout + fanout + 1) if child < pages
        ]
        for number in range(pages)
    }


class Watched:
    """A frontier that records how many requests it held at each call of ``lease``, and the sizes of commits."""

    def __init__(self, frontier):
        self._frontier = frontier
        self.most = 0
        self.commits = []

    def __getattr__(self, name):
        return getattr(self._frontier, name)

    async def lease(self, *arguments):
        status = await self._frontier.status()
        self.most = max(self.most, status.queued + status.delayed + status.leased)
        return await self._frontier.lease(*arguments)

    async def commit(self, outcomes):
        self.commits.append(len(outcomes))
        return await self._frontier.commit(outcomes)


@pytest.fixture
def make_crawl(serve, tmp_path):
    def make(pages, spider=Follower, **settings):
        made = CrawlHarness(
            spider(url=serve(Scripted(pages)).url), tmp_path, concurrency_per_slot=100, **settings
        )
        made.frontier = Watched(make_memory(made))
        return made

    def make_memory(made):
        from skitter.frontier.embedded.frontier import EmbeddedFrontier

        context = made.frontier_context()
        return EmbeddedFrontier(context.politeness, context.options)

    return make


@pytest.mark.parametrize("workers", [1, 3])
async def test_a_crawl_with_a_small_frontier_obtains_everything(make_crawl, workers):
    crawl = make_crawl(tree(1_500, 10), max_queued=100, concurrency=4)
    ran = await crawl.run(workers)
    assert ran.failure is None
    assert ran.state is JobState.FINISHED
    assert len(ran.items) == ran.status.done == 1_500
    # Each worker adds this between two answers, and the frontier must accept it so that the crawl continues.
    assert crawl.frontier.most < max(250, 150 * workers)


async def test_the_totals_of_a_worker_include_the_pages_that_waited_for_room(make_crawl, monkeypatch):
    committers, run = [], Committer.run

    async def recorded(committer):
        committers.append(committer)
        await run(committer)

    monkeypatch.setattr(Committer, "run", recorded)
    ran = await make_crawl(tree(500, 10), max_queued=50, concurrency=4).run()
    (committer,) = committers
    names = ("pages", "items", "bytes")
    assert committer.committed == {name: ran.counters[name] for name in names}
    assert committer.committed["pages"] == 500


async def test_pages_that_wait_for_room_cause_no_calls_of_the_frontier(make_crawl):
    """Such a call woke the worker, which asked for leases, which woke the committer, without any pause."""
    crawl = make_crawl(tree(30, 10), max_queued=2, delay=0.01)
    ran = await crawl.run()
    assert (ran.state, ran.status.done) == (JobState.FINISHED, 30)
    assert min(crawl.frontier.commits) > 0


async def test_without_a_limit_the_same_crawl_fills_the_frontier(make_crawl):
    crawl = make_crawl(tree(1_500, 10), concurrency=4)
    await crawl.run()
    assert crawl.frontier.most > 500


async def test_the_smallest_limit_does_not_stop_a_crawl(make_crawl):
    ran = await make_crawl(tree(200, 7), max_queued=1).run(2)
    assert (ran.state, ran.status.done) == (JobState.FINISHED, 200)


async def test_seeds_wait_for_room(make_crawl):
    pages = {f"/{number}": [] for number in range(3_000)}
    crawl = make_crawl(pages, Seeded, max_queued=200)
    ran = await crawl.run()
    assert (ran.state, ran.status.done) == (JobState.FINISHED, 3_000)
    assert crawl.frontier.most <= 700, "a batch of seeds more than the limit"


async def test_pages_that_wait_for_room_are_handed_back_by_a_worker_that_drains(make_crawl):
    crawl = make_crawl(tree(1_500, 10), max_queued=50, concurrency=4, max_pages=100)
    ran = await crawl.run()
    assert ran.status.leased == 0
    assert ran.status.done == len(ran.items) <= 100


async def test_seeds_from_outside_stay_in_their_keys_until_there_is_room():
    class Keys:
        asked = 0

        async def take(self, _worker, _limit):
            self.asked += 1

    keys, room = Keys(), QueueCapacity()
    room.update(0)
    watching = asyncio.create_task(ExternalSeedReader(keys, None, "w", room).run())
    for _ in range(5):
        await asyncio.sleep(0)
    assert keys.asked == 0
    room.update(1)
    for _ in range(5):
        await asyncio.sleep(0)
    assert keys.asked == 1
    watching.cancel()


def outcome(number, links=2):
    entries = [Entry(b"%016d" % n, "h.test", f"http://h.test/{number}/{n}", b"\x01") for n in range(links)]
    return SpilledPage(f"http://h.test/{number}", Outcome(number, Resolution.DONE, entries, {"pages": 1}))


async def test_pages_return_in_order_from_memory_and_disk(monkeypatch):
    monkeypatch.setattr(spill, "_MAX_IN_MEMORY", 4_096)
    kept = SpillQueue()
    put = [outcome(number) for number in range(200)]
    back = []
    for start in range(0, 200, 20):
        await kept.put(put[start : start + 20])
        for _ in range(7):
            back.append(await kept.first())
            kept.drop_first()
    assert len(kept) == 200 - 70
    while kept:
        assert await kept.first() == await kept.first()
        back.append(await kept.first())
        kept.drop_first()
    assert back == put
    kept.close()


async def test_room_is_used_up_and_found_again():
    room = QueueCapacity()
    assert room.take(10**9)
    room.update(5)
    assert room.take(3)
    assert room.take(100), "what is too much for the room is let through once"
    assert not room.take(1)
    assert room.take(0)
    waiting = asyncio.ensure_future(room.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    room.update(1)
    await waiting
