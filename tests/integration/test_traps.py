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
    async def run(site, **settings):
        spider = All()
        spider.start_urls = [serve(site).url]
        return await CrawlHarness(spider, tmp_path, **FAST, **settings).run()

    return run


async def test_nearly_all_real_pages_are_found_within_one_and_a_half_times_as_many_fetches(crawl):
    site = TrapSite(800)
    ran = await crawl(site, max_pages=1200)
    real = site.truth.intersection(site.fetched)
    assert len(site.fetched) <= 1210
    assert len(real) >= 0.99 * 800, {name: n for name, n in ran.counters.items() if "refused" in name}
    assert ran.counters["refused/trap_path_repeats"] > 0


async def test_without_the_detection_the_traps_take_most_of_the_fetches(crawl):
    site = TrapSite(800)
    await crawl(site, max_pages=1200, trap_detection=False)
    assert len(site.truth.intersection(site.fetched)) < 0.9 * 800


@pytest.mark.parametrize("count", [900])
async def test_an_ordinary_site_loses_no_page(crawl, count):
    site = OrdinarySite(count)
    ran = await crawl(site)
    assert set(site.fetched) >= site.truth
    assert [name for name in ran.counters if name.startswith("refused/trap")] == []
