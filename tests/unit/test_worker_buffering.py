"""Stores that buffer: pages are gathered for them, none waits in vain, and a refused page is in no store."""

import asyncio

import pytest

from crawl_harness import CrawlHarness, MemoryStore, Scripted
from sites.gated import gated
from skitter import Request, Spider
from skitter.frontier.records import JobState
from skitter.store.contract import Buffering, GroupError
from skitter.testing import Answer

LEAVES = [f"/{number}" for number in range(100)]
PAGES = {"/": LEAVES, **{path: Answer(b"x") for path in LEAVES}}
FOREVER = 100.0


class Follower(Spider):
    async def start(self):
        yield Request(self.url)

    def parse(self, response):
        yield {"url": response.url}
        if response.is_html:
            yield response.follow_all("a")


class Buffered(MemoryStore):
    """Records the sizes of its writes."""

    def __init__(self, groups, items=50, seconds=FOREVER):
        super().__init__(groups)
        self.buffering = Buffering(items, seconds)
        self.writes = []

    async def write(self, groups):
        self.writes.append([group.items[0]["url"].rpartition("/")[2] for group in groups if group.items])
        return await super().write(groups)


@pytest.fixture
def make_crawl(serve, tmp_path):
    def make(pages=PAGES, **settings):
        return CrawlHarness(
            Follower(url=serve(Scripted(pages)).url), tmp_path, concurrency_per_slot=64, **settings
        )

    return make


async def test_pages_are_gathered_up_to_the_size_of_the_buffer_and_the_last_do_not_wait(make_crawl):
    crawl = make_crawl(concurrency=4, delay=0)
    crawl.store = Buffered(crawl.groups)
    ran = await asyncio.wait_for(crawl.run(), FOREVER / 2)
    assert (ran.state, len(ran.items)) == (JobState.FINISHED, 101)
    first, *others = [len(write) for write in crawl.store.writes if write]
    assert first == 1, "nothing else could come before the links of the front page were known"
    assert len(others) <= 3, others


async def test_pages_wait_for_others_no_longer_than_the_store_says(make_crawl):
    def slow(_):
        return gated(Answer(b"x"), lambda: ["quick"] in crawl.store.writes)

    crawl = make_crawl({"/": ["/slow", "/quick"], "/slow": slow, "/quick": Answer(b"x")})
    crawl.store = Buffered(crawl.groups, seconds=0.1)
    assert len((await crawl.run()).items) == 3
    assert [write for write in crawl.store.writes if write] == [[""], ["quick"], ["slow"]]


async def test_a_stopped_crawl_writes_its_waiting_items_at_once(make_crawl):
    crawl = make_crawl({"/": ["/slow", "/quick"], "/slow": Answer(b"x", delay=1), "/quick": Answer(b"x")})
    crawl.store = Buffered(crawl.groups)
    running = asyncio.create_task(crawl.run())
    while not crawl.groups:
        await asyncio.sleep(0.01)
    crawl.drain()
    ran = await asyncio.wait_for(running, FOREVER / 2)
    assert (ran.status.leased, len(ran.items)) == (0, ran.status.done)


async def test_a_page_that_the_second_store_refuses_is_in_none(make_crawl):
    class Refusing(MemoryStore):
        async def write(self, groups):
            return [
                GroupError("no") if group.items and group.items[0]["url"].endswith("/7") else None
                for group in groups
            ]

    crawl = make_crawl(concurrency=4)
    stores = [MemoryStore(crawl.groups), Refusing({}), Buffered({}, items=1, seconds=0)]

    async def open_stores(worker):
        return stores

    crawl.open_stores = open_stores
    ran = await crawl.run()
    assert list(ran.letters) == ["/7"]
    assert len(ran.items) == ran.status.done == 100
    assert not any(item["url"].endswith("/7") for item in ran.items)
    assert not any("7" in write for write in stores[2].writes), "it was not even asked"
