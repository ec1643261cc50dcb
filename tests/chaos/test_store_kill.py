"""Kill test of the stores on servers: workers, owner and server are killed, and each item is stored exactly once."""

import json
import os
import random
import sqlite3
import uuid
from contextlib import closing
from pathlib import Path

import pytest
from crawling import FAST, ROUNDS, Crawling, at_moments, check_exact, served

from services.store_servers import MariaServer, MongoServer, PostgresServer, running

pytestmark = pytest.mark.chaos

EXAMPLES = Path(__file__).parents[2] / "examples/plugins"
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
    if kind in ("postgresql", "mysql"):
        return f"{server.url}?table={name}"
    return server.place(f"{name}/{kind[3:]}") + "&flush=0.2"


@pytest.mark.parametrize("seed", ROUNDS)
@pytest.mark.parametrize(
    "kind", ["mongodb", "mongodb?flush=0.3", "postgresql", "mysql", "s3:items.jsonl.gz", "items.parquet"]
)
def test_killed_workers_and_owners_lose_and_duplicate_nothing(kind, seed, job, site, truth):
    rng = random.Random(f"{kind} {seed}")
    crawl = job(kind if kind == "items.parquet" else fresh(kind))
    crawl.start()
    kills = [lambda: crawl.kill_worker(rng)] * 2 + [crawl.kill_owner]
    moments = at_moments(crawl, site, sorted(rng.sample(range(PAGES * 2 // 3), 3)))
    assert [kill() for _, kill in zip(moments, kills, strict=True)] == [True] * 3
    assert crawl.run() == 0, crawl.errors
    check_exact(crawl, *truth)


class ToRows(Crawling):
    """A crawl whose items go to the one-method store of the examples."""

    def items(self):
        with closing(sqlite3.connect(self.folder / "rows.db")) as database:
            return [json.loads(item) for (item,) in database.execute("SELECT item FROM pages")]


def test_killed_workers_and_owners_lose_and_duplicate_nothing_in_a_store_with_one_method(
    site, truth, tmp_path, monkeypatch
):
    monkeypatch.setenv("PYTHONPATH", f"{EXAMPLES}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    rng = random.Random("one method")
    place = f"row_store:RowStore:{tmp_path / 'rows.db'}"
    crawl = ToRows(
        tmp_path, "Everything", workers=2, settings=FAST, arguments={"url": site.url}, output="unused.jsonl"
    )
    crawl.command[crawl.command.index("-o") + 1] = place
    crawl.start()
    kills = [lambda: crawl.kill_worker(rng)] * 3 + [crawl.kill_owner]
    moments = at_moments(crawl, site, sorted(rng.sample(range(PAGES * 2 // 3), 4)))
    assert [kill() for _, kill in zip(moments, kills, strict=True)] == [True] * 4
    assert crawl.run() == 0, crawl.errors
    check_exact(crawl, *truth)


@pytest.mark.parametrize("kind", ["mongodb", "postgresql", "mysql"])
def test_a_database_that_is_killed_in_mid_crawl_loses_and_duplicates_nothing(kind, job, site, truth):
    server = {
        "mongodb": lambda: MongoServer("--sync-on-commit"), "postgresql": PostgresServer, "mysql": MariaServer,
    }[kind]()  # fmt: skip
    try:
        crawl = job(fresh(kind, server.start()))
        crawl.start()
        for _ in at_moments(crawl, site, [PAGES // 3]):
            server.kill()
        assert crawl.wait_for(lambda: "is unavailable" in crawl.errors, "its word that it waits")
        server.start()
        assert crawl.wait() == 0, crawl.errors
        assert "is back" in crawl.errors
        check_exact(crawl, *truth)
    finally:
        server.stop()


def test_a_wrong_place_ends_the_command_before_anything_is_fetched(job, site):
    places = (
        "mongodb://127.0.0.1:1/shop/items?serverSelectionTimeoutMS=200",
        "postgresql://me@127.0.0.1:1/shop",
        "mysql://me@127.0.0.1:1/shop",
    )
    for number, place in enumerate(places, 1):
        crawl = job(place)
        assert crawl.run() == 2
        assert len(crawl.errors.splitlines()) <= number, crawl.errors
        assert "Traceback" not in crawl.errors
    assert served(site) == 0
