"""A job that watches a task file is killed, and tasks are added before it restarts; nothing is lost or duplicated."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from cli_command import skitter
from crawl_harness import Scripted
from skitter.frontends.tasks.task_file import TaskFile
from skitter.testing import Answer

RECIPE = """name: {name}
start: ["{url}{name}/0", "{url}{name}/7"]
pages:
  p: {{items: {{fields: {{task: {{value: {name}}}, url: {{value: "{{url}}"}}}}}}, follow: [a]}}
"""


class Chains:
    """Chains of pages. ``halfway`` is set after a number of requests."""

    def __init__(self, halt_after):
        links = {f"/{name}/{n}": [f"/{name}/{n + 1}"] for name in "abc" for n in range(6)}
        ends = {f"/{name}/{n}": [] for name in "abc" for n in (6, 7)}
        self._site = Scripted({**links, **ends})
        self._left = halt_after
        self.halfway = threading.Event()

    def __call__(self, visit):
        self._left -= 1
        if self._left <= 0:
            self.halfway.set()
        answer = self._site(visit)
        return Answer(answer.body, status=answer.status, delay=0.02)


def wait_for_done(folder, pages):
    """Wait until a number of pages is committed."""
    deadline = time.monotonic() + 60
    while True:
        told = skitter("status", "job", "--json", cwd=folder)
        if told.returncode == 0 and json.loads(told.stdout)["counts"]["done"] >= pages:
            return
        assert time.monotonic() < deadline, told


@pytest.mark.chaos
@pytest.mark.parametrize("kill_after", [1, 5, 9])
def test_a_watching_job_that_is_killed_continues_with_old_and_new_tasks(serve, tmp_path, kill_after):
    site = Chains(kill_after)
    url = serve(site).url
    task_file = TaskFile(tmp_path / "task_file")
    for name in "ab":
        task_file.add(RECIPE.format(name=name, url=url), f"{name}.yaml")
    command = [
        sys.executable, "-m", "skitter", "run", "skitter.frontends.tasks:TaskFileSpider", "-a", "task_file=task_file", "-a", "watch=yes",
        "--job", "job", "-o", "out.jsonl", "--delay", "0", "--no-robots", "-q", "--workers", "2",
    ]  # fmt: skip
    first = subprocess.Popen(command, cwd=tmp_path, start_new_session=True)
    try:
        assert site.halfway.wait(60)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    task_file.add(RECIPE.format(name="c", url=url), "c.yaml")
    second = subprocess.Popen(command, cwd=tmp_path, start_new_session=True)
    try:
        wait_for_done(tmp_path, 24)
    finally:
        second.send_signal(signal.SIGINT)
        assert second.wait(60) in {0, 130}
    items = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert sorted(item["url"] for item in items) == [f"{url}{name}/{n}" for name in "abc" for n in range(8)]
