"""A machine that is suspended while its pass ends and another machine starts the next one."""

import asyncio
import json

import msgspec
import pytest

from crawl_harness import QUICK, Scripted
from skitter import Spider
from skitter._utils.notes import NOTE_TTL
from skitter.frontier.options import FrontierContext
from skitter.frontier.records import JobState
from skitter.frontier.redis.frontier import RedisFrontier
from skitter.frontier.workers import PARTICIPANTS, Participants, WorkerReport
from skitter.run.crawl import Crawl
from skitter.run.job import JobSpec

CHAIN = {"/": ["/1"], "/1": ["/2"], "/2": []}


class Chain(Spider):
    custom_settings = QUICK

    def parse(self, response):
        yield response.follow_all("a")


class Itemised(Chain):
    def parse(self, response):
        yield {"url": response.url}
        yield response.follow_all("a")


@pytest.fixture
def sleeper(server, serve, tmp_path, job_name, monkeypatch):
    """A machine whose worker sleeps between the end of the job and its next call. Others lease once it is asleep."""
    lease = RedisFrontier.lease
    asleep, awake = asyncio.Event(), asyncio.Event()
    of_sleeper = []

    async def lease_in_turn(frontier, worker, limit, *more):
        of_sleeper.append(frontier)
        while frontier is not of_sleeper[0] and (await frontier.status()).state is not JobState.FINISHED:
            await asyncio.sleep(0.05)
        answer = await lease(frontier, worker, limit, *more)
        if answer.state is JobState.FINISHED and not awake.is_set():
            asleep.set()
            await awake.wait()
            answer = await lease(frontier, worker, limit)
        return answer

    monkeypatch.setattr(RedisFrontier, "lease", lease_in_turn)
    url = serve(Scripted(CHAIN)).url

    def machine(name, **options):
        spec = JobSpec(
            job=job_name,
            spider=Chain,
            frontier=server.url,
            home=str(tmp_path / name),
            arguments={"start_urls": [url]},
        )
        return asyncio.create_task(Crawl(spec, spider_class=Chain, **options).run())

    return machine, asleep, awake


async def test_a_worker_that_slept_through_a_recrawl_loses_no_page_of_the_new_pass(sleeper, server, job_name):
    machine, asleep, awake = sleeper
    one = machine("one")
    async with asyncio.timeout(30):
        await asleep.wait()
        other = machine("other", recrawl=True)
        watcher = RedisFrontier(server.url, FrontierContext(job_name, attach=True))
        await watcher.open()
        while not (await watcher.status()).queued:
            await asyncio.sleep(0.05)
        await watcher.close()
        awake.set()
        await one
        result = await other
    assert result.status.counters["pages"] == 2 * len(CHAIN)


async def test_the_seeds_of_a_recrawl_are_loaded_by_a_worker_that_slept_through_it(sleeper, server, job_name):
    machine, asleep, awake = sleeper
    one = machine("one")
    async with asyncio.timeout(30):
        await asleep.wait()
        other = RedisFrontier(server.url, FrontierContext(job_name, attach=True))
        await other.open()
        assert await other.control.recrawl()
        await other.close()
        awake.set()
        result = await one
    assert result.status.counters["pages"] == 2 * len(CHAIN)


class Killed(BaseException):
    """Ends the process."""


async def test_a_recrawl_first_delivers_the_items_of_a_pass_that_was_killed_at_its_end(
    server, ask, serve, tmp_path, job_name, monkeypatch
):
    pages = {"/": ["/a"], "/a": []}
    url = serve(Scripted(pages)).url
    spec = JobSpec(
        job=job_name, spider=Chain, frontier=server.url, home=str(tmp_path), outputs=[f"{server.url}/{job_name}-items"],
        arguments={"start_urls": [url]}, settings={"changes": "changed"},
    )  # fmt: skip

    async def die(_crawl, _frontier):
        raise Killed

    async def crawl():
        await Crawl(spec, spider_class=Itemised, recrawl=True).run()

    async def paths():
        items = await ask.lrange(f"{job_name}-items", 0, -1)
        return sorted(json.loads(item)["url"].removeprefix(url) for item in items)

    await crawl()
    assert await paths() == ["", "a"]
    pages.update({"/": ["/a", "/b"], "/b": []})
    with monkeypatch.context() as patched:
        patched.setattr(Crawl, "_merge", die)
        patched.setattr(Crawl, "_emit", die)
        with pytest.raises(Killed):
            await crawl()
    await crawl()
    assert await paths() == ["", "a", "b"]


async def test_the_pass_stays_open_while_handlers_of_another_machine_may_add_requests(
    server, serve, tmp_path, job_name
):
    url = serve(Scripted(CHAIN)).url
    spec = JobSpec(
        job=job_name, spider=Chain, frontier=server.url, home=str(tmp_path), arguments={"start_urls": [url]}
    )
    other = RedisFrontier(server.url, FrontierContext(job_name))
    await other.open()
    idle = WorkerReport("idle", "elsewhere", 1, "1", 0.0, 1, 0, 0, 0, 0, 0, 0.0)
    await other.reports.announce(idle, 60.0)
    await other.notes.put(PARTICIPANTS, msgspec.msgpack.encode(Participants(idle_at={"idle": ""})), NOTE_TTL)
    for _ in range(2):  # neither when a machine stops nor when one joins
        result = await Crawl(spec, spider_class=Chain).run()
        assert (result.state, result.ended_pass) == (JobState.FINISHED, None)
    await other.reports.announce(idle, 0.0)
    await other.close()
    assert (await Crawl(spec, spider_class=Chain).run()).ended_pass.number == 1
