"""How long the requests of dead workers wait until others continue them, and what heartbeats cost. See README.md."""

import argparse
import asyncio
import contextlib
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # servers
sys.path.insert(0, str(Path(__file__).parents[1] / "tests/chaos"))  # sites and crawls

from crawling import FAST, Crawling, served
from shared_crawling import ClusterCrawling, SharedCrawling

from services import nsq_servers
from services.redis_cluster import ClusterServers
from services.redis_servers import server_of
from skitter.testing import SiteProcess

TESTS = Path(__file__).parents[1] / "tests"
PAGES, HOSTS, BEFORE = 2000, 2, 60
PAGE_SECONDS = 0.3
"""Time in which the site responds, so that pages are in flight at every moment."""
SITE = {"pages": PAGES, "every": 40, "hosts": HOSTS, "page_bytes": 3000, "links_per_page": 20}
BEATS = 2_000


class Scenario:
    """One frontier, with fresh folders and servers for each round."""

    def __init__(self, kind, stack):
        self._kind = kind
        self._stack = stack
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.site = stack.enter_context(
            SiteProcess(
                "dead_link_site:DeadLinkSite",
                SITE,
                search=[TESTS, TESTS / "chaos"],
                hosts=HOSTS,
                delay=PAGE_SECONDS,
            )
        )
        self._server = None
        if kind in ("redis", "nsq"):
            self._server = server_of("valkey").start()
            stack.callback(self._server.stop)
        elif kind == "cluster":
            self._cluster = ClusterServers("valkey")
            stack.callback(self._cluster.stop)
            self._cluster.start()

    def machine(self, name):
        folder = self._folder / name
        folder.mkdir()
        if self._kind == "sqlite":
            made = Crawling(folder, "Everything", workers=2, settings=FAST, arguments={"url": self.site.url})
        elif self._kind == "cluster":
            hosts = ",".join(f"127.0.0.1:{node.port}" for node in self._cluster.nodes)
            url = f"redis+cluster://{hosts}/?partitions=3"
            made = ClusterCrawling(folder, None, self.site, url=url, settings=FAST)
        else:
            url = None
            if self._kind == "nsq":
                url = (
                    f"nsq://127.0.0.1:{nsq_servers.running().port}/t{time.time_ns()}?state={self._server.url}"
                )
            made = SharedCrawling(folder, self._server, self.site, url=url, settings=FAST)
        self._stack.callback(made.end)
        return made.start()

    def wait_for_pages(self, crawl):
        """Return when a machine has its workers, and the site has responded to some more requests."""
        assert crawl.wait_for(lambda: len(crawl.workers()) == 2, "workers"), crawl.errors
        wanted = served(self.site) + BEFORE
        assert crawl.wait_for(lambda: served(self.site) >= wanted, "pages"), crawl.errors

    def wait_for_lost_leases(self, crawl, since):
        """Return the seconds from a moment until the leases of the dead are free and the site gets a request."""

        def are_free():
            with contextlib.suppress(sqlite3.OperationalError):  # the file is locked
                return crawl.counters().get("leases/lost", 0) > 0

        assert crawl.wait_for(are_free, "lost leases"), crawl.errors
        before = served(self.site)
        assert crawl.wait_for(lambda: served(self.site) > before, "a request"), crawl.errors
        return time.monotonic() - since


def worker_killed(scenario):
    crawl = scenario.machine("one")
    scenario.wait_for_pages(crawl)
    killed = time.monotonic()
    crawl.kill_worker()
    return scenario.wait_for_lost_leases(crawl, killed)


def all_killed_and_restarted(scenario):
    crawl = scenario.machine("one")
    scenario.wait_for_pages(crawl)
    crawl.kill_all()
    started = time.monotonic()
    crawl.start()
    return scenario.wait_for_lost_leases(crawl, started)


def machine_killed_for_good(scenario):
    dead = scenario.machine("dead")
    scenario.wait_for_pages(dead)  # alone, so that it holds leases
    alive = scenario.machine("alive")
    scenario.wait_for_pages(alive)
    killed = time.monotonic()
    dead.kill_all()
    return scenario.wait_for_lost_leases(alive, killed)


SCENARIOS = {
    "one worker killed": (worker_killed, ("sqlite", "redis", "cluster", "nsq")),
    "all killed, same command again": (all_killed_and_restarted, ("sqlite", "redis", "cluster", "nsq")),
    "another machine killed for good": (machine_killed_for_good, ("redis", "cluster", "nsq")),
}


async def heartbeat_cost():
    """Return the CPU of the server for one heartbeat, in microseconds."""
    from skitter.frontier.options import FrontierContext
    from skitter.frontier.redis.frontier import RedisFrontier

    with ExitStack() as stack:
        server = server_of("valkey").start()
        stack.callback(server.stop)
        frontier = RedisFrontier(server.url, FrontierContext("job"))
        await frontier.open()
        await frontier.liveness.open()
        for worker in range(100):
            await frontier.liveness.beat(f"worker-{worker}")
        before = _server_cpu(server)
        for number in range(BEATS):
            await frontier.liveness.beat(f"worker-{number % 100}")
        cost = (_server_cpu(server) - before) / BEATS * 1e6
        await frontier.liveness.close()
        await frontier.close()
        return cost


def _server_cpu(server):
    lines = server.ask("INFO", "cpu").decode().splitlines()
    figures = dict(line.split(":") for line in lines if ":" in line)
    return float(figures["used_cpu_user"]) + float(figures["used_cpu_sys"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--frontiers", nargs="+", default=["sqlite", "redis", "cluster", "nsq"])
    parser.add_argument("--cost", action="store_true", help="measure only the cost of a heartbeat")
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # otherwise each process compiles changed modules again
    if options.cost:
        print(f"server CPU per heartbeat: {asyncio.run(heartbeat_cost()):.0f} us")
        return
    for name, (measure, kinds) in SCENARIOS.items():
        for kind in (kind for kind in kinds if kind in options.frontiers):
            seconds = []
            for _ in range(options.rounds):
                with ExitStack() as stack:
                    seconds.append(measure(Scenario(kind, stack)))
            found = f"{statistics.median(seconds):.1f} s (from {min(seconds):.1f} to {max(seconds):.1f})"
            print(f"{name}, {kind}: {found}", flush=True)


if __name__ == "__main__":
    main()
