"""A managed crawl on real sites: start, stop, restart, idle, summary, monitor, several in one process."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from itertools import count

import pytest

from crawl_harness import QUICK, Scripted
from manual import ROOT
from skitter import Spider
from skitter.errors import FrontierError, SpiderError, UsageError
from skitter.fetch.contract import FetcherCapabilities
from skitter.frontends.lifecycle import (
    Analyzer,
    CrawlArguments,
    Downloader,
    IllegalTransition,
    Level,
    ManagedCrawl,
    Monitor,
    Status,
)
from skitter.response import Response
from skitter.testing import Answer

PAGES = {"/": [f"/{number}" for number in range(40)], **{f"/{number}": [] for number in range(40)}}
PATHS = sorted(PAGES)


def path_of(response):
    return "/" + response.url.rpartition("/")[2]


def follow(response):
    yield {"path": path_of(response)}
    yield response.follow_all("a")


@pytest.fixture
def made(tmp_path):
    async def make(job="managed", parser=follow, settings=None, **arguments):
        crawl = ManagedCrawl()
        given = {"analyzers": [Analyzer(parser)], "home": str(tmp_path), **arguments}
        await crawl.initialize(CrawlArguments(job=job, settings={**QUICK, **(settings or {})}, **given))
        return crawl

    return make


def items(path):
    return sorted(json.loads(line)["path"] for line in path.read_text().splitlines())


class Halting:
    """A parser that tells when so many pages were read."""

    def __init__(self, after):
        self.reached = asyncio.Event()
        self.left = after

    async def __call__(self, response):
        self.left -= 1
        if self.left == 0:
            self.reached.set()
        return list(follow(response))


async def test_start_returns_while_the_crawl_runs_and_the_end_stops_it_by_itself(made, serve):
    site = Scripted(PAGES)
    crawl = await made()
    assert crawl.status is Status.INITIALIZED
    await crawl.start(serve(site).url)
    result = await crawl.wait()
    assert (crawl.status, result.state, result.status.done) == (Status.STOPPED, "finished", 41)
    assert await crawl.idle()
    assert site.counts == Counter(PATHS)
    assert (await crawl.summary()).reason == ""


async def test_a_stopped_crawl_continues_where_it_was_when_it_is_started_again(made, serve, tmp_path):
    site, halting = Scripted(PAGES), Halting(5)
    out = tmp_path / "out.jsonl"
    crawl = await made(parser=halting, frontier="sqlite:", outputs=[str(out)], settings={"concurrency": 2})
    await crawl.start(serve(site).url)
    await halting.reached.wait()
    result = await crawl.stop("that is enough")
    assert (crawl.status, result.reason, result.state) == (Status.STOPPED, "that is enough", "stopped")
    assert 5 <= result.status.done < 41
    assert items(out) == sorted(set(items(out)))
    await crawl.start()
    result = await crawl.wait()
    assert (result.status.done, result.state) == (41, "finished")
    assert items(out) == PATHS
    assert site.counts == Counter(PATHS)
    assert (await crawl.summary()).runs == 2


async def test_in_memory_a_restart_starts_from_the_beginning(made, serve):
    site = Scripted(PAGES)
    crawl = await made()
    await crawl.start(serve(site).url)
    await crawl.wait()
    await crawl.start()
    assert (await crawl.wait()).status.done == 41
    assert site.counts == Counter(dict.fromkeys(PATHS, 2))


async def test_a_finished_job_does_not_begin_without_cause_and_says_what_would_be_one(made, serve, tmp_path):
    site = Scripted(PAGES)
    url = serve(site).url
    out = tmp_path / "out.jsonl"
    crawl = await made(frontier="sqlite:", outputs=[str(out)])
    await crawl.start(url)
    await crawl.wait()
    before = await crawl.summary()
    with pytest.raises(UsageError, match="'managed' is finished"):
        await crawl.start()
    assert await crawl.summary() == before
    with pytest.raises(UsageError, match="'managed' is finished"):
        await crawl.start(f"{url}7")  # which it has met
    assert (crawl.status, (await crawl.summary()).runs) == (Status.STOPPED, 1)
    await crawl.start(f"{url}?more")
    assert (await crawl.wait()).status.failed == 1  # the site has no such page
    await crawl.start(recrawl=True)
    assert (await crawl.wait()).before.state == "running"
    assert site.counts["/7"] == 2
    await crawl.start(fresh=True)
    result = await crawl.wait()
    assert (result.status.done, site.counts["/7"], items(out)) == (41, 3, PATHS)


async def test_stop_is_graceful_and_can_be_cancelled_without_being_called_off(made, serve):
    halting = Halting(1)
    crawl = await made(parser=halting, settings={"delay": 30, "robots": False})
    await crawl.start(serve(Scripted(PAGES)).url)
    await halting.reached.wait()
    stopping = asyncio.create_task(crawl.stop())
    await asyncio.sleep(0)
    assert crawl.status is Status.STOPPING
    with pytest.raises(IllegalTransition, match="being stopped"):
        await crawl.stop()
    stopping.cancel()
    result = await crawl.wait()
    assert (crawl.status, result.reason) == (Status.STOPPED, "stopped")
    assert result.status.leased == 0


async def test_calls_that_do_not_fit_a_running_crawl_leave_it_running(made, serve):
    crawl = await made(settings={"delay": 30})
    await crawl.start(serve(Scripted(PAGES)).url)
    for call in (crawl.start("http://127.0.0.1/"), crawl.initialize(CrawlArguments(job="x", spider="y.py"))):
        with pytest.raises(IllegalTransition, match="has been started"):
            await call
    assert crawl.status is Status.STARTED
    summary = await crawl.summary()
    assert (summary.job, summary.runs) == ("managed", 1)
    await crawl.stop()


async def test_an_error_before_the_start_leaves_the_status_unchanged(made, serve, tmp_path):
    # The delay keeps the first crawl at work until the other one has asked for the job.
    crawl, other = await made(settings={"delay": 30}), await made()
    with pytest.raises(UsageError, match="start requests"):
        await crawl.start()
    with pytest.raises(UsageError, match="'no url'"):
        await crawl.start("no url")
    url = serve(Scripted(PAGES)).url
    async with crawl:
        await crawl.start(url)
        with pytest.raises(FrontierError):  # one job, two owners
            await other.start(url)
        assert (crawl.status, other.status) == (Status.STARTED, Status.INITIALIZED)
    assert crawl.status is Status.STOPPED
    await other.start(url)
    assert (await other.wait()).status.done == 41


async def test_initialize_takes_all_of_its_arguments_or_none(made, serve):
    crawl = await made(allowed_domains=["example.com"])
    before = await crawl.summary()
    with pytest.raises(SpiderError):
        await crawl.initialize(
            CrawlArguments(job="other", spider="there_is_no.py", allowed_domains=["a.net"])
        )
    assert await crawl.summary() == before
    await crawl.initialize(CrawlArguments(job="other", analyzers=[Analyzer(follow)], settings=QUICK))
    assert ((await crawl.summary()).job, crawl.status) == ("other", Status.INITIALIZED)


async def test_many_crawls_run_in_one_process_beside_other_work(made, serve):
    sites = [Scripted(PAGES) for _ in range(5)]
    crawls = [await made(job=f"job-{number}", frontier="sqlite:") for number in range(5)]
    other_work = asyncio.create_task(asyncio.sleep(0, "done"))
    await asyncio.gather(*(crawl.start(serve(site).url) for crawl, site in zip(crawls, sites, strict=True)))
    assert await other_work == "done"
    assert {crawl.status for crawl in crawls} <= {Status.STARTED, Status.STOPPED}
    results = await asyncio.gather(*(crawl.wait() for crawl in crawls))
    assert [result.status.done for result in results] == [41] * 5
    assert [site.counts for site in sites] == [Counter(PATHS)] * 5


async def test_no_task_of_a_run_outlives_it(made, serve):
    before = asyncio.all_tasks()
    crawl = await made()
    await crawl.start(serve(Scripted(PAGES)).url)
    await crawl.wait()
    assert asyncio.all_tasks() == before


async def test_idle_is_exact_while_the_last_page_is_still_under_way(made, serve):
    """A page that is being read may still give links, so the crawl is not idle, whatever lies in no queue."""
    reading, released = asyncio.Event(), asyncio.Event()

    async def slow(response):
        if path_of(response) == "/":
            reading.set()
            await released.wait()
        return list(follow(response))

    site = Scripted({"/": ["/late"], "/late": []})
    crawl = await made(parser=slow, settings={"wait_for_seeds": True})
    await crawl.start(serve(site).url)
    await reading.wait()
    summary = await crawl.summary()
    assert (summary.queued, summary.in_flight, summary.idle, await crawl.idle()) == (0, 1, False, False)
    assert await Monitor(crawl, check_every=0.1, auto_stop=True, report=lambda *_: released.set()).run() >= 1
    assert (site.counts["/late"], crawl.status, await crawl.idle()) == (1, Status.STOPPED, True)
    assert (await crawl.summary()).reason == "idle"


async def test_summaries_are_equal_as_long_as_nothing_happens_and_are_json_and_text(made, serve):
    halting = Halting(1)
    crawl = await made(
        parser=halting, settings={"wait_for_seeds": True}, allowed_domains=["www.bbc.co.uk:8080"]
    )
    fresh = await crawl.summary()
    assert fresh == await crawl.summary()
    await crawl.start(serve(Scripted({"/": []})).url)
    while not await crawl.idle():
        await asyncio.sleep(0.01)
    busy = await crawl.summary()
    assert (busy == await crawl.summary(), busy == fresh) == (True, False)
    told = json.loads(busy.json())
    assert (told["status"], told["done"], told["added"], told["idle"]) == ("started", 1, 1, True)
    assert told["allowed_domains"] == ["127.0.0.1", "bbc.co.uk"]
    [module] = told["modules"]
    assert module == {
        "id": "analyzer-1", "component": "analyzer", "called": 1, "accepted": 1, "completed": 1, "handling": 0,
        "extra": {"parsers": 1},
    }  # fmt: skip
    assert "analyzer-1: 1 called, 1 accepted, 1 completed, 0 handling (parsers 1)" in busy.text()
    await crawl.stop()


async def test_a_monitor_yields_errors_and_only_summaries_that_are_new(made, serve):
    told = []
    crawl = await made()
    await crawl.start(serve(Scripted({"/": ["/gone"]})).url)
    checks = await Monitor(crawl, report=lambda level, text: told.append((level, text))).run()
    assert checks >= 1
    [warning] = [text for level, text in told if level is Level.WARNING]
    assert warning.startswith("downloader: http://127.0.0.1")
    assert warning.endswith("/gone the server responded with 404")
    assert told[-1][1].startswith("job managed: stopped, idle\nrequests: 2 added")
    assert len({text for _, text in told}) == len(told)


@pytest.mark.parametrize(
    "wrong", [{"check_every": 0.05}, {"summary_every": 0.5}, {"check_every": float("nan")}]
)
def test_a_monitor_refuses_intervals_that_are_too_short(wrong):
    with pytest.raises(UsageError) as caught:
        Monitor(ManagedCrawl(), **wrong)
    assert caught.value.field == next(iter(wrong))


async def test_a_fleet_is_started_and_stopped_in_the_same_way(made, serve, tmp_path):
    file = tmp_path / "fleet_spider.py"
    url = serve(Scripted(PAGES)).url
    file.write_text(
        "from skitter import Spider\n"
        "class Fleet(Spider):\n"
        f"    start_urls = [{url!r}]\n"
        "    def parse(self, response):\n"
        "        yield response.follow_all('a')\n"
    )
    crawl = await made(analyzers=(), spider=f"{file}:Fleet", workers=2, frontier="sqlite:")
    await crawl.start()
    assert (await crawl.wait()).status.done == 41
    assert crawl.status is Status.STOPPED


async def test_each_queue_has_processes_of_its_own_and_of_one_process_this_is_the_one(made, serve, tmp_path):
    file, output = tmp_path / "stage_spider.py", tmp_path / "out.jsonl"
    url = serve(Scripted(PAGES)).url
    file.write_text(
        "import os\n"
        "from skitter import Spider\n"
        "class Stages(Spider):\n"
        f"    start_urls = [{url!r}]\n"
        "    def parse(self, response):\n"
        "        yield {'pid': os.getpid(), 'queue': response.request.queue}\n"
        "        yield response.follow_all('a', queue='detail')\n"
    )
    given = {"analyzers": (), "spider": f"{file}:Stages", "outputs": [str(output)]}
    crawl = await made("three", queues={"default": 1, "detail": 2}, **given)
    await crawl.start()
    assert (await crawl.wait()).status.done == 41
    found = [json.loads(line) for line in output.read_text().splitlines()]
    processes = {queue: {one["pid"] for one in found if one["queue"] == queue} for queue in ("", "detail")}
    assert os.getpid() not in processes[""] | processes["detail"]
    assert not processes[""] & processes["detail"]
    output.unlink()
    crawl = await made("one", queues={"detail": 0, "default": 0}, **given)
    await crawl.start()
    await crawl.wait()
    assert {json.loads(line)["pid"] for line in output.read_text().splitlines()} == {os.getpid()}


@pytest.mark.parametrize("queues", [{"a b": 1}, {"a": -1}, {"a": "two"}, {"": 1}, {"a": 2}])
async def test_queues_that_cannot_be_served_are_refused(made, queues):
    with pytest.raises(UsageError):
        await made(queues=queues)  # the last: analyzers are of one process


async def test_the_example_stops_continues_and_sums_up(serve, tmp_path):
    site = Scripted({"/": ["/a", "/b", "/gone"], "/a": ["/b"], "/b": Answer(b"<title> B </title>")})
    script = ROOT / "examples" / "managed.py"
    ran = await asyncio.create_subprocess_exec(
        sys.executable, str(script), serve(site).url, cwd=tmp_path, stdout=PIPE, stderr=PIPE
    )
    out, errors = (text.decode() for text in await ran.communicate())
    assert ran.returncode == 0, errors
    assert out.startswith("stopped time for a break\n")
    assert "/gone the server responded with 404" in out
    assert "requests: 4 added, 0 queued, 0 delayed, 0 in flight, 3 done, 1 failed" in out
    [item] = [json.loads(line) for line in (tmp_path / "managed.jsonl").read_text().splitlines()]
    assert item["title"] == "B"


class Stuck:
    """A fetcher that cannot be opened the first time."""

    def __init__(self, times, reached):
        self._times = times
        self._reached = reached

    async def open(self):
        if next(self._times) == 0:
            self._reached.set()
            await asyncio.Event().wait()

    capabilities = FetcherCapabilities()

    async def fetch(self, request, *, permit, on_headers=None):
        return Response(request.url, request=request)

    async def close(self):
        pass


async def test_a_start_that_is_cancelled_changes_nothing_and_can_be_repeated(made):
    times, reached = count(), asyncio.Event()
    crawl = await made(downloaders=[Downloader(lambda context: Stuck(times, reached))], frontier="sqlite:")
    before = asyncio.all_tasks()
    starting = asyncio.create_task(crawl.start("http://127.0.0.1:9/"))
    await reached.wait()
    assert crawl.status is Status.STARTING
    with pytest.raises(IllegalTransition, match="being started"):
        await crawl.start()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert (crawl.status, (await crawl.summary()).runs) == (Status.INITIALIZED, 0)
    assert asyncio.all_tasks() == before
    await crawl.start("http://127.0.0.1:9/")
    assert (await crawl.wait()).status.done == 1


async def test_error_streams_end_when_the_crawl_is_initialized_again(made):
    crawl = await made()
    reading = asyncio.create_task(anext(crawl.errors(), None))
    await asyncio.sleep(0)
    await crawl.initialize(CrawlArguments(job="other", analyzers=[Analyzer(follow)]))
    assert await reading is None


async def test_a_monitor_may_begin_before_the_crawl_and_needs_one_that_is_initialized(made, serve):
    """The finder of gopcp starts its monitor first."""
    crawl, told = await made(), []
    monitor = Monitor(crawl, check_every=0.1, auto_stop=True, report=lambda _level, text: told.append(text))
    watching = asyncio.create_task(monitor.run())
    await asyncio.sleep(0)
    await crawl.start(serve(Scripted(PAGES)).url)
    await watching
    assert (crawl.status, "41 done" in told[-1]) == (Status.STOPPED, True)
    with pytest.raises(UsageError, match="not been initialized"):
        await Monitor(ManagedCrawl()).run()


async def test_a_spider_without_seeds_crawls_the_first_requests(made, serve):
    class Plain(Spider):
        def parse(self, response):
            return follow(response)

    crawl = await made(spider=Plain, analyzers=())
    await crawl.start(serve(Scripted(PAGES)).url)
    assert (await crawl.wait()).status.done == 41
