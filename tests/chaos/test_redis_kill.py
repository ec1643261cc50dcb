"""Kill test of the shared frontier: workers, machines and the server itself die, and nothing is lost or doubled."""

import random

import pytest
import redis
from crawling import Crawling, check_exact, served
from holey import HoleySite

from services.redis_servers import RedisServer

pytestmark = pytest.mark.chaos

PAGES, HOLES, HOSTS = 400, 40, 2
CONCURRENCY = 8
KILLS = 5
SITE = {"pages": PAGES, "every": HOLES, "hosts": HOSTS, "page_bytes": 3000, "links_per_page": 20}
SETTINGS = {
    "robots": "no", "delay": 0, "parallelism": CONCURRENCY, "concurrency": CONCURRENCY,
    "deny": "outside.invalid", "max_lost": 100, "lease_seconds": 3,
}  # fmt: skip


class SharedCrawling(Crawling):
    """A job on a server; what became of it is asked there."""

    def __init__(self, folder, server, site, workers=2, **settings):
        super().__init__(
            folder,
            "Everything",
            workers=workers,
            settings={**SETTINGS, **settings},
            arguments={"url": site.url},
        )
        self.command.append(f"--frontier={server.url}")
        self._server = server

    def _ask_server(self, *words):
        with redis.Redis.from_url(self._server.url, protocol=2) as client:
            return client.execute_command(*words)

    def dead_letters(self):
        letters = self._ask_server("ZRANGE", "skitter:{job}:dead", 0, -1)
        return {url_of(letter): "" for letter in letters}

    def counters(self):
        fields = self._ask_server("HGETALL", "skitter:{job}:counters")
        return {name.decode(): int(value) for name, value in fields.items()}

    def counts(self):
        done = int(self._ask_server("HGET", "skitter:{job}:job", "done"))
        queue, delayed, dead = (
            self._ask_server("ZCARD", f"skitter:{{job}}:{name}") for name in ("queue", "delayed", "dead")
        )
        leases = self._ask_server("HLEN", "skitter:{job}:leases")
        return {"added": done + queue + delayed + dead + leases, "done": done, "queue": queue, "delayed": delayed,
                "dead": dead}  # fmt: skip


def url_of(letter):
    from skitter.frontier.redis.records import read_letter

    return read_letter(letter).url


@pytest.fixture
def site(site_process):
    return site_process("holey:HoleySite", SITE, hosts=HOSTS, delay=0.02)


@pytest.fixture
def truth(site):
    web = HoleySite(**SITE)
    urls = {number: web.url(number, site.origins) for number in range(PAGES)}
    gone = {url for number, url in urls.items() if web.is_gone(number)}
    return set(urls.values()) - gone, gone


@pytest.fixture(params=["valkey", "redis"])
def server(request):
    server = RedisServer(request.param, "--appendonly", "yes", "--appendfsync", "everysec").start()
    yield server
    server.stop()


@pytest.fixture
def job(server, site, tmp_path):
    made = []

    def make(name="one", **options):
        folder = tmp_path / name
        folder.mkdir()
        made.append(SharedCrawling(folder, server, site, **options))
        return made[-1]

    yield make
    for crawl in made:
        crawl.end()


@pytest.mark.parametrize("victim", ["worker", "owner", "all"])
def test_nothing_is_lost_or_doubled_by_kills(job, site, truth, victim):
    rng = random.Random(victim)
    crawl = job().start()
    kills = 0
    for moment in sorted(rng.sample(range(PAGES + 1), KILLS)):
        if not crawl.wait_for(lambda moment=moment: served(site) >= moment, f"{moment} requests"):
            break
        kills += crawl.kill_worker(rng) if victim == "worker" else getattr(crawl, f"kill_{victim}")()
        if victim != "worker":
            crawl.start()
    assert crawl.wait() == 0, crawl.errors
    assert kills >= KILLS - 1
    check_exact(crawl, *truth)
