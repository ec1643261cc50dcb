"""All servers that store items are away for 20 seconds during a crawl, at the same time; each item is stored exactly once."""

import json
import re
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from crawling import Crawling, at_moments, check_exact
from dead_link_site import DeadLinkSite
from redis import Redis

from services.redis_servers import RedisServer
from services.store_servers import MariaServer, MongoServer, PostgresServer, S3Server

pytestmark = pytest.mark.chaos

AWAY = 20.0
PAGES, HOLES = 240, 30
SITE = {"pages": PAGES, "every": HOLES, "hosts": 1, "page_bytes": 2000, "links_per_page": 20}
SETTINGS = {
    "robots": "no", "delay": 0, "concurrency_per_slot": 3, "concurrency": 3, "deny": "outside.invalid", "max_worker_crashes": 100,
}  # fmt: skip
SERVERS = {
    "mongodb": lambda: MongoServer("--sync-on-commit"),
    "postgresql": PostgresServer,
    "mysql": MariaServer,
    "s3": S3Server,
    "list": lambda: RedisServer("valkey", "--appendonly", "yes"),
    "stream": lambda: RedisServer("valkey", "--appendonly", "yes"),
}


class Outage(Crawling):
    """A crawl whose items go to its own server, from its own site."""

    def __init__(self, kind, folder, server, site):
        folder.mkdir()
        self.kind, self.server, self.site = kind, server, site
        super().__init__(
            folder, "Everything", settings=SETTINGS, arguments={"url": site.url}, output=self._place()
        )

    def _place(self):
        name = f"t{uuid.uuid4().hex[:12]}"
        if self.kind in ("list", "stream"):
            return f"{self.server.url}/items?type={self.kind}"
        return {
            "mongodb": lambda: f"{self.server.url}/chaos/{name}",
            "postgresql": lambda: f"{self.server.url}?table={name}",
            "mysql": lambda: f"{self.server.url}?table={name}",
            "s3": lambda: self.server.place(f"{name}/items.jsonl.gz") + "&flush=0.2",
        }[self.kind]()

    def items(self):
        if self.kind not in ("list", "stream"):
            return super().items()
        with Redis.from_url(self.server.url) as client:
            if self.kind == "list":
                return [json.loads(item) for item in client.lrange("items", 0, -1)]
            return [json.loads(fields[b"item"]) for _, fields in client.xrange("items")]

    def truth(self):
        """The available pages, and the dead links."""
        web = DeadLinkSite(**SITE)
        urls = {number: web.url(number, self.site.origins) for number in range(PAGES)}
        gone = {url for number, url in urls.items() if web.is_gone(number)}
        return set(urls.values()) - gone, gone

    def outages(self):
        """Seconds for which the crawl reports that it has waited."""
        return [float(found) for found in re.findall(r"is back after ([\d.]+) s", self.errors)]


@pytest.fixture
def outages(site_process, tmp_path):
    with ExitStack() as stack:
        crawls = []
        for kind, make in SERVERS.items():
            server = make()
            stack.callback(server.stop)
            server.start()
            bound = tmp_path / f"{kind}.bound"
            site = site_process(
                "dead_link_site:DeadLinkSite", {**SITE, "bound": str(bound)}, hosts=1, delay=0.03
            )
            site.bound = bound
            crawls.append(Outage(kind, tmp_path / kind, server, site))
            stack.callback(crawls[-1].end)
        yield crawls


def interrupt_server(crawl):
    for _ in at_moments(crawl, crawl.site, [PAGES // 4]):
        crawl.server.kill()


def test_an_outage_of_20_seconds_loses_and_duplicates_nothing(outages):
    for crawl in outages:
        crawl.start()
    with ThreadPoolExecutor(len(outages)) as each:  # waits for all crawls at once
        list(each.map(interrupt_server, outages))
    time.sleep(AWAY)  # the length of the outage is the subject of the test
    for crawl in outages:
        assert not crawl.has_ended, f"{crawl.kind}: {crawl.errors}"
        crawl.server.start()
    for crawl in outages:
        assert crawl.wait() == 0, f"{crawl.kind}: {crawl.errors}"
        check_exact(crawl, *crawl.truth())
        assert crawl.outages(), f"{crawl.kind}: {crawl.errors}"
