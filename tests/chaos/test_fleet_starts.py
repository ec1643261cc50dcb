"""A fleet that cannot start some of its workers continues with the others."""

import os
import signal

import psutil
import pytest

from cli_command import Logged, SlowingSite, expected_urls, lines_of, skitter, urls_of
from skitter.testing import GeneratedSite

pytestmark = pytest.mark.chaos

# Only the worker process that creates the file "first" survives its start, unless there is a file "repaired".
# The others die only while it works: five deaths before that would end the crawl.
SPIDER = """
import os
import signal
import sys
import time
from pathlib import Path

from skitter import Spider

here = Path(__file__).parent
if sys.argv[0].endswith("child.py") and not (here / "repaired").exists():
    try:
        os.close(os.open(here / "{first}", os.O_CREAT | os.O_EXCL))
        (here / "pid").write_text(str(os.getpid()))
    except FileExistsError:
        while "{first}" == "first" and not (here / "working").exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGKILL)


class Shop(Spider):
    start_urls = ["{url}"]
    allowed_domains = ["127.0.0.1"]

    def parse(self, response):
        (here / "working").touch()
        yield {{"url": response.url, "worker": os.getpid()}}
        yield response.follow_all("a")
"""
WORDS = (
    "run", "shop.py", "-o", "items.jsonl", "--workers", 3, "--no-robots", "--delay", 0,
    "-s", "concurrency_per_slot=3", "-s", "concurrency=1",
)  # fmt: skip
SHORT = "workers die as soon as they start (status -9): the crawl continues with 1 of 3 workers"
WHOLE = "all 3 workers run again"


class Fleet(Logged):
    """A crawl of a slow site by a fleet."""

    def __init__(self, folder, serve):
        super().__init__(*WORDS, cwd=folder)
        self.folder = folder
        self.web = GeneratedSite(pages=200, links_per_page=12, page_bytes=2000)
        self.site = SlowingSite(self.web, after=20, delay=1.0)
        self.server = serve(self.site)
        self.truth = expected_urls(self.web, self.server)
        self.write_spider("first")

    def write_spider(self, first):
        (self.folder / "shop.py").write_text(SPIDER.format(url=self.server.url, first=first))


@pytest.fixture
def fleet(tmp_path, serve):
    return Fleet(tmp_path, serve)


def children(fleet):
    return [child.pid for child in psutil.Process(fleet.process.pid).children()]


def workers_of(fleet):
    return {item["worker"] for item in lines_of(fleet.folder / "items.jsonl")}


def test_a_fleet_continues_with_fewer_workers_and_reports_it_once(fleet):
    with fleet:
        fleet.wait_for(lambda: SHORT in fleet.log)
        deaths = fleet.log.count("a worker died")
        known = {*children(fleet)}
        # The fleet retries without a message.
        fleet.wait_for(lambda: known.update(children(fleet)) or len(known) >= 4)
        fleet.site.released.set()
        assert fleet.end() == 0, fleet.log
    assert urls_of(fleet.folder / "items.jsonl") == fleet.truth
    assert len(workers_of(fleet)) == 1
    assert fleet.log.count("die as soon as they start") == 1
    assert fleet.log.count("a worker died") == deaths
    assert WHOLE not in fleet.log


def test_workers_that_can_be_started_again_join_the_others(fleet):
    with fleet:
        fleet.wait_for(lambda: SHORT in fleet.log)
        (fleet.folder / "repaired").touch()
        fleet.wait_for(lambda: WHOLE in fleet.log)
        fleet.site.released.set()
        assert fleet.end() == 0, fleet.log
    assert urls_of(fleet.folder / "items.jsonl") == fleet.truth
    assert len(workers_of(fleet)) > 1
    assert fleet.log.count("die as soon as they start") == fleet.log.count(WHOLE) == 1


def test_a_fleet_fails_when_no_worker_is_left_and_the_next_run_continues(fleet):
    with fleet:
        fleet.wait_for(lambda: SHORT in fleet.log)
        os.kill(int((fleet.folder / "pid").read_text()), signal.SIGKILL)
        assert fleet.end() == 1
    assert fleet.log.count("workers die as soon as they start (status -9); see the log above") == 1
    fleet.site.released.set()
    (fleet.folder / "repaired").touch()
    deaths = skitter(*WORDS, cwd=fleet.folder)
    assert deaths.returncode == 0, deaths.stderr
    assert urls_of(fleet.folder / "items.jsonl") == fleet.truth


def test_a_run_whose_workers_all_fail_to_start_ends_at_once(fleet):
    fleet.write_spider("shop.py")  # this file exists
    with fleet:
        assert fleet.end() == 1
    assert fleet.log.count("workers die as soon as they start (status -9); see the log above") == 1
    # The fifth ends the run, even if others die at the same moment.
    assert fleet.log.count("a worker died") == 4
