"""Kills during broken crawls: exactly one monitor detects each fault, once, in the run that ends the pass."""

import json
import random

import pytest
from crawling import ROUNDS, at_moments, served

from cli_command import skitter
from services.redis_servers import RedisServer
from sites.shop import MONITORS, PRODUCTS

pytestmark = pytest.mark.chaos

FAULTS = [fault for fault in MONITORS if fault not in {"slow", "gone"}]
"""The other two depend on the clock and on the seeds."""


def violated(folder):
    found = json.loads(skitter("status", "job", "--json", cwd=folder).stdout)
    return [
        [one["monitor"] for one in each["verdicts"] if one["passed"] is False] for each in found["passes"]
    ]


@pytest.fixture(scope="module")
def valkey():
    server = RedisServer("valkey").start()
    yield server
    server.stop()


@pytest.mark.parametrize("victim", ["worker", "all"])
@pytest.mark.parametrize("seed", ROUNDS)
def test_a_broken_crawl_is_noticed_by_its_monitor_also_if_its_last_worker_was_killed(
    crawling, bounded_site, tmp_path, valkey, victim, seed
):
    rng = random.Random(f"{victim} {seed}")
    fault = FAULTS[(seed * 2 + (victim == "all")) % len(FAULTS)]
    present = tmp_path / "fault"
    present.write_text("")
    site = bounded_site("sites.shop:Shop", {"fault_file": str(present)}, delay=0.05)
    crawl = crawling("MonitoredShop", workers=2, arguments={"url": site.url}, settings={"concurrency": 4})
    if (seed + (victim == "all")) % 2 == 0:
        valkey.ask("FLUSHALL")
        crawl.command.append(f"--frontier={valkey.url}")
    crawl.command.append("--recrawl")
    assert crawl.run() == 0, crawl.errors
    present.write_text(fault)
    kill_at = served(site) + rng.randrange(PRODUCTS // 2, PRODUCTS)
    crawl.start()
    for _ in at_moments(crawl, site, [kill_at], ahead=0):
        assert getattr(crawl, f"kill_{victim}")()
    if victim == "all":
        crawl.command.remove("--recrawl")  # resume
        crawl.start()
    assert crawl.wait() == 3, crawl.errors
    assert violated(crawl.folder) == [[fault], []]
    present.write_text("")
    if victim == "all":
        crawl.command.append("--recrawl")
    assert crawl.run() == 0, crawl.errors
    assert violated(crawl.folder) == [[], [fault], []]
