"""Recovery: requests of dead workers are leased again long before their leases end, and suspended workers commit nothing twice.

Leases last ten minutes here, far longer than a test may take. Only the proof of a death, or missing heartbeats, can free them.
"""

import os
import random
import signal

import pytest
from crawling import FAST, PATIENCE, SPIDERS, at_moments, check_exact
from shared_crawling import ClusterCrawling, Machines, SharedCrawling, report_often

from services.redis_cluster import running_cluster
from services.redis_servers import server_of

pytestmark = pytest.mark.chaos

LEASE_SECONDS = 600
assert LEASE_SECONDS > PATIENCE, "otherwise the leases may end by themselves"
PAGES, HOLES, HOSTS = 200, 20, 2
SITE = {"pages": PAGES, "every": HOLES, "hosts": HOSTS, "page_bytes": 3000, "links_per_page": 20}
SETTINGS = FAST | {"lease_seconds": LEASE_SECONDS}


@pytest.fixture
def server():
    server = server_of("valkey", "--appendonly", "no").start()
    yield server
    server.stop()


@pytest.fixture(params=["lone", "cluster"])
def machine(request, site, tmp_path):
    """Start a machine: ``one = machine("one")``, with two workers that share a job with the other machines."""
    made = []

    def make(name):
        folder = tmp_path / name
        folder.mkdir()
        if request.param == "lone":
            server = request.getfixturevalue("server")
            made.append(SharedCrawling(folder, server, site, settings=SETTINGS))
        else:
            url = f"{running_cluster('valkey').url}?partitions=3"
            job = f"job-{tmp_path.name}"  # the cluster serves other tests as well
            made.append(ClusterCrawling(folder, None, site, url=url, job=job, settings=SETTINGS))
        return made[-1]

    yield make
    for crawl in made:
        crawl.end()


class HeldSeeds(SharedCrawling):
    """A machine without seeds of its own. The first of its workers that takes a batch from the seed key holds it."""

    def __init__(self, folder, server, site):
        super().__init__(folder, server, site, settings=SETTINGS | {"seed_keys": "seeds", "depth_limit": 0})
        self.command = [f"{SPIDERS}:HeldSeeds" if "spiders.py" in word else word for word in self.command]
        self.command[self.command.index(f"url={site.url}")] = "url="

    def holder(self):
        """Wait until one of its workers holds a batch. Return the id of its process."""
        held = self.folder / "held"
        assert self.wait_for(lambda: held.exists() and held.read_text(), "a batch"), self.errors
        return int(held.read_text())


@pytest.fixture
def seeded(server, site, tmp_path, truth):
    """Make a machine of the job whose seeds are the pages of the site: ``one = seeded("one")``."""
    server.ask("RPUSH", "seeds", *truth[0])
    made = []

    def make(name):
        folder = tmp_path / name
        folder.mkdir()
        made.append(HeldSeeds(folder, server, site))
        return made[-1]

    yield make
    for crawl in made:
        crawl.end()


def lost_leases(crawl):
    return crawl.counters().get("leases/lost", 0)


def test_a_machine_that_starts_again_takes_its_leases_back_at_once(machine, site, truth):
    crawl = machine("one").start()
    for _ in at_moments(crawl, site, [PAGES // 4, PAGES // 2]):
        crawl.kill_all()
        crawl.start()
    assert crawl.wait() == 0, crawl.errors
    assert lost_leases(crawl) > 0, "no lease was in force at a kill"
    assert "is silent" not in crawl.errors
    check_exact(crawl, *truth)


def test_another_machine_takes_the_leases_of_a_dead_one_when_its_heartbeats_end(machine, site, truth):
    dead, alive = machine("dead").start(), report_often(machine("alive"))
    # The dead machine still has leases, as it is the only one so far.
    for _ in at_moments(dead, site, [PAGES // 4]):
        assert alive.start().wait_for(alive.workers, "a worker")
        dead.kill_all()
    assert alive.wait() == 1, alive.errors
    assert "is silent: reclaimed" in alive.errors
    assert "is incomplete" in alive.errors
    assert dead.run() == 0, dead.errors  # its part files contain the items that it had committed
    check_exact(Machines([dead, alive]), *truth)


def test_a_suspended_worker_commits_no_page_that_others_took_over(machine, site, truth):
    crawl = machine("one").start()
    for _ in at_moments(crawl, site, [PAGES // 3]):
        assert crawl.wait_for(crawl.workers, "a worker")
        sleeper = random.Random(1).choice(crawl.workers())
        os.kill(sleeper.pid, signal.SIGSTOP)
    pages, _ = truth

    def is_over():  # a suspended worker without leases loses nothing, and the other worker does all pages
        return lost_leases(crawl) > 0 or crawl.counters().get("pages", 0) == len(pages)

    assert crawl.wait_for(is_over, "the leases of the sleeper")
    os.kill(sleeper.pid, signal.SIGCONT)
    assert crawl.wait() == 0, crawl.errors
    check_exact(crawl, *truth)


def test_the_seeds_of_a_dead_worker_go_to_another_of_the_same_machine(seeded, truth):
    crawl = seeded("one").start()
    os.kill(crawl.holder(), signal.SIGKILL)
    assert crawl.wait() == 0, crawl.errors
    check_exact(crawl, truth[0])


def test_a_machine_that_starts_again_takes_its_seeds_back_at_once(seeded, truth):
    crawl = seeded("one").start()
    crawl.holder()
    crawl.kill_all()
    assert crawl.run() == 0, crawl.errors
    assert "is silent" not in crawl.errors
    check_exact(crawl, truth[0])


def test_another_machine_takes_the_seeds_of_a_dead_one_when_its_heartbeats_end(seeded, truth):
    dead, alive = seeded("dead").start(), seeded("alive")
    dead.holder()
    (alive.folder / "held").touch()  # it holds nothing back
    assert alive.start().wait_for(alive.workers, "a worker")
    dead.kill_all()
    assert alive.wait() == 0, alive.errors
    check_exact(alive, truth[0])


def test_a_suspended_worker_adds_no_seeds_that_others_took_over(seeded, truth):
    crawl = seeded("one").start()
    sleeper = crawl.holder()
    os.kill(sleeper, signal.SIGSTOP)
    pages, _ = truth
    try:
        assert crawl.wait_for(
            lambda: crawl.counters().get("pages", 0) == len(pages), "the seeds of the sleeper"
        )
    finally:
        (crawl.folder / "go_on").touch()
        os.kill(sleeper, signal.SIGCONT)
    assert crawl.wait() == 0, crawl.errors
    check_exact(crawl, pages)
