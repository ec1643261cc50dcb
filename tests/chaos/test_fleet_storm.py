"""Storm test: machines that join and leave crawl 5,000 pages while servers and network fail, on two kinds of frontier.

Redis itself (in addition to Valkey) is only tested in long runs (``make chaos``): other tests kill it in each run.

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
"""Seconds within which a resumed worker sends the requests that it had started."""
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
    """A job on machines with two workers each, and the faults of the machines, their servers and their network."""

    def __init__(self, target, site, folder):
        self._target = target
        self._site = site
        self._folder = folder
        self._rng = random.Random(30)
        self.machines = []
        self.kills = 0

    def join(self, url):
        """Add a machine."""
        folder = self._folder / f"machine{len(self.machines)}"
        folder.mkdir()
        crawling = self._target.crawling
        one = crawling(folder, self._target.server, self._site, url=url, workers=2, settings=SETTINGS)
        self.machines.append(one)
        self._start(one)

    @staticmethod
    def _start(one):
        """Start a machine. A run is refused while its servers are away, so start it again as a supervisor would."""
        for _ in range(ATTEMPTS):
            if one.start().wait_for(one.workers, "a worker"):
                return
        raise AssertionError(one.errors)

    def kill_worker(self):
        """SIGKILL a worker that has work and was never stopped.

        Other workers are spared: a run ends with an error if several in a row die before they have had work.
        """
        assert self.machines[0].wait_for(self._kill_one, "a worker that has work"), self.errors

    def _kill_one(self):
        workers = [worker for one in self.machines for worker in one.never_stopped_workers()]
        self._rng.shuffle(workers)
        for worker in filter(self._had_work, workers):
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.kill()
                self.kills += 1
                kills["worker"] += 1
                return True
        return False

    def _had_work(self, worker):
        """Return whether it is connected to the site."""
        try:
            connections = worker.net_connections("tcp")
        except psutil.NoSuchProcess:
            return False
        return any(each.raddr and each.raddr.port == self._site.port for each in connections)

    def restart_machine(self):
        """SIGKILL all processes of a machine, and start it again."""
        self.machines[2].kill_all()
        self._start(self.machines[2])

    def network_actions(self):
        """Return the faults of servers and network, and the joins, in order."""
        target, rng, urls = self._target, random.Random(5), self._target.urls
        return [
            lambda: self.join(urls[0]), target.cut, lambda: target.hold_back(LEASE + 1.0),
            lambda: target.kill_server(rng), lambda: self.join(urls[1]), lambda: target.fill_up(1.5), target.cut,
            self.restart_machine, lambda: target.kill_server(rng), lambda: target.hold_back(1.0), target.cut,
        ]  # fmt: skip

    def stop_actions(self):
        """Return actions that stop workers for longer than their leases last."""
        rng = random.Random(6)

        def stop_worker(one):
            while not one.pause_worker(rng, LEASE + 1.5):
                assert not one.has_ended, one.errors

        return [lambda one=one: stop_worker(one) for one in self.machines[:2]]

    def run_all(self):
        """Carry out all actions while the crawl runs, spread over its pages: kills, and in parallel the other two kinds."""
        with ThreadPoolExecutor(1) as network, ThreadPoolExecutor(1) as sleepers:
            sorts = (
                (lambda kill: kill(), [self.kill_worker] * KILLS),
                (lambda action: running.append(network.submit(action)), self.network_actions()),
                (lambda action: running.append(sleepers.submit(action)), self.stop_actions()),
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
    def resumptions(self):
        return [moment for one in self.machines for moment in one.resumptions]


def _spread(actions):
    """Assign each action a number of served pages, from soon after the start to well before the end."""
    return [
        (PAGES * (number + 1) // (len(actions) * 5 // 4 + 2), each) for number, each in enumerate(actions)
    ]


def check_polite(site, resumptions):
    """Check that no host got a request before its delay was over, or too many at once.

    Except requests that a stopped worker had already started: they are sent when it is resumed.
    """
    hits = site.hits()
    assert max(hit.in_flight for hit in hits) <= PARALLELISM
    by_host = {}
    for hit in hits:
        if not any(0 <= hit.received - moment < AWAKENING for moment in resumptions):
            by_host.setdefault(hit.host, []).append(hit.received)
    assert len(by_host) == HOSTS
    distances = sorted(
        after - before for visits in by_host.values() for before, after in itertools.pairwise(visits)
    )
    assert distances[0] >= DELAY - TICK, distances[:10]


def test_nothing_is_lost_duplicated_or_impolite_in_a_storm(target, storm, site, truth):
    for url in target.urls:
        storm.join(url)
    storm.run_all()
    assert [one.wait() for one in storm.machines] == [0] * 4, storm.errors
    assert storm.kills >= KILLS - 3
    assert len(storm.resumptions) == 2
    assert all(one.urls() for one in storm.machines), "each of them took part"
    for told in target.expected_messages:
        assert told in storm.errors
    assert "Traceback" not in storm.errors
    check_exact(Machines(storm.machines), *truth)
    check_polite(site, storm.resumptions)
