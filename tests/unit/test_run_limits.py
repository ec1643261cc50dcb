"""Limits: pages exactly, items, errors, bytes and depth. A run with a larger limit continues."""

import asyncio
import threading

import pytest

from crawl_harness import CrawlHarness, Scripted, page
from sites.gated import gated
from skitter import Request, Spider
from skitter.frontier.records import JobState
from skitter.run.crawl import Crawl
from skitter.run.job import JobSpec
from skitter.testing import Answer

WIDE = {"/": [f"/{number}" for number in range(40)], **{f"/{number}": [] for number in range(40)}}
CHAIN = {"/": ["/1"], "/1": ["/2", "/2b"], "/2": ["/3"], "/2b": [], "/3": ["/4"], "/4": []}


class Follower(Spider):
    async def start(self):
        yield Request(self.url)

    def parse(self, response):
        yield {"url": response.url, "depth": response.depth}
        yield response.follow_all("a")


@pytest.fixture
def make_crawl(serve, tmp_path):
    def make(pages, spider=Follower, frontier="memory", **settings):
        site = Scripted(pages)
        made = CrawlHarness(spider(url=serve(site).url), tmp_path, frontier=frontier, **settings)
        made.site = site
        return made

    return make


@pytest.mark.parametrize("frontier", ["memory", "sqlite", "socket"])
@pytest.mark.parametrize("workers", [1, 3])
async def test_the_limit_of_pages_is_exact(make_crawl, frontier, workers):
    crawl = make_crawl(WIDE, frontier=frontier, max_pages=17, concurrency_per_slot=8)
    ran = await crawl.run(workers)
    assert (len(ran.items), ran.counters["pages"], ran.state) == (17, 17, JobState.STOPPING)
    assert ran.status.reason == "17 pages"
    assert ran.status.leased == 0
    assert sum(crawl.site.counts.values()) == 17, "nothing was fetched in vain"


async def test_pages_that_fail_do_not_count_as_pages(make_crawl):
    pages = {"/": ["/a", "/b", "/c", "/d"], "/a": Answer(status=404), "/b": [], "/c": [], "/d": []}
    ran = await make_crawl(pages, max_pages=3, concurrency=1).run()
    assert (ran.counters["pages"], list(ran.letters)) == (3, ["/a"])


async def test_a_run_with_a_larger_limit_continues(make_crawl, serve, tmp_path):
    crawl = make_crawl(WIDE, frontier="sqlite", max_pages=5)
    await crawl.run()
    more = CrawlHarness(crawl.spider, tmp_path, frontier="sqlite")
    more.groups = crawl.groups
    ran = await more.run()
    assert (ran.state, len(ran.items)) == (JobState.FINISHED, 41)
    assert set(crawl.site.counts.values()) == {1}


async def test_the_limit_of_items_stops_the_crawl(make_crawl):
    ran = await make_crawl(WIDE, max_items=5, concurrency=2).run()
    assert ran.status.reason == "5 items"
    assert 5 <= ran.counters["items"] <= 5 + 4 * 2


async def test_the_limit_of_errors_stops_the_crawl(make_crawl):
    pages = {"/": [f"/gone{number}" for number in range(40)]}
    ran = await make_crawl(pages, max_errors=4, concurrency=2).run()
    assert ran.status.reason == "4 errors"
    assert 4 <= ran.status.failed <= 4 + 4 * 2


async def test_the_limit_of_bytes_stops_the_crawl(make_crawl):
    pages = {**WIDE, **{f"/{number}": Answer(b"x" * 1000) for number in range(40)}}
    ran = await make_crawl(pages, max_bytes=10_000, concurrency=2).run()
    assert ran.status.reason == "10000 bytes"
    assert 10_000 <= ran.counters["bytes"] <= 10_000 + 4 * 2 * 1000


@pytest.mark.parametrize(("limit", "found"), [(0, 1), (1, 2), (2, 4), (3, 5), (None, 6)])
async def test_links_are_followed_as_deep_as_the_limit(make_crawl, limit, found):
    ran = await make_crawl(CHAIN, depth_limit=limit).run()
    assert len(ran.items) == found
    assert ran.state is JobState.FINISHED
    assert ("refused/depth" in ran.counters) == (found < 6)


async def test_depth_is_the_parents_plus_one_whatever_a_callback_says(make_crawl):
    class Liar(Follower):
        def parse(self, response):
            yield {"url": response.url, "depth": response.depth}
            for href in response.hrefs():
                yield response.follow(href, depth=-7)
            yield response.follow_all("a", depth=99)

    ran = await make_crawl(CHAIN, Liar).run()
    assert {item["url"].rpartition("/")[2]: item["depth"] for item in ran.items} == {
        "": 0, "1": 1, "2": 2, "2b": 2, "3": 3, "4": 4,
    }  # fmt: skip


def test_the_time_limit_stops_a_run_gracefully_and_the_next_one_continues(
    serve, tmp_path, no_blocking_calls, monkeypatch
):
    for (
        function
    ) in no_blocking_calls.functions.values():  # a run starts and ends with a few calls to the disk
        function.can_block_in("skitter/run/crawl.py", {"_run"})
    # Most pages are answered only after the limit, and the first ones before it, however slow the machine is.
    stopped, stop = threading.Event(), Crawl.stop

    def stop_and_notify(crawl, *reason):
        stop(crawl, *reason)
        stopped.set()

    monkeypatch.setattr(Crawl, "stop", stop_and_notify)
    pages = {
        "/": [f"/{number}" for number in range(20)],
        **{f"/{number}": lambda _: gated(page(), stopped.is_set) for number in range(20)},
    }
    server = serve(Scripted(pages))
    spec = JobSpec(
        job="timed", spider=f"{__name__}:Follower", arguments={"url": server.url}, home=str(tmp_path / "jobs"),
        outputs=[str(tmp_path / "items.jsonl")],
        settings={"robots": False, "delay": 0, "concurrency_per_slot": 2, "time_limit": 0.5},
    )  # fmt: skip
    while True:
        first = asyncio.run(Crawl(spec).run())
        limit = spec.settings["time_limit"]
        assert (first.state, first.reason) == (JobState.STOPPED, f"time limit of {limit:g} s")
        if first.status.done:
            break
        spec.settings["time_limit"] = 2 * limit  # the machine was too busy to fetch a page in this time
        stopped.clear()
    assert first.status.done < 21
    assert first.status.leased == 0
    assert "leases/lost" not in first.counters
    spec.settings["time_limit"] = 60
    second = asyncio.run(Crawl(spec).run())
    assert (second.state, second.status.done) == (JobState.FINISHED, 21)
    assert len((tmp_path / "items.jsonl").read_text().splitlines()) == 21


@pytest.mark.parametrize(
    ("settings", "is_reported"),
    [
        ({"user_agent": "360Spider/1.0"}, True),
        ({"user_agent": "bot/1"}, False),
        ({"user_agent": "1", "robots": False}, False),
    ],
)
def test_a_user_agent_that_robots_txt_cannot_name_is_reported_at_the_start(
    serve, tmp_path, caplog, settings, is_reported
):
    server = serve(Scripted({"/": []}))
    spec = JobSpec(
        job="named", spider=f"{__name__}:Follower", arguments={"url": server.url}, home=str(tmp_path / "jobs"),
        settings={"delay": 0, **settings},
    )  # fmt: skip
    assert asyncio.run(Crawl(spec).run()).status.done == 1
    assert any("has no product token" in record.getMessage() for record in caplog.records) is is_reported
