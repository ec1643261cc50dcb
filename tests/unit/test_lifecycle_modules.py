"""Modules of a managed crawl: processors, parsers, downloaders."""

import asyncio
import json
from collections import Counter
from dataclasses import dataclass

import pytest

from crawl_harness import QUICK, Scripted
from skitter import HookAction, Request, Spider
from skitter.errors import UsageError
from skitter.fetch.contract import ConnectError, FetcherCapabilities
from skitter.frontends.lifecycle import (
    Analyzer,
    CrawlArguments,
    Downloader,
    ManagedCrawl,
    ModuleError,
    Pipeline,
)
from skitter.response import Response
from skitter.testing import Answer


def parse(response):
    yield {"path": "/" + response.url.rpartition("/")[2]}
    yield response.follow_all("a")


@pytest.fixture
def crawled(serve, tmp_path):
    """Crawl a site to the end. Return the crawl, its result, its items and the site."""

    async def crawl_it(pages, settings=None, job="modules", **arguments):
        site, crawl = Scripted(pages), ManagedCrawl()
        out = tmp_path / f"{job}.jsonl"
        await crawl.initialize(
            CrawlArguments(
                job=job, settings={**QUICK, **(settings or {})}, outputs=[str(out)], home=str(tmp_path),
                **{"analyzers": [Analyzer(parse)], **arguments},
            )
        )  # fmt: skip
        await crawl.start(serve(site).url)
        result = await crawl.wait()
        items = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
        return crawl, result, sorted(items, key=str), site

    return crawl_it


# --- analyzers ---------------------------------------------------------------------------------------------


async def test_every_parser_reads_every_page_and_their_results_are_joined(crawled):
    async def paths(response):
        return {"path": "/" + response.url.rpartition("/")[2]}

    def links(response):
        yield response.follow_all("a")

    async def lengths(response):
        yield {"length": len(response.body)}

    crawl, result, items, _ = await crawled(
        {"/": ["/a"], "/a": []}, analyzers=[Analyzer(paths, links, lengths), Analyzer(paths, links, lengths)]
    )
    assert sorted(item["path"] for item in items if "path" in item) == ["/", "/a"]
    assert sum("length" in item for item in items) == 2
    assert [module.counts.completed for module in crawl.modules()] == [1, 1]
    assert result.counters["pages"] == 2


async def test_a_page_with_a_failing_parser_is_a_dead_letter_with_all_errors(crawled):
    def one(response):
        raise ValueError("first")

    def two(response):
        raise KeyError("second")

    crawl, result, items, _ = await crawled({"/": []}, analyzers=[Analyzer(parse, one, two, id="three")])
    assert (items, result.status.failed, result.counters["failed/callback"]) == ([], 1, 1)
    [module] = crawl.modules()
    assert (module.counts.called, module.counts.completed, module.counts.handling) == (1, 0, 0)
    analyzer = Analyzer(parse, one, two, id="x")
    with pytest.raises(ModuleError, match=r"analyzer x: ValueError: first .*; KeyError: 'second'"):
        await analyzer.analyze(Response("http://a.example/"))


async def test_the_depth_of_a_child_is_forced_whatever_a_parser_says(crawled):
    def liar(response):
        yield {"path": "/" + response.url.rpartition("/")[2]}
        for link in response.css("a"):
            yield response.follow(link).replace(depth=0)

    _, result, items, _ = await crawled(
        {"/": ["/1"], "/1": ["/2"], "/2": ["/3"]}, analyzers=[Analyzer(liar)], depth_limit=1
    )
    assert [item["path"] for item in items] == ["/", "/1"]
    assert result.counters["refused/depth"] == 1


# --- pipelines ---------------------------------------------------------------------------------------------


def upper(item):
    return {"path": item["path"].upper()}


def look(item):
    assert item["path"] == item["path"].upper()


async def drop_b(item):
    return HookAction.DROP if item["path"] == "/B" else item | {"kept": True}


def fail_on_c(item):
    if item["path"] == "/C":
        raise ValueError("no c")
    return item | {"passed": True}


THREE = {"/": ["/b", "/c"], "/b": [], "/c": []}


async def test_processors_work_in_order_replace_keep_and_drop(crawled):
    crawl, result, items, _ = await crawled(THREE, pipelines=[Pipeline(upper, look, drop_b)])
    assert items == [{"path": "/", "kept": True}, {"path": "/C", "kept": True}]
    assert (result.counters["items"], result.status.failed) == (2, 0)
    pipeline = crawl.modules()[-1]
    assert pipeline.extra() == {"processors": 3, "fail_fast": False, "dropped": 1}
    assert (pipeline.counts.called, pipeline.counts.completed) == (3, 3)


async def test_a_processor_that_fails_is_skipped_and_reported(crawled):
    crawl, result, items, _ = await crawled(THREE, pipelines=[Pipeline(upper, fail_on_c, drop_b)])
    assert [item["path"] for item in items] == ["/", "/C"]
    assert [item.get("passed", False) for item in items] == [True, False]
    [error] = [error async for error in crawl.errors()]
    assert error.message.startswith("pipeline pipeline-1: fail_on_c: ValueError: no c (line ")
    assert (crawl.modules()[-1].counts.completed, result.status.failed) == (2, 0)


async def test_fail_fast_fails_the_page_and_keeps_it_for_a_replay(crawled):
    _, result, items, _ = await crawled(THREE, pipelines=[Pipeline(upper, fail_on_c, drop_b, fail_fast=True)])
    assert [item["path"] for item in items] == ["/"]
    assert result.status.failed == 1


async def test_a_processor_that_returns_no_item_fails(crawled):
    crawl, _, items, _ = await crawled({"/": []}, pipelines=[Pipeline(lambda item: 3)])
    assert items == [{"path": "/"}]
    [error] = [error async for error in crawl.errors()]
    assert "TypeError: " in error.message
    assert "int" in error.message


async def test_items_of_other_kinds_pass_and_several_pipelines_share_them(crawled):
    @dataclass
    class Found:
        path: str

    def found(response):
        yield Found("/" + response.url.rpartition("/")[2])
        yield response.follow_all("a")

    pipelines = [Pipeline(lambda item: None, id=f"p{number}") for number in range(3)]
    _, _, items, _ = await crawled(THREE, analyzers=[Analyzer(found)], pipelines=pipelines)
    assert [item["path"] for item in items] == ["/", "/b", "/c"]
    assert [pipeline.counts.called for pipeline in pipelines] == [1, 1, 1]


class Own(Spider):
    """A spider with its own hooks."""

    url = ""

    async def start(self):
        yield Request(self.url)

    def parse(self, response):
        return {"path": "/x"}

    def before_save(self, response, items):
        items[:] = [item | {"seen": item["path"]} for item in items]
        return HookAction.STOP


async def test_pipelines_go_with_any_spider_before_its_own_hooks(crawled, serve):
    url = serve(Scripted({"/": []})).url
    _, _, items, _ = await crawled(
        {"/": []}, analyzers=(), spider=Own, arguments={"url": url}, pipelines=[Pipeline(upper)]
    )
    assert {item["seen"] for item in items} == {"/X"}


# --- downloaders -------------------------------------------------------------------------------------------


class Local:
    """A fetcher that needs no network; ``opened`` and ``closed`` count over all instances."""

    def __init__(self, log, answer=b"", gate=None):
        self._log = log
        self._answer = answer
        self._gate = gate

    async def open(self):
        self._log["opened"] += 1

    capabilities = FetcherCapabilities()

    async def fetch(self, request, *, permit, on_headers=None):
        self._log["fetched"] += 1
        self._log["at once"] += 1
        self._log["most at once"] = max(self._log["most at once"], self._log["at once"])
        if self._gate is not None and request.depth:
            if self._log["at once"] == 2:
                self._gate.set()
            await self._gate.wait()
        self._log["at once"] -= 1
        if callable(self._answer):
            return self._answer()
        if self._answer is None:
            raise ConnectError("down")
        return Response(
            request.url, 200, headers={"Content-Type": "text/html"}, body=self._answer, request=request
        )

    async def close(self):
        self._log["closed"] += 1


PAGE = b'<a href="/1">x</a><a href="/2">x</a><a href="/3">x</a><a href="/4">x</a>'


async def test_downloaders_share_the_requests_and_work_at_once(crawled):
    """gopcp downloads one page at a time however many downloaders it has. Here, two answer only together."""
    log, gate = Counter(), asyncio.Event()
    downloaders = [Downloader(lambda context: Local(log, PAGE, gate)) for _ in range(2)]
    _, result, items, site = await crawled({}, {"robots": False}, downloaders=downloaders)
    assert (len(items), result.status.done, site.counts) == (5, 5, {})
    assert sum(module.counts.completed for module in downloaders) == 5
    assert min(module.counts.completed for module in downloaders) >= 1
    assert log["most at once"] >= 2
    assert (log["opened"], log["closed"]) == (2, 2)


async def test_a_fetcher_lives_for_a_run_and_its_downloader_for_all(crawled):
    log = Counter()
    downloader = Downloader(lambda context: Local(log, PAGE))
    crawl, *_ = await crawled({}, {"robots": False}, downloaders=[downloader])
    await crawl.start()
    await crawl.wait()
    assert (log["opened"], log["closed"], downloader.counts.called) == (2, 2, 10)


async def test_another_downloader_may_fetch_a_failed_page(crawled):
    broken, whole = Counter(), Counter()
    downloaders = [
        Downloader(lambda context: Local(broken, None), id="broken"),
        Downloader(lambda context: Local(whole, PAGE), id="whole"),
    ]
    crawl, result, items, _ = await crawled({}, downloaders=downloaders)
    assert (len(items), result.status.failed) == (5, 0)
    assert {error.module async for error in crawl.errors()} == {"broken"}
    assert broken["fetched"] <= whole["fetched"]


async def test_a_downloader_that_is_broken_itself_is_named_too(crawled):
    crawl, result, *_ = await crawled(
        {}, downloaders=[Downloader(lambda c: Local(Counter(), lambda: 1 / 0), id="z")]
    )
    [error] = [error async for error in crawl.errors()]
    assert (error.component, error.module, error.kind) == ("downloader", "z", "ZeroDivisionError")
    assert result.status.failed == 1


async def test_modules_are_added_and_removed_during_a_run(tmp_path):
    log, late = Counter(), Counter()
    crawl = ManagedCrawl()

    class Second(Local):
        async def fetch(self, request, *, permit, on_headers=None):
            if not request.url.rpartition("/")[2]:  # the first page
                crawl.register(Downloader(lambda context: Local(late, PAGE), id="late"))
                crawl.unregister("early")
            return await super().fetch(request, permit=permit)

    await crawl.initialize(
        CrawlArguments(
            job="change", analyzers=[Analyzer(parse)], settings={**QUICK, "robots": False}, home=str(tmp_path),
            downloaders=[Downloader(lambda context: Second(log, PAGE), id="early")],
        )
    )  # fmt: skip
    await crawl.start("http://127.0.0.1:9/")
    assert (await crawl.wait()).status.done == 5
    assert (log["fetched"], late["fetched"]) == (1, 4)
    assert (late["opened"], late["closed"], log["closed"]) == (1, 1, 1)
    with pytest.raises(UsageError, match="pipeline"):
        crawl.register(Pipeline(upper))


async def test_cookies_are_the_same_for_all_downloaders(crawled):
    sent = []

    def note(visit):
        sent.append(visit.headers.get("cookie"))
        return Answer()

    first = Answer(b'<a href="/a">x</a><a href="/b">x</a>', headers={"Set-Cookie": "who=me"})
    downloaders = [Downloader(), Downloader()]
    await crawled({"/": first, "/a": note, "/b": note}, downloaders=downloaders)
    assert sent == ["who=me", "who=me"]
    assert [module.counts.called > 0 for module in downloaders] == [True, True]


class Choosy(Own):
    def on_headers(self, response):
        return HookAction.DROP

    def before_save(self, response, items):
        raise AssertionError("there is no page")


async def test_hooks_see_the_headers_through_downloaders_too(crawled, serve):
    url = serve(Scripted({"/": []})).url
    _, result, items, _ = await crawled(
        {"/": []}, analyzers=(), spider=Choosy, arguments={"url": url}, downloaders=[Downloader()]
    )
    assert (items, result.status.failed, result.counters["refused/hook"]) == ([], 0, 2)


# --- accepted domains --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accepted", "refused"),
    [((), 2), (["x.example.org"], 1), (None, 0), (["http://x.example.org", "example.net"], 0)],
)
async def test_start_domains_and_accepted_domains_are_crawled_and_refusals_are_counted(
    crawled, accepted, refused
):
    page = b'<a href="http://www.example.org/">x</a><a href="http://b.a.example.net:99/">x</a>'
    _, result, _, _ = await crawled(
        {}, downloaders=[Downloader(lambda context: Local(Counter(), page))], allowed_domains=accepted
    )
    assert (result.status.done, result.counters.get("refused/host", 0) > 0) == (3 - refused, refused > 0)


class Wide(Own):
    """A spider that says that it stays on one site."""

    allowed_domains = ("example.com",)

    async def start(self):
        return
        yield

    def before_save(self, response, items):
        return None

    def parse(self, response):
        yield response.follow_all(["http://a.example.com/", "http://b.example.net/"])


@pytest.mark.parametrize(
    ("accepted", "done"), [((), 2), (["www.example.net"], 2), (["example.com", "example.net"], 3)]
)
async def test_accepted_domains_take_the_place_of_those_of_a_spider(tmp_path, accepted, done):
    crawl = ManagedCrawl()
    await crawl.initialize(
        CrawlArguments(
            job="wide", spider=Wide, allowed_domains=accepted, settings=QUICK, home=str(tmp_path),
            downloaders=[Downloader(lambda context: Local(Counter()))],
        )
    )  # fmt: skip
    await crawl.start("http://www.example.com/x" if not accepted else "http://10.0.0.1/")
    assert (await crawl.wait()).status.done == done
