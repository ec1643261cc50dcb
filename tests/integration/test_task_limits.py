"""Limits of the tasks of a task file: they hold for a task that is added to a running job, from its first request on."""

import asyncio
import threading
from collections import Counter

import pytest

from cli_command import Running, skitter
from crawl_harness import CrawlHarness, Scripted
from skitter.frontends.tasks.task_file import TaskFile, TaskFileSpider
from skitter.frontier.embedded.frontier import EmbeddedFrontier
from skitter.frontier.options import SettingsChanges
from skitter.politeness import HostLimits
from skitter.run.job_access import change_settings
from skitter.testing import Answer

RECIPE = """name: {name}
start: {url}
settings: {settings}
pages:
  p: {{items: {{fields: {{url: {{value: "{{url}}"}}}}}}, follow: [a]}}
"""


@pytest.fixture
def task_file(tmp_path):
    return TaskFile(tmp_path / "task_file")


def add(task_file, name, url, settings="{}"):
    task_file.add(RECIPE.format(name=name, url=url, settings=settings), f"{name}.yaml")


class Crowd:
    """A page with links to slow pages. The event ``last[host]`` is set when the last page of a host is requested."""

    def __init__(self, pages):
        self._pages = pages
        self._left = Counter()
        self.last = {host: threading.Event() for host in ("127.0.0.1", "localhost")}

    def __call__(self, visit):
        self._left[visit.host] += 1
        if self._left[visit.host] > self._pages:
            self.last[visit.host].set()
        links = range(self._pages) if visit.path == "/" else ()
        return Answer("".join(f"<a href=/{n}>x</a>" for n in links).encode(), delay=0.05)


def test_the_limits_of_a_task_that_is_added_hold_at_once_in_every_worker(serve, tmp_path, task_file):
    """The first task has no limit, so several pages of its host are requested at once; those of the late task never are."""
    crowd = Crowd(24)
    site = serve(crowd)
    url = site.url
    add(task_file, "first", url)
    run = (
        "run", "skitter.frontends.tasks:TaskFileSpider", "-a", "task_file=task_file", "-a", "watch=yes", "--job", "job", "--workers", 2,
        "-o", "out.jsonl", "--no-robots", "-q", "-s", "concurrency_per_slot=8", "--delay", 0,
    )  # fmt: skip
    with Running(*run, cwd=tmp_path) as running:
        assert crowd.last["127.0.0.1"].wait(60)
        add(task_file, "late", url.replace("127.0.0.1", "localhost"), "{concurrency_per_slot: 1}")
        assert crowd.last["localhost"].wait(60)
        assert "localhost concurrency_per_slot=1" in skitter("status", "job", cwd=tmp_path).stdout
        assert skitter("config", "job", "--reset", cwd=tmp_path).returncode == 0
        assert "localhost concurrency_per_slot=1" in skitter("config", "job", cwd=tmp_path).stderr
        running.interrupt()
        running.end()
    most = {host: max(hit.in_flight for hit in site.log.hits if hit.host == host) for host in crowd.last}
    assert (most["localhost"], most["127.0.0.1"] > 1) == (1, True)


async def test_the_frontier_knows_the_limits_of_all_tasks_before_their_first_requests(
    serve, tmp_path, task_file
):
    site = Scripted({"/": []})
    url = serve(site).url
    known = []
    host = url.split("/")[2].partition(":")[0]
    await asyncio.to_thread(add, task_file, "one", url, "{delay: 0.01, rates: [100/s]}")
    await asyncio.to_thread(add, task_file, "two", url, "{delay: 0.02, jitter: 0.01}")
    await asyncio.to_thread(add, task_file, "free", url.replace("127.0.0.1", "localhost"))
    spider = await asyncio.to_thread(TaskFileSpider, task_file=str(tmp_path / "task_file"))
    bench = CrawlHarness(spider, tmp_path)
    fetched = spider.parse

    async def parse(response, **words):
        known.append((await bench.frontier.control.settings_changes()).domain_limits)
        return await fetched(response, **words)

    spider.parse = parse
    ran = await bench.run()
    assert (len(ran.items), ran.letters) == (3, {})
    limits = HostLimits(delay=0.02, jitter=0.01, rates=("100/s",))
    assert known == [{host: limits}] * 3, "of a domain of several tasks the strictest"
    assert spider.custom_settings.get("limit_rules") is None, "no host is in another slot because of a task"


async def test_a_manual_reset_reverts_manual_changes_and_not_the_limits_of_tasks():
    frontier = EmbeddedFrontier()
    limits = {"x": HostLimits(delay=2.0)}
    await frontier.control.change_settings(SettingsChanges(domain_limits=limits))
    await change_settings(frontier, SettingsChanges({"delay": 3.0, "max_pages": 7}), reset=False)
    found = await change_settings(frontier, SettingsChanges({"max_pages": 9}), reset=True)
    assert found == SettingsChanges({"max_pages": 9}, limits)
    assert "delay" not in found.settings
