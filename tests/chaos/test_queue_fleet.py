"""Named queues of one job: which process fetches which pages, and how fast, according to the items and the server's log."""

import itertools
import json
import random
import subprocess
import sys
import urllib.request

import pytest
from crawling import Crawling, served
from stages import urls_of

from services import nsq_servers
from services.redis_servers import running

pytestmark = pytest.mark.chaos

PACES = {
    "list": {"delay": 0.5, "concurrency_per_slot": 1},
    "detail": {"delay": 0, "rates": ["8/1s"], "concurrency_per_slot": 3},
}
ON_THE_WAY = 0.2
"""Seconds by which the way of a request from worker to log may take longer than that of another, on a busy machine."""
FAST = {"robots": "no", "delay": 0, "concurrency_per_slot": 8}


@pytest.fixture
def staged(tmp_path, site_process):
    """Prepare a crawl of the two stages: ``site, begin = staged()``, then ``begin("--queue=list")``."""
    made = []

    def make(**site_options):
        site = site_process("stages:StagesSite", site_options, delay=0.01)

        def begin(*options, name="one", settings=None):
            folder = tmp_path / name
            folder.mkdir(exist_ok=True)
            given = {"robots": "no", "delay": 0, **(settings or {})}
            crawl = Crawling(folder, "Stages", settings=given, arguments={"url": site.url})
            crawl.command += options
            made.append(crawl)
            return crawl

        return site, begin

    yield make
    for crawl in made:
        crawl.end()


def check_stages(site, crawls, **site_options):
    """Check that each page is in the output once, and was fetched by a process that fetched no page of another queue."""
    items = [item for crawl in crawls for item in crawl.items()]
    assert sorted(item["url"] for item in items) == sorted(urls_of(site, **site_options))
    queues = {}
    for item in items:
        assert item["queue"] == ("list" if "/list/" in item["url"] else "detail")
        queues.setdefault(item["worker"], set()).add(item["queue"])
    assert all(len(served_by) == 1 for served_by in queues.values()), queues
    assert len(queues) >= 2


def check_paces(site):
    """Check that the list pages keep their delay, and the detail pages their higher rate."""
    lists = [hit.received for hit in site.hits() if hit.target.startswith("/list/")]
    details = [hit.received for hit in site.hits() if hit.target.startswith("/detail/")]
    assert min(later - earlier for earlier, later in itertools.pairwise(lists)) >= 0.5 - ON_THE_WAY
    windows = [later - earlier for earlier, later in zip(details, details[8:], strict=False)]
    assert min(windows) >= 1.0 - ON_THE_WAY
    assert min(later - earlier for earlier, later in itertools.pairwise(details)) < 0.5 - ON_THE_WAY


def test_two_worker_processes_of_one_sqlite_job_keep_to_their_queues_and_each_queue_to_its_rate(staged):
    site, begin = staged()
    crawl = begin("--queue=list:1", "--queue=detail:1", settings={"queues": json.dumps(PACES)})
    assert crawl.run() == 0, crawl.errors
    check_stages(site, [crawl])
    check_paces(site)


def test_two_machines_on_one_server_keep_to_their_queues_and_each_queue_to_its_pace(staged):
    site, begin = staged()
    server = running("valkey")
    server.ask("FLUSHALL")
    settings = {"queues": json.dumps(PACES)}
    shared = f"--frontier={server.url}"
    crawls = [
        begin(shared, f"--queue={queue}", name=queue, settings=settings) for queue in ("list", "detail")
    ]
    for crawl in crawls:
        crawl.start()
    assert [crawl.wait() for crawl in crawls] == [0, 0], [crawl.errors for crawl in crawls]
    check_stages(site, crawls)
    check_paces(site)


def test_nothing_is_lost_or_duplicated_when_workers_of_queues_are_killed(staged):
    size = {"lists": 12, "details": 12}
    site, begin = staged(**size)
    crawl = begin("--queue=list:1", "--queue=detail:2", settings={"concurrency_per_slot": 4})
    crawl.start()
    rng = random.Random(4)
    for count in (20, 60, 120, 180):
        crawl.wait_for(lambda count=count: served(site) >= count, f"{count} requests")
        crawl.kill_worker(rng)
    assert crawl.wait() == 0, crawl.errors
    check_stages(site, [crawl], **size)


def test_a_broker_carries_each_queue_in_its_own_topic(staged):
    site, begin = staged()
    server = nsq_servers.running()
    frontier = f"--frontier=nsq://127.0.0.1:{server.port}/stages?state=sqlite:"
    crawl = begin(frontier, "--queue=list:1", "--queue=detail:2", settings=FAST)
    assert crawl.run() == 0, crawl.errors
    check_stages(site, [crawl])
    with urllib.request.urlopen(
        f"http://127.0.0.1:{server.http_port}/stats?format=json", timeout=10
    ) as answer:
        topics = {topic["topic_name"] for topic in json.load(answer)["topics"]}
    assert {"stages-list", "stages-detail"} <= topics


def test_a_queue_without_workers_waits_and_the_status_shows_it(staged):
    site, begin = staged()
    crawl = begin("--queue=list", settings=FAST)
    crawl.start()
    statuses = []

    def is_reported():
        statuses[:] = [status(crawl)]
        return "no worker serves queue detail, which has 30 waiting requests" in statuses[0]

    assert crawl.wait_for(is_reported, "a line on the queue that waits"), crawl.errors
    assert json.loads(status(crawl, "--json"))["counts"]["queues"] == {"default": 0, "detail": 30, "list": 0}
    crawl.process.terminate()
    crawl.wait()
    again = begin("--queue=detail", settings=FAST)
    assert again.run() == 0, again.errors
    check_stages(site, [again])


def status(crawl, *options):
    """Return the output of ``skitter status``."""
    command = [sys.executable, "-c", "from skitter.cli.main import main; main()", "status", "job", *options]
    return subprocess.run(
        command, cwd=crawl.folder, capture_output=True, text=True, check=False, timeout=30
    ).stdout
