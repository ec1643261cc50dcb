"""A server for items that is away in mid-crawl is told while the crawl runs: once that it is away, once that it is back."""

import json
import re
import subprocess
import time

import psutil
import pytest
from redis import Redis

from cli_command import SKITTER, SlowingSite, truth_of
from services.redis_servers import RedisServer
from skitter.testing import GeneratedSite

pytestmark = pytest.mark.chaos

SPIDER = """
from skitter import Spider

class Shop(Spider):
    start_urls = ["{url}"]
    allowed_domains = ["127.0.0.1"]

    def parse(self, response):
        yield {{"url": response.url}}
        yield response.follow_all("a")
"""


@pytest.fixture
def server():
    server = RedisServer("valkey", "--appendonly", "yes").start()
    yield server
    server.stop()


@pytest.fixture
def site(serve):
    web = GeneratedSite(pages=90, links_per_page=12, page_bytes=2000)
    slowing = SlowingSite(web, after=20)
    slowing.server = serve(slowing)
    slowing.truth = truth_of(web, slowing.server)
    return slowing


class Crawl:
    def __init__(self, folder, site, *words):
        self._folder = folder
        self._words = [
            *SKITTER, "run", "shop.py", "--no-robots", "--delay", "0", "-s", "parallelism=2", *words
        ]  # fmt: skip
        (folder / "shop.py").write_text(SPIDER.format(url=site.server.url))

    def __enter__(self):
        with (self._folder / "log").open("w") as log, (self._folder / "out").open("w") as out:
            self.process = subprocess.Popen(
                self._words, cwd=self._folder, stdout=out, stderr=log, start_new_session=True
            )
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            psutil.Process(self.process.pid).kill()
        self.process.wait()

    @property
    def log(self):
        return (self._folder / "log").read_text()

    @property
    def out(self):
        return (self._folder / "out").read_text().splitlines()

    def wait_for(self, fact):
        deadline = time.monotonic() + 60
        while not fact():
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.02)  # between two looks at another process


def length(server):
    with Redis(port=server.port) as client:
        return client.llen("items")


def pushed(server):
    with Redis(port=server.port) as client:
        return sorted(json.loads(item)["url"] for item in client.lrange("items", 0, -1))


def test_a_list_that_is_away_is_told_while_the_crawl_goes_on(server, site, tmp_path):
    place = f"127.0.0.1:{server.port}/0"
    with Crawl(tmp_path, site, "-o", f"redis://{place}/items", "-o", "-") as crawl:
        crawl.wait_for(lambda: length(server) > 5)
        server.kill()
        crawl.wait_for(lambda: f"{place} is away (" in crawl.log)
        printed = len(crawl.out)
        crawl.wait_for(lambda: len(crawl.out) > printed + 5)  # the other output goes on
        assert "is back after" not in crawl.log
        server.start()
        crawl.wait_for(lambda: f"{place} is back after" in crawl.log)
        site.go_on.set()
        assert crawl.process.wait(60) == 0, crawl.log
    told = re.findall(rf"{place} is (?:away|back)", crawl.log)
    assert told == [f"{place} is away", f"{place} is back"], crawl.log
    assert pushed(server) == site.truth
    assert sorted(json.loads(line)["url"] for line in crawl.out) == site.truth


def test_a_list_that_takes_nothing_is_told_once_and_filled_when_it_does_again(server, site, tmp_path):
    place = f"127.0.0.1:{server.port}/0"
    with Crawl(tmp_path, site, "-o", f"redis://{place}/items") as crawl:
        crawl.wait_for(lambda: length(server) > 5)
        server.ask("CONFIG", "SET", "maxmemory", "1")
        crawl.wait_for(lambda: f"{place} takes no items (" in crawl.log)
        server.ask("CONFIG", "SET", "maxmemory", "0")
        crawl.wait_for(lambda: f"{place} is back after" in crawl.log)
        site.go_on.set()
        assert crawl.process.wait(60) == 0, crawl.log
    assert crawl.log.count("takes no items") == crawl.log.count("is back after") == 1
    assert pushed(server) == site.truth
