"""A stop on a frontier that machines share is one of this machine alone, whenever it comes."""

import asyncio

import pytest

from services.redis_servers import running
from skitter import Spider
from skitter.fetch.http import HttpFetcher
from skitter.frontier.records import JobState
from skitter.run.crawl import Crawl
from skitter.run.job import JobSpec


class SlowOpening(HttpFetcher):
    """Takes as long to open as the test wants."""

    opening = asyncio.Event()
    may_open = asyncio.Event()

    async def open(self):
        self.opening.set()
        await self.may_open.wait()
        await super().open()


class Waiting(Spider):
    """Would wait for seeds for ever."""

    start_urls = ("http://127.0.0.1:9/",)
    custom_settings = {"fetcher": lambda _context: SlowOpening(), "wait_for_seeds": True, "robots": "no"}  # noqa: RUF012 - as a user writes it

    def parse(self, _response):
        return None


@pytest.fixture(autouse=True)
def fresh_events():
    SlowOpening.opening, SlowOpening.may_open = asyncio.Event(), asyncio.Event()


async def test_a_worker_that_still_opens_its_fetcher_hears_of_a_stop(tmp_path, job_name):
    spec = JobSpec(
        job=job_name, spider=f"{__name__}:Waiting", frontier=running("valkey").url, home=str(tmp_path)
    )
    crawl = Crawl(spec, spider_class=Waiting)
    at_work = asyncio.create_task(crawl.run())
    async with asyncio.timeout(30):
        await SlowOpening.opening.wait()
        crawl.stop("the test")
        SlowOpening.may_open.set()
        result = await at_work
    assert (result.reason, result.state) == ("the test", JobState.RUNNING)
