"""A server for items that is away during a crawl is reported at once, and again when it is back."""

import json
import re

import pytest
from redis import Redis

from cli_command import SHOP, Logged, SlowingSite, expected_urls
from services.redis_servers import RedisServer
from skitter.testing import GeneratedSite

pytestmark = pytest.mark.chaos


@pytest.fixture
def server():
    server = RedisServer("valkey", "--appendonly", "yes").start()
    yield server
    server.stop()


@pytest.fixture
def site(serve):
    # Over two minutes until the test releases the responses.
    web = GeneratedSite(pages=300, links_per_page=12, page_bytes=2000)
    slowing = SlowingSite(web, after=20, delay=1.0)
    slowing.server = serve(slowing)
    slowing.truth = expected_urls(web, slowing.server)
    return slowing


def crawl(folder, site, *outputs):
    (folder / "shop.py").write_text(SHOP.format(url=site.server.url))
    words = ("run", "shop.py", "--no-robots", "--delay", 0, "-s", "concurrency_per_slot=2")
    return Logged(*words, *(word for output in outputs for word in ("-o", output)), cwd=folder)


def length(server):
    with Redis(port=server.port) as client:
        return client.llen("items")


def pushed(server):
    with Redis(port=server.port) as client:
        return sorted(json.loads(item)["url"] for item in client.lrange("items", 0, -1))


def test_an_unavailable_list_is_reported_while_the_crawl_continues(server, site, tmp_path):
    place = f"127.0.0.1:{server.port}/0"
    with crawl(tmp_path, site, f"redis://{place}/items", "-") as run:
        run.wait_for(lambda: length(server) > 5)
        server.kill()
        run.wait_for(lambda: f"{place} is unavailable (" in run.log)
        printed = len(run.out)
        run.wait_for(lambda: len(run.out) > printed + 5)  # the other output is still written
        assert "is back after" not in run.log
        server.start()
        run.wait_for(lambda: f"{place} is back after" in run.log)
        site.released.set()
        assert run.end() == 0, run.log
    reported = re.findall(rf"{place} is (?:unavailable|back)", run.log)
    assert reported == [f"{place} is unavailable", f"{place} is back"], run.log
    assert pushed(server) == site.truth
    assert sorted(json.loads(line)["url"] for line in run.out) == site.truth


def test_an_unwritable_list_is_reported_once_and_filled_later(server, site, tmp_path):
    place = f"127.0.0.1:{server.port}/0"
    with crawl(tmp_path, site, f"redis://{place}/items") as run:
        run.wait_for(lambda: length(server) > 5)
        server.ask("CONFIG", "SET", "maxmemory", "1")
        run.wait_for(lambda: f"{place} rejects items (" in run.log)
        server.ask("CONFIG", "SET", "maxmemory", "0")
        run.wait_for(lambda: f"{place} is back after" in run.log)
        site.released.set()
        assert run.end() == 0, run.log
    assert run.log.count("rejects items") == run.log.count("is back after") == 1
    assert pushed(server) == site.truth
