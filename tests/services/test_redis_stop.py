"""A stop on a shared frontier concerns this machine only, at any time and whether or not the server replies."""

import asyncio

import pytest

from services.redis_servers import running
from skitter import Spider
from skitter.errors import SkitterError
from skitter.fetch.http import HttpFetcher
from skitter.frontier.records import JobState
from skitter.run import crawl as crawl_module
from skitter.run.crawl import Crawl
from skitter.run.job import JobSpec
from skitter.worker import inflight as inflight_module
from skitter.worker import worker as worker_module


class SlowOpening(HttpFetcher):
    """Delays its opening until the test continues it."""

    opening = asyncio.Event()
    may_open = asyncio.Event()

    async def open(self):
        self.opening.set()
        await self.may_open.wait()
        await super().open()


class Waiting(Spider):
    """Would wait for seeds forever."""

    start_urls = ("http://127.0.0.1:9/",)
    custom_settings = {"fetcher": lambda _context: SlowOpening(), "wait_for_seeds": True, "robots": "no"}  # noqa: RUF012 - as a user writes it

    def parse(self, _response):
        return None


@pytest.fixture(autouse=True)
def fresh_events():
    SlowOpening.opening, SlowOpening.may_open = asyncio.Event(), asyncio.Event()


async def test_a_worker_that_is_opening_its_fetcher_receives_a_stop(tmp_path, job_name):
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


@pytest.mark.parametrize("stop", ["called", "time limit"])
async def test_a_stop_ends_a_run_whose_server_is_unavailable(
    own_server, tmp_path, job_name, monkeypatch, stop
):
    for module in (crawl_module, worker_module, inflight_module):
        monkeypatch.setattr(module, "DRAIN_SECONDS", 0.5)
    SlowOpening.may_open.set()
    server = own_server()
    settings = {"time_limit": 1.0} if stop == "time limit" else {}
    spec = JobSpec(
        job=job_name, spider=f"{__name__}:Waiting", frontier=server.url, home=str(tmp_path), settings=settings
    )
    crawl = Crawl(spec, spider_class=Waiting, watcher=lambda _: None)
    killed, stop_crawl, stopping = asyncio.Event(), crawl.stop, []

    async def stop_once_killed(reason):
        await killed.wait()
        stop_crawl(reason)

    monkeypatch.setattr(
        crawl, "stop", lambda reason: stopping.append(asyncio.create_task(stop_once_killed(reason)))
    )
    at_work = asyncio.create_task(crawl.run())
    async with asyncio.timeout(60):
        await SlowOpening.opening.wait()
        while not await crawl.fleet():
            await asyncio.sleep(0.01)
        server.kill()
        killed.set()
        if stop == "called":
            crawl.stop("the test")
        with pytest.raises(SkitterError, match=server.url) as failure:
            await at_work
    assert failure.value.remedy


class Finishing(Spider):
    """Finishes immediately, because its page cannot be fetched."""

    start_urls = ("http://127.0.0.1:9/",)
    custom_settings = {"max_retries": 0, "robots": "no"}  # noqa: RUF012 - as a user writes it

    def parse(self, _response):
        return None


async def test_a_stop_ends_a_run_without_workers_while_a_call_waits_for_the_server(
    own_server, tmp_path, job_name, monkeypatch
):
    monkeypatch.setattr(crawl_module, "DRAIN_SECONDS", 0.5)
    server = own_server()
    spec = JobSpec(job=job_name, spider=f"{__name__}:Finishing", frontier=server.url, home=str(tmp_path))
    crawl = Crawl(spec, spider_class=Finishing)
    work, calls = crawl._work, []

    async def work_and_kill_the_server(*arguments):
        is_finished = await work(*arguments)
        server.kill()
        calls.append(asyncio.create_task(crawl.add(["http://127.0.0.1:9/other"])))
        await asyncio.sleep(0)
        crawl.stop("the test")
        return is_finished

    monkeypatch.setattr(crawl, "_work", work_and_kill_the_server)
    async with asyncio.timeout(60):
        with pytest.raises(SkitterError, match=server.url):
            await crawl.run()
        with pytest.raises(SkitterError):
            await calls[0]
