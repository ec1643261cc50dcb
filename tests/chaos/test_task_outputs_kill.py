"""Tasks with their own outputs: whichever process is killed, each output contains exactly the items of its tasks."""

import contextlib
import queue
import random
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing

import psutil
import pytest

from cli_command import skitter, urls_of
from crawl_harness import Scripted
from skitter.frontends.tasks.task_file import TaskFile
from skitter.testing import Answer

PAGES = 60
RECIPE = """name: {name}
start: {url}{name}/0
{more}
pages:
  p: {{items: {{fields: {{url: {{value: "{{url}}"}}}}}}, follow: [a]}}
"""
OUTPUTS = {
    "job": "",
    "own": "outputs: [own.jsonl, own.csv]",
    "rows": "outputs: [rows.db]",
    "both": "outputs: [job.jsonl, own.jsonl]",
}


class Trees:
    """A tree of pages for each task. A process is killed whenever the number of served pages is one of ``moments``."""

    def __init__(self, moments, kill_victims):
        self._site = Scripted({
            f"/{name}/{n}": [f"/{name}/{child}" for child in (2 * n + 1, 2 * n + 2) if child < PAGES]
            for name in OUTPUTS
            for n in range(PAGES)
        })  # fmt: skip
        self._moments = set(moments)
        self._kill_victims = kill_victims
        self._served = 0

    def __call__(self, visit):
        answer = self._site(visit)
        self._served += 1
        if self._served in self._moments:
            self._kill_victims()
        return Answer(answer.body, status=answer.status, delay=0.005)


@pytest.mark.chaos
@pytest.mark.parametrize("victim", ["worker", "everybody"])
def test_each_output_has_exactly_the_items_of_its_tasks_after_kills(serve, tmp_path, victim):
    rng = random.Random(f"outputs {victim}")
    due, killed, running = queue.SimpleQueue(), [], []

    def kill_victims():
        """SIGKILL a worker, or the whole job at once, whenever the site calls it."""
        while due.get():
            with contextlib.suppress(psutil.NoSuchProcess):
                workers = running[-1].children()
                for process in [running[-1], *workers] if victim == "everybody" else workers[:1]:
                    process.kill()
            killed.append(victim)

    killer = threading.Thread(target=kill_victims)
    killer.start()
    site = Trees(sorted(rng.sample(range(10, 3 * PAGES), 5)), lambda: due.put(True))
    url = serve(site).url
    task_file = TaskFile(tmp_path / "task_file")
    for name, more in OUTPUTS.items():
        task_file.add(RECIPE.format(name=name, url=url, more=more), f"{name}.yaml")
    command = [
        sys.executable, "-m", "skitter", "run", "skitter.frontends.tasks:TaskFileSpider", "-a", "task_file=task_file", "--job", "job",
        "-o", "job.jsonl", "--delay", "0", "-s", "concurrency_per_slot=8", "--no-robots", "-q", "--workers", "2",
    ]  # fmt: skip
    try:
        for _ in range(12):
            running.append(psutil.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL))
            if running[-1].wait(100) == 0:
                break
    finally:
        due.put(False)
        killer.join()
    assert len(killed) == 5
    assert (len(running) > 1) == (victim == "everybody")
    truth = {name: sorted(f"{url}{name}/{n}" for n in range(PAGES)) for name in OUTPUTS}
    assert urls_of(tmp_path / "job.jsonl") == sorted([*truth["job"], *truth["both"]])
    assert urls_of(tmp_path / "own.jsonl") == sorted([*truth["own"], *truth["both"]])
    assert sorted((tmp_path / "own.csv").read_text().splitlines()[1:]) == truth["own"]
    with closing(sqlite3.connect(tmp_path / "rows.db")) as db:
        assert sorted(url for (url,) in db.execute("SELECT url FROM items")) == truth["rows"]
    status = skitter("status", "job", cwd=tmp_path)
    assert "finished" in status.stdout
