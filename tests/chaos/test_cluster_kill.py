"""Kill test of the frontier on a cluster: workers and a master die, and nothing is lost, doubled or impolite."""

import asyncio
import random
from collections import defaultdict

import pytest
from crawling import Crawling, check_exact, served
from holey import HoleySite

from services.redis_cluster import ClusterServers

pytestmark = pytest.mark.chaos

PAGES, HOLES, HOSTS = 2000, 100, 48
CONCURRENCY = 8
KILLS = 8
PARALLELISM = 2
DELAY = 0.5
VISITS = 11
SITE = {"pages": PAGES, "every": HOLES, "hosts": HOSTS, "page_bytes": 3000, "links_per_page": 20}
SETTINGS = {
    "robots": "no", "delay": DELAY, "parallelism": PARALLELISM, "concurrency": CONCURRENCY,
    "deny": "outside.invalid", "max_lost": 100, "lease_seconds": 3,
}  # fmt: skip


class ClusterCrawling(Crawling):
    """A job on a cluster; what became of it is asked there."""

    def __init__(self, folder, cluster, site, workers):
        super().__init__(
            folder, "Everything", workers=workers, settings=SETTINGS, arguments={"url": site.url}
        )
        self._url = f"{cluster.url}?partitions=6"
        self.command.append(f"--frontier={self._url}")

    def _ask_frontier(self, question):
        from skitter.frontier.redis.cluster_frontier import RedisClusterFrontier

        async def ask():
            frontier = RedisClusterFrontier(self._url, "job")
            await frontier.open()
            try:
                return await question(frontier)
            finally:
                await frontier.close()

        return asyncio.run(ask())

    def dead_letters(self):
        letters = self._ask_frontier(lambda frontier: frontier.dead_letters(limit=PAGES))
        return {letter.url: letter.error for letter in letters}

    def counts(self):
        status = self._ask_frontier(lambda frontier: frontier.status())
        return {"added": status.added, "done": status.done, "queue": status.queued, "delayed": status.delayed,
                "dead": status.failed}  # fmt: skip


@pytest.fixture
def site(site_process):
    return site_process("holey:HoleySite", SITE, hosts=HOSTS, delay=0.005)


@pytest.fixture
def truth(site):
    web = HoleySite(**SITE)
    urls = {number: web.url(number, site.origins) for number in range(PAGES)}
    gone = {url for number, url in urls.items() if web.is_gone(number)}
    return set(urls.values()) - gone, gone


@pytest.fixture(params=["valkey", "redis"])
def cluster(request):
    servers = ClusterServers(request.param, "--appendonly", "yes")
    yield servers.start()
    servers.stop()


@pytest.fixture
def crawl(cluster, site, tmp_path):
    crawling = ClusterCrawling(tmp_path, cluster, site, workers=4)
    yield crawling
    crawling.end()


def check_politeness(site):
    """No host was asked more often than its delay allows, nor by too many at once, whoever asked.

    Over eleven visits: a machine that is busy with all this may send one of them half a second late, as much as the
    graces of ten leases.
    """
    hits = site.hits()
    by_host = defaultdict(list)
    for hit in hits:
        by_host[hit.host].append(hit.received)
    for times in by_host.values():
        times.sort()
        spans = [late - early for early, late in zip(times, times[VISITS - 1 :], strict=False)]
        assert min(spans) >= (VISITS - 1) * DELAY, sorted(spans)[:5]
    assert max(hit.in_flight for hit in hits) <= PARALLELISM


def test_nothing_is_lost_or_doubled_by_kills_of_workers_and_of_a_master(crawl, cluster, site, truth):
    rng = random.Random(4)
    crawl.start()
    moments = sorted(rng.sample(range(PAGES), KILLS))
    fail_over_at = moments[KILLS // 2]
    kills = 0
    for moment in moments:
        if not crawl.wait_for(lambda moment=moment: served(site) >= moment, f"{moment} requests"):
            break
        if moment == fail_over_at:
            rng.choice(cluster.serving()).kill()
        kills += crawl.kill_worker(rng)
    assert crawl.wait() == 0, crawl.errors
    assert kills >= KILLS - 1
    assert "is waited for" in crawl.errors
    check_exact(crawl, *truth)
    check_politeness(site)
