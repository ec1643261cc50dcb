"""Kill test of a collector with a clone: callbacks, contexts and depths survive the death of any process."""

import random
from pathlib import Path

import pytest
from crawling import ROUNDS, at_moments, check_exact

pytestmark = pytest.mark.chaos

PAGES, HOLES, HOSTS, KILLS = 300, 30, 2, 4
SITE = {"pages": PAGES, "every": HOLES, "hosts": HOSTS, "page_bytes": 2000, "links_per_page": 20}
SETTINGS = {
    "robots": "no", "delay": 0, "concurrency_per_slot": 8, "concurrency": 8, "deny": "outside.invalid", "max_worker_crashes": 100,
}  # fmt: skip


@pytest.mark.parametrize("seed", ROUNDS)
@pytest.mark.parametrize("victim", ["worker", "all"])
def test_a_collector_loses_and_duplicates_nothing(crawling, site, truth, victim, seed):
    job = crawling("crawler", workers=2, settings=SETTINGS, arguments={"url": site.url})
    place = next(index for index, word in enumerate(job.command) if word.endswith("spiders.py:crawler"))
    job.command[place] = f"{Path(__file__).with_name('collected.py')}:crawler"
    rng, kills = random.Random(f"{victim} {seed}"), 0
    job.start()
    for _ in at_moments(job, site, sorted(rng.sample(range(PAGES), KILLS))):
        kills += job.kill_worker(rng) if victim == "worker" else job.kill_all()
        if victim == "all":
            job.start()
    assert job.wait() == 0, job.errors
    assert kills >= KILLS - 1
    check_exact(job, *truth)
    assert {item["steps"] - item["depth"] for item in job.items()} == {1}, "a start URL has depth 0"
