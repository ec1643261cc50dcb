"""End test: a crawl ends when everything is done, and not earlier."""

import json
import random

import pytest
from crawling import check_exact, served

from crawl_harness import CrawlHarness, Scripted, redirect
from skitter import Request, Spider
from skitter.frontier.records import JobState
from skitter.testing import Answer

pytestmark = pytest.mark.chaos

RETRIES = 2


class Graph:
    """A small random site: pages that fail at first or always, redirects, and links with delays."""

    def __init__(self, seed):
        rng = random.Random(seed)
        self.size = rng.randint(1, 50)
        self._kinds = [self._kind(rng) for _ in range(self.size)]
        self._kinds[0] = "page"
        self._links = [
            [(rng.randrange(self.size), rng.choice((0, 0, 0, 0.05, 0.2))) for _ in range(rng.randint(0, 4))]
            for _ in range(self.size)
        ]

    @staticmethod
    def _kind(rng):
        kinds = ("page", "fails once", "fails twice", "fails always", "redirect", "gone")
        return rng.choices(kinds, (12, 3, 1, 1, 2, 1))[0]

    def pages(self):
        return {f"/{number}": self._answers(number) for number in range(self.size)}

    def _answers(self, number):
        kind = self._kinds[number]
        if kind == "redirect":
            return redirect(f"/{self._target(number)}", status=301)
        if kind == "gone":
            return Answer(status=404)
        good = Answer(json.dumps(self._links[number]).encode(), content_type="application/json")
        bad = Answer(status=500)
        failures = {"page": 0, "fails once": 1, "fails twice": 2}
        return (*[bad] * failures[kind], good) if kind in failures else bad

    def _target(self, number):
        """Return the target of a redirect: the next page that does not redirect, so that there are no loops."""
        others = (n % self.size for n in range(number * 7 + 3, number * 7 + 3 + self.size))
        return next(n for n in others if self._kinds[n] != "redirect")

    def truth(self):
        """Return the pages that a crawl from the first page must fetch, and those that must become dead letters."""
        had, given_up, waiting, met = set(), set(), [0], {0}
        while waiting:
            number = waiting.pop()
            kind = self._kinds[number]
            reached = []
            if kind in {"fails always", "gone"}:
                given_up.add(f"/{number}")
            elif kind == "redirect":
                reached = [self._target(number)]
            else:
                had.add(f"/{number}")
                reached = [target for target, _ in self._links[number]]
            waiting += {*reached} - met
            met.update(reached)
        return had, given_up


class Follower(Spider):
    """Follows the links of a graph, some of them with a delay."""

    url = ""

    async def start(self):
        yield Request(self.url)

    def parse(self, response):
        yield {"url": response.url}
        for target, delay in response.json():
            yield response.follow(f"/{target}", delay=delay)


@pytest.mark.parametrize("frontier", ["memory", "sqlite", "socket"])
@pytest.mark.parametrize("seed", range(34))
async def test_tiny_crawls_end_exactly(serve, tmp_path, seed, frontier):
    graph = Graph(f"{seed} {frontier}")
    server = serve(Scripted(graph.pages()))
    spider = Follower(url=server.url_of("/0"))
    bench = CrawlHarness(spider, tmp_path, frontier=frontier, max_retries=RETRIES, concurrency_per_slot=4)
    ran = await bench.run(workers=1 + seed % 3)
    had, given_up = graph.truth()
    paths = sorted("/" + item["url"].rpartition("/")[2] for item in ran.items)
    assert ran.state is JobState.FINISHED
    assert paths == sorted(had)
    assert (ran.status.queued, ran.status.delayed, ran.status.leased) == (0, 0, 0)
    assert set(ran.letters) == given_up


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("pages", [1, 17, 50])
def test_tiny_crawls_in_real_processes_end_exactly(crawling, site_process, pages, workers):
    site = site_process("graphs:RingSite", {"pages": pages})
    crawl = crawling(
        "Everything", workers=workers, arguments={"url": site.url},
        settings={"robots": "no", "delay": 0.01, "retry_delay": 0.05, "max_retries": 2},
    )  # fmt: skip
    assert crawl.run() == 0, crawl.errors
    ring = [site.url_of(f"/{number}") for number in range(pages)]
    urls = crawl.urls()
    assert set(urls) == set(ring)
    assert set(urls.values()) == {1}
    assert set(crawl.dead_letters()) == {site.url_of("/never")}


def test_ten_thousand_streamed_seeds_survive_kills(crawling, site_process):
    site = site_process("graphs:RingSite", {"pages": 1})
    count = 10_000
    crawl = crawling(
        "ManySeeds", workers=2, arguments={"url": site.url_of("/0"), "count": count},
        settings={"robots": "no", "delay": 0, "concurrency_per_slot": 32},
    )  # fmt: skip
    crawl.start()
    for moment in (200, 2500):
        assert crawl.wait_for(lambda moment=moment: served(site) >= moment, f"{moment} pages")
        crawl.kill_all()
        crawl.start()
    assert crawl.wait_for(lambda: served(site) >= 5000, "5000 pages")
    crawl.kill_worker(random.Random(1))
    assert crawl.wait() == 0, crawl.errors
    check_exact(crawl, {site.url_of(f"/0?seed={number}") for number in range(count)})
