"""Kill test of seeds and items in Redis: other programs push seeds and take items while workers are killed."""

import json
import random
import time
from collections import Counter

import pytest
from crawling import PATIENCE
from dead_link_site import DeadLinkSite
from shared_crawling import SharedCrawling

from cli_command import skitter
from services.redis_servers import RedisServer

pytestmark = pytest.mark.chaos

PAGES, HOLES, HOSTS = 240, 40, 2
KILLS = 6
SITE = {"pages": PAGES, "every": HOLES, "hosts": HOSTS, "page_bytes": 1000, "links_per_page": 12}
SETTINGS = {
    "robots": "no", "delay": 0, "concurrency_per_slot": 8, "concurrency": 8, "max_worker_crashes": 100, "lease_seconds": 2,
    "depth_limit": 0, "wait_for_seeds": "yes", "seed_keys": "urgent,seeds", "group_key": "task",
    "group_counter_prefix": "count:",
}  # fmt: skip


class SeededCrawling(SharedCrawling):
    """A machine that waits for seeds and pushes its items to a list."""

    def __init__(self, folder, server, site):
        super().__init__(folder, server, site, settings=SETTINGS)
        at = self.command.index(f"url={site.url}")
        self.command[at] = "url="
        self.command += ["-o", f"{server.url}/items"]


@pytest.fixture
def server():
    server = RedisServer("valkey", "--appendonly", "yes", "--appendfsync", "everysec").start()
    yield server
    server.stop()


@pytest.fixture
def machines(server, site_process, tmp_path):
    site = site_process("dead_link_site:DeadLinkSite", SITE, hosts=HOSTS, delay=0.02)
    made = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        made.append(SeededCrawling(tmp_path / name, server, site))
    yield site, made
    for machine in made:
        machine.end()


def push(server, urls, rng):
    """Add seeds in all ways that other programs can use."""
    for number, url in enumerate(urls):
        seed = json.dumps({"url": url, "meta": {"task": f"t{number % 3}"}})
        if rng.random() < 0.5:
            server.ask("ZADD", "urgent", rng.randint(-5, 5), seed)
        else:
            server.ask(rng.choice(["LPUSH", "RPUSH"]), "seeds", seed)


def test_every_seed_is_crawled_and_every_item_arrives_once_whichever_process_dies(server, machines):
    site, crawls = machines
    rng = random.Random(7)
    web = DeadLinkSite(**SITE)
    urls = [web.url(number, site.origins) for number in range(PAGES)]
    gone = {url for number, url in enumerate(urls) if web.is_gone(number)}
    rng.shuffle(urls)
    for crawl in crawls:
        crawl.start()
    taken, kills, batch = [], 0, PAGES // KILLS
    for turn in range(KILLS):
        push(server, urls[turn * batch : (turn + 1) * batch], rng)
        taken += take(server)
        victim = rng.choice(crawls)
        if turn % 3 == 2:
            kills += victim.kill_all()
            victim.start()
        else:
            kills += victim.kill_worker(rng)
    push(server, urls[KILLS * batch :], rng)
    assert kills >= KILLS - 1
    deadline = time.monotonic() + PATIENCE
    while sum(crawls[0].counts()[state] for state in ("done", "dead")) < PAGES:
        assert time.monotonic() < deadline, (crawls[0].counts(), crawls[0].errors)
        taken += take(server)
        time.sleep(0.05)
    for crawl in crawls:  # a run that starts after the stop would cancel it
        assert crawl.wait_for(crawl.workers, "a worker"), crawl.errors
    ended = skitter("stop", "job", "--frontier", server.url, cwd=crawls[0].folder.parent)
    assert ended.returncode == 0, ended.stderr
    for crawl in crawls:
        assert crawl.wait() == 0, crawl.errors
    taken += take(server)
    found = Counter(item["url"] for item in taken)
    assert set(found) == set(urls) - gone, (len(found), PAGES - len(gone))
    assert max(found.values()) == 1
    assert set(crawls[0].dead_letters()) == gone
    assert server.ask("EXISTS", "seeds", "urgent", "skitter:{job}:claimed") == 0
    plain = [int(server.ask("GET", f"count:t{number}") or 0) for number in range(3)]
    assert sum(plain) == PAGES - len(gone), "each item is counted once for its task"


def take(server):
    """Take items as a consumer does."""
    return [json.loads(item) for item in server.ask("LPOP", "items", 1000) or []]
