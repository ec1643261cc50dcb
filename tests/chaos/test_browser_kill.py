"""Kills of renderers, browser, watchdog, driver, worker and owner: no page is lost, and no process is left.

Each round makes ten kills. ``make chaos ROUNDS=10`` runs that many rounds, each with its own seed.

"""

import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
from crawling import ROUNDS
from crawling import kills as all_kills

from browsers import descendants, kill, require_browser, survivors
from sites.javascript import javascript_site

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1500)]

KILLS = 10
"""Number of kills in each round."""
PAGES = 30 * KILLS
SPIDER = """
from skitter import Request, Spider

class Pages(Spider):
    name = "pages"
    custom_settings = {{"fetcher": "browser", "robots": False, "delay": 0, "retry_delay": 0.05, "max_retries": 50,
                       "max_worker_crashes": 1000, "page_timeout": 20, "concurrency_per_slot": 4}}

    async def start(self):
        for number in range({pages}):
            yield Request("{url}" + str(number))

    def parse(self, response):
        yield {{"page": response.css("h1::text").get()}}
"""
ROLES = {
    "renderer": lambda line: "--type=renderer" in line,
    "browser": lambda line: (
        "--user-data-dir=" in line and "--type=" not in line and "watchdog.py" not in line
    ),
    "watchdog": lambda line: "watchdog.py" in line,
    "driver": lambda line: "run-driver" in line,
    "worker": lambda line: (
        "skitter.run.child" in line or "-m skitter run" in line
    ),  # the first workers are forked
    "owner": None,
}


def commands_of_survivors(processes):
    """Return the command lines of the processes that have not ended after five seconds."""
    return [processes[pid] for pid in survivors(processes)]


@pytest.mark.parametrize("seed", ROUNDS)
def test_no_kill_of_any_process_loses_a_page(serve, tmp_path, seed):
    require_browser()
    (tmp_path / "pages.py").write_text(SPIDER.format(pages=PAGES, url=serve(javascript_site).url_of("/js/")))
    command = [
        sys.executable,
        "-m",
        "skitter",
        "run",
        "pages.py",
        "-o",
        "items.jsonl",
        "--workers=2",
        "--quiet",
    ]
    rng = random.Random(seed)
    temporary = Path(tempfile.mkdtemp(prefix="sk", dir="/tmp"))  # socket paths must be short

    def start():
        return psutil.Popen(
            command, cwd=tmp_path, env={**os.environ, "TMPDIR": str(temporary)}, start_new_session=True
        )

    owner, seen, kills = start(), {}, dict.fromkeys(ROLES, 0)
    deadline = time.monotonic() + 60 + 15 * KILLS
    try:
        while sum(kills.values()) < KILLS:
            time.sleep(rng.uniform(0.2, 2.0))
            if owner.poll() is not None or time.monotonic() > deadline:
                break
            found = descendants(owner.pid, str(temporary))
            seen |= found
            role = rng.choice(list(ROLES))
            if role == "owner":
                kill(owner.pid, signal.SIGKILL)
                owner.wait()
                kills[role] += 1
                all_kills[role] += 1
                assert commands_of_survivors(found) == []
                owner = start()
                continue
            victims = [pid for pid, line in found.items() if ROLES[role](line)]
            if role == "worker":  # an owner gives up if five workers in a row die before they have had work
                victims = [pid for pid in victims if descendants(pid)]
            if victims:
                below = descendants(victim := rng.choice(victims))
                if kill(victim, signal.SIGKILL):
                    kills[role] += 1
                    all_kills[role] += 1
                    if role != "renderer":
                        assert commands_of_survivors(below) == [], role
        assert owner.wait(timeout=60 + 12 * KILLS) == 0
        assert sum(kills.values()) >= KILLS - 1, "the crawl ended before most of the kills"
    finally:
        kill(owner.pid, signal.SIGKILL)
    items = [json.loads(line)["page"] for line in (tmp_path / "items.jsonl").read_text().splitlines()]
    assert sorted(items) == sorted(f"page {number}" for number in range(PAGES))
    assert commands_of_survivors(seen) == []
    assert commands_of_survivors(descendants(-1, str(temporary))) == []
    assert list(temporary.iterdir()) == [], "no profile is left"
    temporary.rmdir()
