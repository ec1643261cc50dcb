"""Items as an iterator: complete, streamed from the running crawl, and without leftovers after an early end."""

import asyncio
import io
import os
import signal
import tempfile
import threading
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import pytest

import skitter
from crawl_harness import Scripted, page
from skitter import Crawl, JobSpec, SkitterError, Spider
from skitter.errors import CrawlFailed
from skitter.run.streaming import _Handover
from skitter.testing import Answer, GeneratedSite

PAGES = 120
FAST = {"robots": False, "delay": 0}


@dataclass
class Page:
    url: str


class Pages(Spider):
    start_urls = ()

    def __init__(self, url):
        super().__init__()
        self.start_urls = [url]

    def parse(self, response):
        yield Page(response.url)
        yield response.follow_all("a")


class OwnStart(Pages):
    """A spider whose ``__init__`` does not call that of :class:`Spider`."""

    name = "own"

    def __init__(self, url):
        self.start_urls = [url]

    def parse(self, response):
        self.stats.inc_value("seen")
        yield Page(response.url)


class Interrupting(Pages):
    def parse(self, response):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        yield Page(response.url)


class Broken(Pages):
    def on_start(self, _worker):
        raise ValueError("no token")


@pytest.fixture
def site(serve, monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return serve(GeneratedSite(PAGES, hosts=1))


def left_in(folder):
    """Return the files that a crawl has left behind. The folder of sockets with long paths belongs to the user."""
    return [path for path in folder.rglob("*") if path.name != f"skitter-{os.getuid()}"]


async def test_a_spider_need_not_call_the_constructor_of_its_class(site):
    found = [item async for item in skitter.stream(OwnStart, arguments={"url": site.url}, settings=FAST)]
    assert [item.url for item in found] == [site.url]


async def test_every_item_is_yielded_once_as_it_was_returned(site, tmp_path):
    given = {"arguments": {"url": site.url}, "settings": FAST}
    found = [item async for item in skitter.stream(Pages, **given)]
    assert {type(item) for item in found} == {Page}
    truth = GeneratedSite(PAGES, hosts=1).expected_pages(site.origins)
    assert sorted(item.url for item in found) == sorted(truth)
    assert left_in(tmp_path) == []


async def test_a_consumer_that_ends_early_ends_the_crawl(site, tmp_path):
    async with aclosing(skitter.stream(Pages, arguments={"url": site.url}, settings=FAST)) as items:
        async for _ in items:
            break
    assert len(asyncio.all_tasks()) == 1
    assert left_in(tmp_path) == []


async def test_a_consumer_that_is_cancelled_while_it_waits_leaves_no_task():
    running = asyncio.get_running_loop().create_future()
    consumer = asyncio.create_task(_Handover().next(running))
    for _ in range(3):
        await asyncio.sleep(0)  # a turn of the event loop
    assert len(asyncio.all_tasks()) == 3  # this test, the consumer, and the one that waits for a page
    consumer.cancel()
    for _ in range(3):
        await asyncio.sleep(0)  # a turn of the event loop
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_crawl_that_fails_raises(site):
    with pytest.raises(SkitterError):
        async for _ in skitter.stream(Broken, arguments={"url": site.url}, settings=FAST):
            pass


async def test_a_slow_consumer_holds_the_crawl_back(site):
    items = skitter.stream(Pages, arguments={"url": site.url}, settings=FAST | {"concurrency": 4})
    await anext(items)
    fetched = -1
    while fetched < len(site.log.hits):  # until a whole second passes without a fetch
        fetched = len(site.log.hits)
        await asyncio.sleep(1)
    assert fetched < PAGES
    assert 1 + len([item async for item in items]) == PAGES


def test_a_program_without_a_loop_iterates_too(site):
    found = list(skitter.iter_items(Pages, arguments={"url": site.url}, settings=FAST))
    assert len(found) == PAGES
    assert [thread.name for thread in threading.enumerate() if thread.name == "skitter"] == []


def test_ctrl_c_ends_the_crawl_of_a_program(site):
    with pytest.raises(KeyboardInterrupt):
        list(skitter.iter_items(Interrupting, arguments={"url": site.url}, settings=FAST))
    assert "skitter" not in {thread.name for thread in threading.enumerate()}


async def test_within_a_running_loop_as_in_a_notebook(site):
    items = skitter.iter_items(Pages, arguments={"url": site.url}, settings=FAST)
    assert isinstance(await asyncio.to_thread(next, items), Page)
    await asyncio.to_thread(items.close)


async def test_a_job_takes_a_class_for_its_spider(site, tmp_path):
    spec = JobSpec(
        job="pages", spider=Pages, arguments={"url": site.url}, settings=FAST, frontier="memory:",
        home=str(tmp_path / "home"), outputs=[str(tmp_path / "x.jsonl")],
    )  # fmt: skip
    assert spec.spider == f"{__name__}:Pages"
    crawl = await asyncio.to_thread(Crawl, spec)
    result = await crawl.run()
    assert result.counters["items"] == PAGES
    assert len(await asyncio.to_thread(Path(tmp_path / "x.jsonl").read_text)) > 0


def test_a_progress_line_ends_with_all_pages_counted(site):
    shown = io.StringIO()
    watcher = skitter.ProgressLine(shown)
    items = list(skitter.iter_items(Pages, arguments={"url": site.url}, settings=FAST, watcher=watcher))
    assert shown.getvalue().endswith("\n")
    lines = shown.getvalue()[:-1].split("\r")
    assert len(items) == PAGES
    assert lines[0] == ""
    assert len(lines) > 1
    assert all("pages" in line and "\n" not in line for line in lines[1:])
    assert lines[-1].startswith("finished, ")
    assert f" {PAGES} pages, " in lines[-1]


class Raising(Pages):
    def parse(self, _response):
        raise ValueError("no title")


@pytest.mark.parametrize(
    ("spider", "pages", "settings", "reason"),
    [
        (Pages, {"/": Answer(b"", status=404)}, {}, "404"),
        (Pages, {"/": Answer(b"", status=500)}, {"max_retries": 0}, "500"),
        (Pages, {"/robots.txt": Answer(b"User-agent: *\nDisallow: /")}, {"robots": True}, "robots"),
        (Raising, {"/": page()}, {}, "no title"),
        (Pages, None, {"max_retries": 0}, "connect"),
    ],
)
def test_a_crawl_without_a_page_raises_with_the_reason(
    spider, pages, settings, reason, serve, tmp_path, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    url = serve(Scripted(pages)).url if pages is not None else "http://127.0.0.1:1/"
    given = {"arguments": {"url": url}, "settings": {**FAST, **settings}}
    with pytest.raises(CrawlFailed) as failure:
        list(skitter.iter_items(spider, **given))
    assert reason in str(failure.value)
    assert left_in(tmp_path) == []


async def test_a_crawl_with_pages_and_no_items_ends_quietly(serve):
    server = serve(Scripted({"/": page("/gone")}))
    given = {"arguments": {"url": server.url}, "settings": FAST}
    assert [item async for item in skitter.stream(Silent, **given)] == []


class Silent(Pages):
    def parse(self, response):
        yield response.follow_all("a")
