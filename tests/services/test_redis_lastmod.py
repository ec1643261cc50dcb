"""The lastmod of a sitemap on a shared frontier: one machine reads the sitemap, another one fetches the pages."""

from typing import ClassVar

from crawl_harness import QUICK
from sites.news import NewsSite, before_now
from skitter import SitemapSpider
from skitter.frontier.records import JobState
from skitter.run.crawl import Crawl
from skitter.run.job import JobSpec

DAY = 86_400
SITEMAPS = ["/index.xml", "/map0.xml.gz"]


class Maps(SitemapSpider):
    custom_settings: ClassVar = {**QUICK, "changes": "all", "use_lastmod": True, "concurrency": 1, "delay": 0}

    def parse(self, response):
        yield {"url": response.url}


async def test_the_lastmod_reaches_the_machine_that_fetches_the_page(server, serve, tmp_path, job_name):
    old = {f"/old{number}": before_now(2 * DAY) for number in range(5)}
    edited = {f"/edited{number}": before_now(2 * DAY) for number in range(5)}
    site = NewsSite({**old, **edited, "/undated": ""})
    url = serve(site).url

    async def crawl(machine, *, recrawl=False, **settings):
        spec = JobSpec(
            job=job_name, spider=Maps, frontier=server.url, home=str(tmp_path / machine), settings=settings,
            arguments={"sitemap_urls": [f"{url}index.xml"]},
        )  # fmt: skip
        return await Crawl(spec, spider_class=Maps, recrawl=recrawl).run()

    first = await crawl("one")
    assert (first.state, len(site.taken())) == (JobState.FINISHED, 13)
    site.lastmod |= {path: before_now(0) for path in edited}
    stopped = await crawl("one", recrawl=True, max_pages=14)  # the index is unchanged
    assert stopped.state is JobState.STOPPED
    assert site.taken() == SITEMAPS
    last = await crawl("two")
    assert last.state is JobState.FINISHED
    assert site.taken() == sorted([*edited, "/undated"])
    counters = last.status.counters
    assert (counters["visits/skipped"], counters["visits/unchanged"]) == (5, 7)
