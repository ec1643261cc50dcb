"""Requests that a program adds to its run: they are stored and fetched, or the call reports that nothing was added."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import uuid

import pytest

from cli_command import lines_of, skitter
from crawl_harness import QUICK, Scripted
from services import nats_servers, nsq_servers
from services.redis_cluster import running_cluster
from services.redis_servers import running
from skitter import Crawl, JobSpec, Request, Spider
from skitter.errors import UsageError
from skitter.frontends.lifecycle import CrawlArguments, ManagedCrawl
from skitter.frontier.records import AddResult, JobState


class Pages(Spider):
    allowed_domains = ("127.0.0.1",)
    custom_settings = QUICK | {"robots": False, "delay": 0}

    def parse(self, response):
        yield {"url": response.url}

    def named(self, response, name):
        yield {"url": response.url, "name": name}


SPIDER = """
from skitter import Spider

class Pages(Spider):
    start_urls = {urls}
    custom_settings = {{"robots": False, "delay": 0, "retry_delay": 0.01}}

    def parse(self, response):
        yield {{"url": response.url}}
"""


@pytest.fixture(params=["sqlite:", "memory:", "redis", "cluster", "nsq", "nats"])
def frontier(request):
    match request.param:
        case "redis":
            return running("valkey").url
        case "cluster":
            return running_cluster("valkey").url
        case "nsq":
            return f"nsq://127.0.0.1:{nsq_servers.running().port}?state=sqlite:"
        case "nats":
            return f"nats://127.0.0.1:{nats_servers.running().port}?state=sqlite:"
        case url:
            return url


@pytest.fixture
def make_crawl(tmp_path):
    job = f"j{uuid.uuid4().hex}"  # the server stores the jobs of all tests

    def make(*urls, frontier="sqlite:", **settings):
        spec = JobSpec(
            job=job, spider=Pages, home=str(tmp_path / ".skitter"), frontier=frontier, settings=settings,
            arguments={"start_urls": list(urls)}, outputs=[str(tmp_path / "items.jsonl")],
        )  # fmt: skip
        return Crawl(spec, spider_class=Pages)

    return make


def site_of(count):
    return Scripted({"/": [], **{f"/{number}": [] for number in range(count)}})


def items(folder):
    return sorted((item["url"], item.get("name", "")) for item in lines_of(folder / "items.jsonl"))


async def test_requests_are_added_checked_and_recognized(serve, tmp_path, make_crawl):
    site = site_of(3)
    url = serve(site).url
    crawl = make_crawl(url)
    with pytest.raises(UsageError) as early:
        await crawl.add([f"{url}0"])
    assert "before the run" in str(early.value)
    assert "RunOverrides" in early.value.remedy
    task = asyncio.create_task(crawl.run())
    named = Request(f"{url}1", callback="named", cb_kwargs={"name": "one"})
    assert await crawl.add([f"{url}0", named]) == AddResult(2, 0)
    assert await crawl.add([f"{url}./0#again", Request(f"{url}2")]) == AddResult(1, 1)
    assert await crawl.add([]) == AddResult(0, 0)
    result = await task
    assert result.state is JobState.FINISHED
    assert items(tmp_path) == [(url, ""), (f"{url}0", ""), (f"{url}1", "one"), (f"{url}2", "")]
    with pytest.raises(UsageError, match="after the run: nothing was added") as late:
        await crawl.add([f"{url}new"])
    assert "wait_for_seeds" in late.value.remedy


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["http://elsewhere.example/"], "request 2: 'http://elsewhere.example/' was refused: host"),
        (["mailto:me@example.com"], "was refused: scheme"),
        ([""], "the seed is empty"),
        ([Request("http://127.0.0.1/", callback="nowhere")], "the spider has no method 'nowhere'"),
        ([f"ftp://{number}/" for number in range(5)], "invalid: 5 of 6 requests"),
        ([7], "requests cannot be 7"),
        ([None], "requests cannot be None"),
    ],
)
async def test_one_invalid_request_means_that_none_is_added(serve, make_crawl, wrong, message):
    site = site_of(1)
    url = serve(site).url
    crawl = make_crawl(url)
    task = asyncio.create_task(crawl.run())
    with pytest.raises(UsageError) as refusal:
        await crawl.add([f"{url}0", *wrong])
    assert message in str(refusal.value)
    assert refusal.value.remedy
    for no_list in (url, url.encode(), Request(url), {"url": url}, None, 7):
        with pytest.raises(UsageError, match="requests cannot be "):
            await crawl.add(no_list)
    await task
    assert site.counts == {"/": 1}


async def test_a_run_fetches_every_request_that_it_accepts(serve, tmp_path, make_crawl, frontier):
    count = 400
    site = site_of(count)
    url = serve(site).url
    crawl = make_crawl(url, frontier=frontier)
    accepted, refused = [], []
    numbers = iter(range(count))

    async def produce(pause):
        for number in numbers:
            try:
                assert (await crawl.add([f"{url}{number}"])).added == 1
            except UsageError:
                refused.append(number)
                return
            accepted.append(number)
            await asyncio.sleep(pause * (number % 7))

    task = asyncio.create_task(crawl.run())
    await asyncio.gather(*(produce(pause) for pause in (0, 0.001, 0.02)))
    result = await task
    assert result.state is JobState.FINISHED
    assert site.counts == {"/": 1, **{f"/{number}": 1 for number in accepted}}
    assert items(tmp_path) == sorted((page, "") for page in (url, *(f"{url}{number}" for number in accepted)))
    assert len(accepted) > 10


async def test_requests_that_are_added_when_the_workers_have_ended_are_fetched(
    serve, tmp_path, make_crawl, frontier, monkeypatch
):
    site = site_of(2)
    url = serve(site).url
    crawl = make_crawl(url, frontier=frontier)
    work, rounds = Crawl._work, []

    async def add_when_the_workers_have_ended(self, *arguments):
        found = await work(self, *arguments)
        rounds.append(dict(site.counts))
        if len(rounds) < 3:
            assert (await self.add([f"{url}{len(rounds) - 1}"])).added == 1
        return found

    monkeypatch.setattr(Crawl, "_work", add_when_the_workers_have_ended)
    assert (await crawl.run()).state is JobState.FINISHED
    assert rounds == [{"/": 1}, {"/": 1, "/0": 1}, {"/": 1, "/0": 1, "/1": 1}]
    assert len(items(tmp_path)) == 3


@pytest.mark.parametrize("frontier", ["sqlite:", "redis"], indirect=True)
async def test_a_finished_job_continues_with_new_requests(serve, tmp_path, make_crawl, frontier):
    site = site_of(1)
    url = serve(site).url
    assert (await make_crawl(url, frontier=frontier).run()).state is JobState.FINISHED
    crawl = make_crawl(url, frontier=frontier)
    task = asyncio.create_task(crawl.run())
    assert await crawl.add([url]) == AddResult(0, 1)
    assert (await task).already_finished
    crawl = make_crawl(url, frontier=frontier)
    task = asyncio.create_task(crawl.run())
    assert await crawl.add([url, f"{url}0"]) == AddResult(1, 1)
    result = await task
    assert (result.state, result.already_finished) == (JobState.FINISHED, False)
    assert items(tmp_path) == [(url, ""), (f"{url}0", "")]


@pytest.mark.parametrize("frontier", ["sqlite:", "redis"], indirect=True)
async def test_a_run_does_not_end_between_two_calls_of_one_task(serve, tmp_path, make_crawl, frontier):
    count = 1500
    site = site_of(count)
    url = serve(site).url
    assert (await make_crawl(url, frontier=frontier).run()).state is JobState.FINISHED
    crawl = make_crawl(url, frontier=frontier)
    task = asyncio.create_task(crawl.run())
    assert await crawl.add([url]) == AddResult(0, 1)
    assert (await crawl.add([f"{url}{number}" for number in range(count)])).added == count
    assert (await task).state is JobState.FINISHED
    assert len(items(tmp_path)) == count + 1


async def test_requests_are_fetched_while_a_program_makes_one_call_after_the_other(serve, make_crawl):
    site = site_of(1)
    url = serve(site).url
    assert (await make_crawl(url).run()).state is JobState.FINISHED
    crawl = make_crawl(url)
    task = asyncio.create_task(crawl.run())
    async with asyncio.timeout(60):
        while not site.counts["/0"]:
            await crawl.add([f"{url}0"])
    assert (await task).state is JobState.FINISHED


async def test_a_run_that_waits_for_seeds_takes_them_until_it_is_stopped(serve, tmp_path, make_crawl):
    site = site_of(4)
    url = serve(site).url
    crawl = make_crawl(wait_for_seeds=True)
    task = asyncio.create_task(crawl.run())
    for number in range(3):
        assert (await crawl.add([f"{url}{number}"])).added == 1
        while site.counts[f"/{number}"] == 0:
            await asyncio.sleep(0.01)
        assert not task.done()
    crawl.stop("enough")
    assert (await crawl.add([f"{url}3"])).added == 1  # for the next run
    result = await task
    assert (result.state, result.reason) == (JobState.STOPPED, "enough")
    assert (await make_crawl().run()).state is JobState.FINISHED
    assert items(tmp_path) == [(f"{url}{number}", "") for number in range(4)]


async def test_a_run_that_is_stopped_before_its_workers_start_is_stopped_and_not_running(serve, make_crawl):
    site = site_of(0)
    url = serve(site).url
    crawl = make_crawl(url)
    crawl.stop("enough")
    result = await crawl.run()
    assert (result.state, result.reason, site.visits) == (JobState.STOPPED, "enough", [])
    assert result.status.state is JobState.STOPPING, "the frontier knows it, too"
    assert (await make_crawl(url).run()).state is JobState.FINISHED


async def test_a_call_that_waits_for_a_run_that_fails_is_refused(make_crawl, tmp_path):
    (tmp_path / "items.jsonl").write_text("somebody else's")
    crawl = make_crawl("http://127.0.0.1:9/")
    task = asyncio.create_task(crawl.run())
    with pytest.raises(UsageError, match="nothing was added"):
        await crawl.add(["http://127.0.0.1:9/1"])
    with pytest.raises(UsageError, match="did not write"):
        await task


async def test_a_second_call_of_run_is_refused_and_the_run_continues(serve, make_crawl):
    site = site_of(1)
    url = serve(site).url
    crawl = make_crawl(url, wait_for_seeds=True)
    task = asyncio.create_task(crawl.run())
    await crawl.add([url])
    with pytest.raises(UsageError, match="is running already") as refusal:
        await crawl.run()
    assert "its own job" in refusal.value.remedy
    assert await crawl.add([f"{url}0"]) == AddResult(1, 0)
    crawl.stop("enough")
    assert (await task).reason == "enough"


@pytest.mark.parametrize("frontier", ["sqlite:", "memory:"], indirect=True)
async def test_a_run_that_was_cancelled_accepts_nothing_while_it_writes_its_outputs(
    serve, make_crawl, frontier, monkeypatch
):
    url = serve(site_of(1)).url
    crawl = make_crawl(url, frontier=frontier, wait_for_seeds=True)
    end, refusals = Crawl._end, []

    async def add_at_the_end(self, *arguments):
        with pytest.raises(UsageError, match="nothing was added") as refusal:
            await self.add([f"{url}0"])
        refusals.append(refusal.value)
        await end(self, *arguments)

    monkeypatch.setattr(Crawl, "_end", add_at_the_end)
    task = asyncio.create_task(crawl.run())
    await crawl.add([url])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(refusals) == 1


def test_a_crawl_that_runs_again_on_another_event_loop_takes_requests(serve, tmp_path, make_crawl):
    site = site_of(2)
    url = serve(site).url
    crawl = make_crawl(url)

    async def run(*numbers):
        task = asyncio.create_task(crawl.run())
        added = await crawl.add([f"{url}{number}" for number in numbers])
        return added, (await task).already_finished

    assert asyncio.run(run(0)) == (AddResult(1, 0), False)
    assert asyncio.run(run(1)) == (AddResult(1, 0), False)
    assert asyncio.run(run(0)) == (AddResult(0, 1), True)
    assert len(items(tmp_path)) == 3


PROGRAM = """
import asyncio
from skitter import Crawl, JobSpec

async def main():
    spec = JobSpec(job="j", spider="pages.py:Pages", workers={workers}, outputs=["items.jsonl"], settings={{"wait_for_seeds": 2}})
    crawl = Crawl(spec)
    task = asyncio.create_task(crawl.run())
    for start in range(0, 3000, 1500):
        print((await crawl.add([f"{url}{{number}}" for number in range(start, start + 1500)])).added, flush=True)
    await task

asyncio.run(main())
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_added_requests_survive_a_kill(serve, tmp_path, workers):
    site = site_of(3000)
    url = serve(site).url
    (tmp_path / "pages.py").write_text(SPIDER.format(urls=[]))
    (tmp_path / "program.py").write_text(PROGRAM.format(workers=workers, url=url))
    command = [sys.executable, "program.py"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert [process.stdout.readline() for _ in range(2)] == [b"1500\n", b"1500\n"]
        os.killpg(process.pid, signal.SIGKILL)
    resumed = skitter("resume", "j", "--quiet", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert items(tmp_path) == sorted((f"{url}{number}", "") for number in range(3000))


async def test_requests_are_added_to_a_managed_crawl(serve, tmp_path):
    site = site_of(3)
    url = serve(site).url
    crawl = ManagedCrawl()
    arguments = CrawlArguments(
        job="managed", spider=Pages, home=str(tmp_path), settings={"wait_for_seeds": True}, outputs=[str(tmp_path / "items.jsonl")]
    )  # fmt: skip
    await crawl.initialize(arguments)
    with pytest.raises(UsageError, match="cannot be added to a crawl that is initialized"):
        await crawl.add([url])
    await crawl.start(f"{url}0")
    assert await crawl.add([f"{url}0", f"{url}1"]) == AddResult(1, 1)
    with pytest.raises(UsageError, match="requests cannot be 'http"):
        await crawl.add(url)
    while site.counts["/1"] == 0:
        await asyncio.sleep(0.01)
    seed = json.dumps({"url": f"{url}2", "callback": "named", "cb_kwargs": {"name": "two"}})
    assert await crawl.add([f" {url}2?again=1 ", seed]) == AddResult(2, 0)
    while site.counts["/2"] < 1:
        await asyncio.sleep(0.01)
    await crawl.stop()
    await crawl.start()  # a job in memory starts from the beginning
    while site.counts["/1"] == 1 or site.counts["/2"] == 1:
        await asyncio.sleep(0.01)
    await crawl.stop()
    assert site.counts["/0"] == 2
    assert (f"{url}2", "two") in items(tmp_path)
