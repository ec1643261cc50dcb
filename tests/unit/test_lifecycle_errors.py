"""Errors of a managed crawl: bounded, for any number of readers, sorted by component."""

import asyncio

import pytest

from crawl_harness import QUICK, CrawlHarness, Scripted, redirect
from skitter import HookAction, Request, Spider
from skitter.frontends.lifecycle import (
    Analyzer,
    CrawlArguments,
    Downloader,
    ManagedCrawl,
    ModuleKind,
    Pipeline,
)
from skitter.frontends.lifecycle.errors import ErrorFeed, ErrorObserver
from skitter.frontier.embedded.frontier import EmbeddedFrontier
from skitter.frontier.records import Entry, SeedProgress
from skitter.testing import Answer


def report_errors(feed, *numbers):
    for number in numbers:
        feed.add(ModuleKind.ANALYZER, ValueError(), f"error {number}")


async def received(reader):
    return [error.message async for error in reader]


async def test_without_a_reader_the_feed_keeps_the_last_and_counts_what_it_drops():
    feed = ErrorFeed(3)
    report_errors(feed, *range(100_000))
    assert (feed.total, feed.dropped, len(feed._kept)) == (100_000, 99_997, 3)
    feed.close()
    reader = feed.read()
    assert await received(reader) == ["error 99997", "error 99998", "error 99999"]
    assert reader.missed == 99_997


async def test_an_error_is_cut_so_that_the_feed_is_bounded_in_bytes_too():
    feed = ErrorFeed(1)
    feed.add(ModuleKind.DOWNLOADER, ValueError(), "x" * 1_000_000, url="y" * 1_000_000)
    [kept] = feed._kept
    assert (len(kept.message), len(kept.url)) == (2000, 2000)


async def test_each_reader_gets_all_errors_and_a_slow_one_misses_only_for_itself():
    feed = ErrorFeed(2)
    quick, slow = feed.read(), feed.read()
    seen = []
    for number in range(5):
        report_errors(feed, number)
        seen.append((await anext(quick)).message)
    feed.close()
    assert seen == [f"error {number}" for number in range(5)]
    assert await received(slow) == ["error 3", "error 4"]
    assert (quick.missed, slow.missed, feed.dropped) == (0, 3, 0)


async def test_a_reader_waits_for_errors_and_ends_with_the_run():
    feed = ErrorFeed()
    reading = asyncio.create_task(received(feed.read()))
    await asyncio.sleep(0)
    report_errors(feed, 1)
    await asyncio.sleep(0)
    report_errors(feed, 2)
    assert not reading.done()
    feed.close()
    assert await reading == ["error 1", "error 2"]
    feed.open()
    feed.close()
    assert await received(feed.read()) == ["error 1", "error 2"]


async def test_a_reader_that_gives_up_does_not_disturb_another():
    feed = ErrorFeed()
    leaving, staying = (asyncio.create_task(received(feed.read())) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    feed.add(ModuleKind.SCHEDULER, ValueError("late"), "late")
    feed.close()
    assert await staying == ["late"]


def fail_on_b(response):
    if response.url.endswith("/b"):
        raise ValueError("no b")
    return {"url": response.url}


def links(response):
    yield response.follow_all("a")


def refuse_c(item):
    if item["url"].endswith("/c"):
        raise KeyError("c")


async def ended(crawl):
    """Wait for the end of a run. Return all reported errors."""
    found = [error async for error in crawl.errors()]
    await crawl.wait()
    return found


async def test_errors_are_reported_by_component_and_module(serve, tmp_path):
    pages = {
        "/": ["/gone", "/b", "/c", "/loop"], "/gone": Answer(status=404), "/b": [], "/c": [],
        "/loop": redirect("/loop"),
    }  # fmt: skip
    crawl = ManagedCrawl()
    await crawl.initialize(
        CrawlArguments(
            job="errors",
            analyzers=[Analyzer(links, fail_on_b, id="reader")],
            pipelines=[Pipeline(refuse_c, id="items")],
            settings=QUICK,
            home=str(tmp_path),
        )
    )
    await crawl.start(serve(Scripted(pages)).url)
    reported = {
        (error.url.rpartition("/")[2], str(error.component), error.module, error.kind)
        for error in await ended(crawl)
    }
    assert reported == {
        ("gone", "downloader", "", "StatusError"),
        ("b", "analyzer", "reader", "ValueError"),
        ("c", "pipeline", "items", "KeyError"),
        ("loop", "downloader", "", "RedirectError"),
    }
    errors = (await crawl.summary()).errors
    assert (errors.total, errors.dropped) == (4, 0)
    assert errors.by_component == {"downloader": 2, "analyzer": 1, "pipeline": 1, "scheduler": 0}


async def test_a_downloader_that_gets_no_answer_is_named(free_port, tmp_path):
    crawl = ManagedCrawl()
    await crawl.initialize(
        CrawlArguments(
            job="dead", analyzers=[Analyzer(links)], downloaders=[Downloader(id="plain")],
            settings={**QUICK, "max_retries": 0}, home=str(tmp_path),
        )
    )  # fmt: skip
    await crawl.start(f"http://127.0.0.1:{free_port}/")
    [error] = await ended(crawl)
    assert (error.component, error.module, error.kind) == (ModuleKind.DOWNLOADER, "plain", "ConnectError")


async def test_an_unavailable_robots_txt_is_reported_while_its_pages_wait(serve, tmp_path):
    crawl = ManagedCrawl()
    await crawl.initialize(
        CrawlArguments(
            job="robots", analyzers=[Analyzer(links)], settings={**QUICK, "robots": True}, home=str(tmp_path)
        )
    )
    await crawl.start(serve(Scripted({"/robots.txt": Answer(status=503)})).url)
    error = await anext(crawl.errors())
    assert (error.component, error.kind) == (ModuleKind.DOWNLOADER, "RobotsUnavailable")
    assert not await crawl.idle()
    await crawl.stop()


async def test_a_record_that_cannot_be_read_is_an_error_of_the_scheduler(tmp_path):
    feed, bench = ErrorFeed(), CrawlHarness(Unstorable(), tmp_path)
    bench.spider.hooks = [ErrorObserver(feed)]
    context = bench.frontier_context()
    bench.frontier = EmbeddedFrontier(context.politeness, context.options)
    claim = await bench.frontier.claim_seeds("w0")
    await bench.frontier.add(
        [Entry(b"x" * 16, "127.0.0.1", "http://127.0.0.1/odd", b"")], SeedProgress(claim.token, 0, done=True)
    )
    await bench.run()
    feed.close()
    assert [(error.component, error.url) async for error in feed.read()] == [
        (ModuleKind.SCHEDULER, "http://127.0.0.1/odd")
    ]


class Unstorable(Spider):
    """Yields items that no file can store. Its hooks hide errors, and one page requests a retry."""

    url = ""

    async def start(self):
        yield Request(self.url)

    def parse(self, response):
        return {"response": response}

    def on_error(self, request, error):
        return HookAction.IGNORE


async def test_an_item_that_a_store_rejects_is_a_pipeline_error(serve, tmp_path):
    crawl = ManagedCrawl()
    await crawl.initialize(
        CrawlArguments(
            job="store", spider=Unstorable, arguments={"url": serve(Scripted({"/": []})).url}, settings=QUICK,
            outputs=[str(tmp_path / "out.jsonl")], home=str(tmp_path),
        )
    )  # fmt: skip
    await crawl.start()
    [error] = await ended(crawl)
    assert (error.component, error.kind) == (ModuleKind.PIPELINE, "StoreError")
    assert (await crawl.wait()).status.failed == 1


async def test_a_hook_of_the_spider_hides_no_error(serve, tmp_path):
    crawl = ManagedCrawl()
    url = serve(Scripted({"/": Answer(status=404)})).url
    await crawl.initialize(
        CrawlArguments(
            job="hidden", spider=Unstorable, arguments={"url": url}, settings=QUICK, home=str(tmp_path)
        )
    )
    await crawl.start()
    assert [error.kind for error in await ended(crawl)] == ["StatusError"]
    assert (await crawl.wait()).status.failed == 0


class Seedless(Unstorable):
    async def start(self):
        raise ValueError("no seeds today")
        yield


async def test_a_crawl_that_fails_reports_it_as_the_scheduler_and_is_stopped(tmp_path):
    crawl = ManagedCrawl()
    await crawl.initialize(
        CrawlArguments(job="seedless", spider=Seedless, settings=QUICK, home=str(tmp_path))
    )
    await crawl.start()
    reported = [error async for error in crawl.errors()]
    assert [(error.component, "no seeds today" in error.message) for error in reported] == [
        (ModuleKind.SCHEDULER, True)
    ]
    assert crawl.status == "stopped"
    assert "no seeds today" in (await crawl.summary()).reason
    with pytest.raises(Exception, match="no seeds today"):
        await crawl.wait()


async def test_a_crawl_without_an_error_reader_ends(serve, tmp_path):
    """Two hundred errors, and a buffer of three."""
    pages = {"/": [f"/{number}" for number in range(200)]}
    crawl = ManagedCrawl()
    await crawl.initialize(
        CrawlArguments(
            job="unread", analyzers=[Analyzer(links)], settings=QUICK, error_capacity=3, home=str(tmp_path)
        )
    )
    await crawl.start(serve(Scripted(pages)).url)
    assert (await crawl.wait()).status.failed == 200
    errors = (await crawl.summary()).errors
    assert (errors.total, errors.dropped) == (200, 197)
