"""Storm: 5,000 pages by machines that come and go, over servers and a network that fail. One storm, two kinds of frontier.

Redis itself, beside Valkey, is only stormed in long runs (``make chaos``): other tests kill its processes in each run.
"""

import contextlib
import itertools
import random
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from crawling import ROUNDS, TICK, check_exact, kills, served
from shared_crawling import Machines
from storm_targets import TARGETS

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

PAGES, HOLES, HOSTS = 5_000, 500, 250
DELAY = 1.0
PARALLELISM = 2
LEASE = 3.0
KILLS = 30
ATTEMPTS = 5
AWAKENING = 0.5
"""Seconds in which a worker that was woken sends what it had begun."""
SITE = {"pages": PAGES, "every": HOLES, "hosts": HOSTS, "page_bytes": 3000, "links_per_page": 20}
SETTINGS = {
    "robots": "no", "delay": DELAY, "concurrency_per_slot": PARALLELISM, "concurrency": 32, "deny": "outside.invalid",
    "max_worker_crashes": 100, "lease_seconds": LEASE,
}  # fmt: skip


@pytest.fixture
def site(site_process):
    return site_process("dead_link_site:DeadLinkSite", SITE, hosts=HOSTS)


@pytest.fixture(params=[name for name in TARGETS if len(ROUNDS) > 1 or not name.startswith("redis")])
def target(request):
    make, kind = TARGETS[request.param]
    with contextlib.ExitStack() as stack:
        yield make(kind, stack)


@pytest.fixture
def storm(target, site, tmp_path):
    made = Storm(target, site, tmp_path)
    yield made
    for one in made.machines:
        one.end()


class Storm:
    """What happens to a job: machines of two workers each, and what is done to them, their servers and their network."""

    def __init__(self, target, site, folder):
        self._target = target
        self._site = site
        self._folder = folder
        self._rng = random.Random(30)
        self.machines = []
        self.kills = 0

    def join(self, url):
        """Let one more machine begin."""
        folder = self._folder / f"machine{len(self.machines)}"
        folder.mkdir()
        crawling = self._target.crawling
        one = crawling(folder, self._target.server, self._site, url=url, workers=2, settings=SETTINGS)
        self.machines.append(one)
        self._start(one)

    @staticmethod
    def _start(one):
        """Start a machine; a run that finds its servers away is refused, and started again as a supervisor would."""
        for _ in range(ATTEMPTS):
            if one.start().wait_for(one.workers, "a worker"):
                return
        raise AssertionError(one.errors)

    def kill_worker(self):
        """SIGKILL a worker that has work and was never stopped.

        A run ends with an error if several workers in a row die without ever having work, so those are spared.
        """
        assert self.machines[0].wait_for(self._kill_one, "a worker that has work"), self.errors

    def _kill_one(self):
        workers = [worker for one in self.machines for worker in one.awake_workers()]
        self._rng.shuffle(workers)
        for worker in filter(self._had_work, workers):
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.kill()
                self.kills += 1
                kills["worker"] += 1
                return True
        return False

    def _had_work(self, worker):
        """Whether it is connected to the site."""
        try:
            connections = worker.net_connections("tcp")
        except psutil.NoSuchProcess:
            return False
        return any(each.raddr and each.raddr.port == self._site.port for each in connections)

    def restart_machine(self):
        """SIGKILL a machine whole, and start it again."""
        self.machines[2].kill_all()
        self._start(self.machines[2])

    def to_network(self):
        """Return what happens to servers and network, and who joins, one after the other."""
        target, rng, urls = self._target, random.Random(5), self._target.urls
        return [
            lambda: self.join(urls[0]), target.cut, lambda: target.hold_back(LEASE + 1.0),
            lambda: target.kill_server(rng), lambda: self.join(urls[1]), lambda: target.fill_up(1.5), target.cut,
            self.restart_machine, lambda: target.kill_server(rng), lambda: target.hold_back(1.0), target.cut,
        ]  # fmt: skip

    def to_sleepers(self):
        """Return what happens to those that are stopped for longer than their leases last."""
        rng = random.Random(6)

        def make_sleep(one):
            while not one.pause_worker(rng, LEASE + 1.5):
                assert not one.has_ended, one.errors

        return [lambda one=one: make_sleep(one) for one in self.machines[:2]]

    def pass_over(self):
        """Do all of it while the crawl goes on, spread over its pages: kills, and beside them the two other sorts."""
        with ThreadPoolExecutor(1) as network, ThreadPoolExecutor(1) as sleepers:
            sorts = (
                (lambda kill: kill(), [self.kill_worker] * KILLS),
                (lambda action: running.append(network.submit(action)), self.to_network()),
                (lambda action: running.append(sleepers.submit(action)), self.to_sleepers()),
            )
            running = []
            plan = [(moment, do, action) for do, actions in sorts for moment, action in _spread(actions)]
            for moment, do, action in sorted(plan, key=lambda step: step[0]):
                begun = self.machines[0].wait_for(
                    lambda moment=moment: served(self._site) >= moment, f"{moment} requests"
                )
                assert begun, self.errors
                do(action)
            for trouble in running:
                trouble.result()
            assert not self.machines[0].has_ended, "the storm outlived the crawl"

    @property
    def errors(self):
        return "\n".join(one.errors for one in self.machines)

    @property
    def awakenings(self):
        return [moment for one in self.machines for moment in one.awakenings]


def _spread(actions):
    """Give actions their moments, in pages: from soon after the beginning to well before the end."""
    return [
        (PAGES * (number + 1) // (len(actions) * 5 // 4 + 2), each) for number, each in enumerate(actions)
    ]


def check_polite(site, awakenings):
    """No host was asked before its delay was over, nor by too many at once, whoever asked, whatever happened between.

    But for what a stopped worker had begun to send: that goes out at its awakening, and nobody could hold it back.
    """
    hits = site.hits()
    assert max(hit.in_flight for hit in hits) <= PARALLELISM
    by_host = {}
    for hit in hits:
        if not any(0 <= hit.received - moment < AWAKENING for moment in awakenings):
            by_host.setdefault(hit.host, []).append(hit.received)
    assert len(by_host) == HOSTS
    distances = sorted(
        after - before for visits in by_host.values() for before, after in itertools.pairwise(visits)
    )
    assert distances[0] >= DELAY - TICK, distances[:10]


def test_nothing_is_lost_duplicated_or_impolite_in_a_storm(target, storm, site, truth):
    for url in target.urls:
        storm.join(url)
    storm.pass_over()
    assert [one.wait() for one in storm.machines] == [0] * 4, storm.errors
    assert storm.kills >= KILLS - 3
    assert len(storm.awakenings) == 2
    assert all(one.urls() for one in storm.machines), "each of them took part"
    for told in target.expected_messages:
        assert told in storm.errors
    assert "Traceback" not in storm.errors
    check_exact(Machines(storm.machines), *truth)
    check_polite(site, storm.awakenings)
