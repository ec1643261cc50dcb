"""Storm: 5,000 pages by machines that come and go, over a server and a network that fail."""

import contextlib
import random
import time

import psutil
import pytest
from crawling import check_exact, served
from holey import HoleySite
from shared_crawling import Machines, SharedCrawling

from services.redis_servers import RedisServer
from services.relay import relay_thread

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

PAGES, HOLES, HOSTS = 5_000, 500, 250
DELAY = 1.0
LEASE = 3.0
AWAKENING = 0.3
"""Seconds in which a worker that was woken sends what it had begun."""
SITE = {"pages": PAGES, "every": HOLES, "hosts": HOSTS, "page_bytes": 3000, "links_per_page": 20}
SETTINGS = {
    "robots": "no", "delay": DELAY, "parallelism": 2, "concurrency": 32, "deny": "outside.invalid",
    "max_lost": 100, "lease_seconds": LEASE,
}  # fmt: skip


@pytest.fixture
def site(site_process):
    return site_process("holey:HoleySite", SITE, hosts=HOSTS)


@pytest.fixture
def truth(site):
    web = HoleySite(**SITE)
    urls = {number: web.url(number, site.origins) for number in range(PAGES)}
    gone = {url for number, url in urls.items() if web.is_gone(number)}
    return set(urls.values()) - gone, gone


@pytest.fixture
def make_server():
    servers = []

    def make(kind):
        # With everysec a server that waits for its disk may lose two seconds, and with them when hosts were asked.
        servers.append(RedisServer(kind, "--appendonly", "yes", "--appendfsync", "always").start())
        return servers[-1]

    yield make
    for server in servers:
        server.stop()


@pytest.fixture
def machine(site, tmp_path):
    """Prepare a machine: ``machine(server, workers)``."""
    made = []

    def make(server, workers, url=None):
        folder = tmp_path / f"machine{len(made)}"
        folder.mkdir()
        made.append(SharedCrawling(folder, server, site, url=url, workers=workers, settings=SETTINGS))
        return made[-1].start()

    yield make
    for crawl in made:
        crawl.end()


def check_polite(site, awakenings=()):
    """No host was asked more often than its delay allows, whoever asked, whatever happened between.

    Over six visits, so that a machine which is busy with all this may send one of them half a second late. But
    for what a stopped worker had begun to send: that goes out at its awakening, and nobody could hold it back.
    """
    by_host = {}
    for hit in site.hits():
        if not any(0 <= hit.received - moment < AWAKENING for moment in awakenings):
            by_host.setdefault(hit.host, []).append(hit.received)
    assert len(by_host) == HOSTS
    times = [
        last - first for times in by_host.values() for first, last in zip(times, times[5:], strict=False)
    ]
    assert min(times) >= 5 * DELAY, sorted(times)[:5]


def kill_one(rng, machines):
    """SIGKILL any worker of any machine; returns whether there was one."""
    workers = [worker for one in machines for worker in one.workers()]
    with contextlib.suppress(psutil.NoSuchProcess, IndexError):
        rng.choice(workers).kill()
        return True
    return False


def test_thirty_kills_while_machines_join_and_leave(machine, make_server, site, truth):
    rng = random.Random(30)
    server = make_server("valkey")
    machines = [machine(server, 4)]
    kills = 0
    for number in range(30):
        moment = 100 + number * (PAGES - 400) // 30
        if not machines[0].wait_for(lambda moment=moment: served(site) >= moment, f"{moment} requests"):
            break
        if number in (8, 16):
            machines.append(machine(server, 2))
        if number == 20:
            kills += machines[1].kill_all()
            machines[1].start()
        else:
            kills += kill_one(rng, machines)
    assert [one.wait() for one in machines] == [0] * 3, "\n".join(one.errors for one in machines)
    assert kills >= 25
    assert all(one.urls() for one in machines), "each of them took part"
    check_exact(Machines(machines), *truth)
    check_polite(site)


def test_a_server_that_dies_and_a_network_that_breaks_and_workers_that_sleep(
    machine, make_server, site, truth
):
    rng = random.Random(5)
    server = make_server("redis")
    with relay_thread(server.port) as (relay, do):
        near, far = machine(server, 2), machine(server, 2, url=f"{relay.url}?socket_timeout=1.5")

        def hold_back(seconds):
            do("pause")
            time.sleep(seconds)
            do("resume")

        def fill_up():
            server.ask("CONFIG", "SET", "maxmemory", "1mb")
            time.sleep(1.5)
            server.ask("CONFIG", "SET", "maxmemory", "0")

        def restart():
            server.kill()
            time.sleep(0.5)
            server.start()

        troubles = [
            lambda: do("cut"), restart, lambda: hold_back(1.0), lambda: near.pause_worker(rng, LEASE + 1.5),
            fill_up, lambda: do("cut"), lambda: far.kill_worker(rng), lambda: hold_back(LEASE + 1.0), restart,
            lambda: do("cut"), lambda: far.pause_worker(rng, LEASE + 1.5), restart, lambda: do("cut"),
        ]  # fmt: skip
        for number, trouble in enumerate(troubles):
            moment = (number + 1) * PAGES // (len(troubles) + 2)
            assert near.wait_for(lambda moment=moment: served(site) >= moment, f"{moment} requests")
            trouble()
        assert [near.wait(), far.wait()] == [0, 0], near.errors + far.errors
        assert relay.connections > 4
    assert near.urls()
    assert far.urls()
    for errors in (near.errors, far.errors):
        assert "Traceback" not in errors
        assert "it does not answer" in errors
        assert "is back after" in errors
    assert "its memory is full" in near.errors + far.errors
    check_exact(Machines([near, far]), *truth)
    check_polite(site, near.awakenings + far.awakenings)
