"""Traps: nearly all real pages of a site full of traps are found early, and an ordinary site loses none."""

import pytest

from crawl_harness import CrawlHarness
from sites.trap_site import OrdinarySite, TrapSite
from skitter import Spider

FAST = {"delay": 0, "robots": False, "concurrency_per_slot": 8}


class All(Spider):
    def parse(self, response):
        yield response.follow_all("a")


@pytest.fixture
def crawl(serve, tmp_path):
    async def run(site, workers=1, **settings):
        spider = All()
        spider.start_urls = [serve(site).url]
        return await CrawlHarness(spider, tmp_path, **FAST, **settings).run(workers)

    return run


@pytest.mark.parametrize("workers", [1, 4])
async def test_nearly_all_real_pages_are_found_within_one_and_a_half_times_as_many_fetches(workers, crawl):
    site = TrapSite(1000)
    ran = await crawl(site, workers, max_pages=1500, frontier="socket")
    real = site.truth.intersection(site.fetched)
    assert len(site.fetched) <= 1500 + 10 * workers
    assert len(real) >= 0.99 * 1000, {name: n for name, n in ran.counters.items() if "refused" in name}


async def test_without_the_detection_the_traps_take_most_of_the_fetches(crawl):
    site = TrapSite(1000)
    await crawl(site, max_pages=1500, trap_detection=False)
    assert len(site.truth.intersection(site.fetched)) < 0.7 * 1000


async def test_an_ordinary_site_loses_no_page(crawl):
    site = OrdinarySite(900)
    ran = await crawl(site)
    assert set(site.fetched) >= site.truth
    assert [name for name in ran.counters if name.startswith("refused/trap")] == []
