"""Kill test of the shared frontier: workers and whole machines are killed, and nothing is lost or duplicated."""

import random

import pytest
from crawling import FAST, ROUNDS, at_moments, check_exact
from shared_crawling import SharedCrawling

from services.redis_servers import KINDS, server_of

pytestmark = pytest.mark.chaos

PAGES, HOLES, HOSTS = 400, 40, 2
KILLS = 5
SITE = {"pages": PAGES, "every": HOLES, "hosts": HOSTS, "page_bytes": 3000, "links_per_page": 20}
SETTINGS = FAST | {"lease_seconds": 3}


@pytest.fixture(params=KINDS)
def server(request):
    server = server_of(request.param, "--appendonly", "yes", "--appendfsync", "everysec").start()
    yield server
    server.stop()


@pytest.fixture
def job(server, site, tmp_path):
    made = []

    def make(name="one", settings=(), **options):
        folder = tmp_path / name
        folder.mkdir()
        made.append(SharedCrawling(folder, server, site, settings=SETTINGS | dict(settings), **options))
        return made[-1]

    yield make
    for crawl in made:
        crawl.end()


@pytest.mark.parametrize("seed", ROUNDS)
@pytest.mark.parametrize(
    ("victim", "settings"),
    [("worker", {}), ("owner", {}), ("all", {}), ("worker", {"max_queued": 30})],
    ids=["worker", "owner", "all", "worker-without-room"],
)
def test_nothing_is_lost_or_duplicated_by_kills(job, site, truth, victim, settings, seed):
    rng = random.Random(f"{victim} {seed}")
    crawl = job(settings=settings).start()
    kills = 0
    for _ in at_moments(crawl, site, sorted(rng.sample(range(PAGES + 1), KILLS))):
        kills += crawl.kill_worker(rng) if victim == "worker" else getattr(crawl, f"kill_{victim}")()
        if victim != "worker":
            crawl.start()
    assert crawl.wait() == 0, crawl.errors
    assert kills >= KILLS - 1
    check_exact(crawl, *truth)
