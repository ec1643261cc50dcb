"""Waiting requests of a closed task are dropped at once, however slow its hosts are."""

import asyncio
import threading
import time

import pytest

from cli_command import Running, skitter
from crawl_harness import Scripted
from recipe_runs import run_spider
from skitter.frontends.tasks.spider import SweepSchedule, TaskSpider
from skitter.frontends.tasks.task import Task
from skitter.frontends.tasks.task_file import TaskFile, TaskFileSpider
from skitter.frontier.records import JobState
from skitter.testing import Answer

RECIPE = """name: {name}
start: {url}
{more}
pages:
  p: {{items: {{fields: {{task: {{value: {name}}}, url: {{value: "{{url}}"}}}}}}, follow: [a]}}
"""


@pytest.fixture
def task_file(tmp_path):
    return TaskFile(tmp_path / "task_file")


def add(task_file, name, url, more=""):
    task_file.add(RECIPE.format(name=name, url=url, more=more), f"{name}.yaml")


def test_the_queue_of_a_task_that_is_closed_shrinks_at_once_and_its_job_ends_though_its_host_is_slow(
    serve, tmp_path, task_file
):
    """Only requests for a host with a delay of an hour are left: the last would be fetched in four days."""
    met = threading.Event()

    def page(_visit):
        met.set()
        return Answer("".join(f"<a href=/{n}>x</a>" for n in range(100)).encode())

    url = serve(Scripted({"/": page})).url
    add(task_file, "slow", url)
    run = (
        "run", "skitter.frontends.tasks:TaskFileSpider", "-a", "task_file=task_file", "--job", "job", "-o", "out.jsonl", "--workers", 2,
        "--no-robots", "-q", "--delay", 3600, "-s", "max_retries=0",
    )  # fmt: skip
    with Running(*run, cwd=tmp_path) as running:
        assert met.wait(60)
        deadline = time.monotonic() + 60
        while "queued 100" not in " ".join(skitter("status", "job", cwd=tmp_path).stdout.split()):
            assert time.monotonic() < deadline
        assert skitter("task", "close", "task_file", "slow", cwd=tmp_path).stderr == "closed slow\n"
        assert running.end()[0] == 0
    assert "100" in skitter("stats", "job", "refused/dropped", cwd=tmp_path).stdout


async def test_the_first_requests_of_a_task_that_was_closed_before_are_not_queued(serve, tmp_path, task_file):
    site = Scripted({"/a": [], "/b": []})
    url = serve(site).url
    for name in ("a", "b"):
        await asyncio.to_thread(add, task_file, name, f"{url}{name}")
    await asyncio.to_thread(task_file.change, "a", "close")
    spider = await asyncio.to_thread(TaskFileSpider, task_file=str(tmp_path / "task_file"))
    ran = await run_spider(spider, tmp_path)
    assert (site.counts, ran.letters) == ({"/b": 1}, {})
    assert not {"refused/hook", "refused/dropped"} & ran.counters.keys()


async def test_no_request_of_a_closed_task_is_retried(serve, tmp_path):
    task = Task("failing", start=[], rules={"page": lambda context: {}}, allowed_domains=[])

    def fail(_visit):
        task.closed = True
        return Answer(b"", status=503, headers={"Retry-After": "600"})

    url = serve(Scripted({"/": fail})).url
    task.start = [url]
    ran = await run_spider(TaskSpider([task]), tmp_path, max_throttled=5)
    assert (ran.state, ran.letters) == (JobState.FINISHED, {})


def test_sweeps_become_rare_until_no_old_lease_can_be_left_and_restart_when_they_find_one():
    def times(sweeps, found, costs=0.0):
        now, when = 0.0, []
        while sweeps.next_at < float("inf"):
            now = sweeps.next_at
            when.append(now)
            sweeps.record(now, now + costs, found.pop(0) if found else 0)
        return when

    assert times(SweepSchedule(0.0, 90.0), [5]) == [0, 1, 3, 7, 15, 31, 63]
    assert times(SweepSchedule(0.0, 90.0), [5, 0, 0, 0, 2]) == [0, 1, 3, 7, 15, 16, 18, 22, 30, 46, 78]
    assert times(SweepSchedule(0.0, 90.0), [9], costs=1.0) == [0, 21, 42, 63, 84], (
        "a sweep that is long rests for long"
    )
    ended = SweepSchedule(0.0, 1.0)
    assert times(ended, []) == [0]
    ended.restart(100.0)
    assert ended.next_at == 101.0
