"""Kill test of the stores on servers: workers, owner, and the server itself; each item exactly once."""

import random
import uuid

import pytest
from crawling import FAST, ROUNDS, at_moments, check_exact, served

from services.store_servers import MongoServer, PostgresServer, running

pytestmark = pytest.mark.chaos

PAGES, HOLES, HOSTS = 200, 30, 2
SITE = {"pages": PAGES, "every": HOLES, "hosts": HOSTS, "page_bytes": 3000, "links_per_page": 20}


@pytest.fixture
def job(crawling, site):
    def make(output):
        return crawling("Everything", workers=2, settings=FAST, arguments={"url": site.url}, output=output)

    return make


def fresh(kind, server=None):
    name = f"t{uuid.uuid4().hex[:12]}"
    server = server or running(kind.partition("?")[0].partition(":")[0])
    if kind.startswith("mongodb"):
        return f"{server.url}/chaos/{name}{kind.removeprefix('mongodb')}"
    if kind.startswith("postgresql"):
        return f"{server.url}?table={name}"
    return server.place(f"{name}/{kind[3:]}") + "&flush=0.2"


@pytest.mark.parametrize("seed", ROUNDS)
@pytest.mark.parametrize(
    "kind", ["mongodb", "mongodb?flush=0.3", "postgresql", "s3:items.jsonl.gz", "items.parquet"]
)
def test_killed_workers_and_owners_lose_and_double_nothing(kind, seed, job, site, truth):
    rng = random.Random(f"{kind} {seed}")
    crawl = job(kind if kind == "items.parquet" else fresh(kind))
    crawl.start()
    kills = [lambda: crawl.kill_worker(rng)] * 2 + [crawl.kill_owner]
    moments = at_moments(crawl, site, sorted(rng.sample(range(PAGES * 2 // 3), 3)))
    assert [kill() for _, kill in zip(moments, kills, strict=True)] == [True] * 3
    assert crawl.run() == 0, crawl.errors
    check_exact(crawl, *truth)


@pytest.mark.parametrize("kind", ["mongodb", "postgresql"])
def test_a_database_that_is_killed_in_mid_crawl_loses_and_doubles_nothing(kind, job, site, truth):
    server = MongoServer("--sync-on-commit") if kind == "mongodb" else PostgresServer()
    try:
        crawl = job(fresh(kind, server.start()))
        crawl.start()
        assert crawl.wait_for(lambda: served(site) >= PAGES // 3, "a third of the requests")
        server.kill()
        assert crawl.wait_for(lambda: "is away" in crawl.errors, "its word that it waits")
        server.start()
        assert crawl.wait() == 0, crawl.errors
        assert "is back" in crawl.errors
        check_exact(crawl, *truth)
    finally:
        server.stop()


def test_a_wrong_place_ends_the_command_before_anything_is_fetched(job, site):
    for place in (
        "mongodb://127.0.0.1:1/shop/items?serverSelectionTimeoutMS=200",
        "postgresql://me@127.0.0.1:1/shop",
    ):
        crawl = job(place)
        assert crawl.run() == 2
        assert len(crawl.errors.splitlines()) <= 2, crawl.errors
        assert "Traceback" not in crawl.errors
    assert served(site) == 0
