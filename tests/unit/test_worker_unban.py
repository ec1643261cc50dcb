"""After a ban is lifted, running workers queue the links that were refused before."""

import asyncio

import pytest

from crawl_harness import CrawlHarness, Scripted
from skitter import Request, Spider
from skitter.frontier.embedded.frontier import EmbeddedFrontier
from skitter.worker.links import LinkCache

HOST = "localhost"
"""Another slot than that of the site itself, on the same server."""


class Steering(Spider):
    """Bans a host on its first page and lifts the ban on its second one. All pages have the same link to the host."""

    async def start(self):
        yield Request(self.url)

    async def parse(self, response):
        control = self.crawl.frontier.control
        path = response.url.removeprefix(self.url.rstrip("/"))
        if path == "/":
            await control.drop_slot(HOST, ban=True)
        elif path == "/2":
            assert await control.unban(HOST)
        yield response.follow_all("a")


@pytest.mark.parametrize(("frontier", "workers"), [("memory", 1), ("sqlite", 1), ("socket", 2)])
async def test_links_that_were_refused_are_queued_after_the_ban_is_lifted(serve, tmp_path, frontier, workers):
    pages = {}
    site = Scripted(pages)
    url = serve(site).url
    refused = f"{url.replace('127.0.0.1', HOST)}refused"
    pages |= {"/": ["/1", refused], "/1": ["/2", refused], "/2": ["/3"], "/3": [refused], "/refused": []}
    spider = Steering(url=url)
    spider.crawl = crawl = CrawlHarness(spider, tmp_path, frontier=frontier, delay=0)
    ran = await crawl.run(workers)
    assert ran.failure is None
    assert site.counts["/refused"] == 1
    assert ran.counters["refused/banned"] >= 1


class Following(Spider):
    async def start(self):
        yield Request(self.url)

    def parse(self, response):
        yield response.follow_all("a")


async def test_links_refused_by_a_commit_are_not_taken_for_known_if_the_ban_is_lifted_before_its_answer(
    serve, tmp_path, monkeypatch
):
    commit, lease, forget = EmbeddedFrontier.commit, EmbeddedFrontier.lease, LinkCache.forget
    forgotten = asyncio.Event()
    is_answered = True

    async def commit_slowly(self, outcomes):
        nonlocal is_answered
        is_answered = False
        answers = await commit(self, outcomes)
        if await self.control.unban(HOST):
            await forgotten.wait()
        is_answered = True
        return answers

    async def lease_nothing_meanwhile(self, worker, limit, *arguments):
        return await lease(self, worker, limit if is_answered else 0, *arguments)

    monkeypatch.setattr(EmbeddedFrontier, "commit", commit_slowly)
    monkeypatch.setattr(EmbeddedFrontier, "lease", lease_nothing_meanwhile)
    monkeypatch.setattr(LinkCache, "forget", lambda self: (forget(self), forgotten.set()))
    pages = {}
    site = Scripted(pages)
    url = serve(site).url
    refused = f"{url.replace('127.0.0.1', HOST)}refused"
    pages |= {"/": ["/1", refused], "/1": [refused], "/refused": []}
    crawl = CrawlHarness(Following(url=url), tmp_path, delay=0)
    context = crawl.frontier_context()
    crawl.frontier = EmbeddedFrontier(context.politeness, context.options)
    await crawl.frontier.open()
    await crawl.frontier.control.drop_slot(HOST, ban=True)
    async with asyncio.timeout(60):
        await crawl.run()
    assert site.counts == {"/": 1, "/1": 1, "/refused": 1}
