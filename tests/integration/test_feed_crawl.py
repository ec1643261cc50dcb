"""Crawls that start from feeds of all kinds fetch exactly the pages that these list."""

import json

import pytest

from crawl_harness import CrawlHarness, Scripted
from skitter import Collector, SitemapSpider, Spider
from skitter.testing import Answer

NUMBERS = range(25)
FEEDS = {
    "rss": "<rss><channel>"
    + "".join(f"<item><link>/{n}</link></item>" for n in NUMBERS)
    + "</channel></rss>",
    "atom": "<feed xmlns='http://www.w3.org/2005/Atom'>"
    + "".join(f"<entry><link rel='self' href='/no'/><link href='/{n}'/></entry>" for n in NUMBERS)
    + "</feed>",
    "json": json.dumps({"items": [{"id": str(n), "url": f"/{n}"} for n in NUMBERS]}),
    "csv": "sku;url\n" + "".join(f'"{n}";/{n}\n' for n in NUMBERS),
}


@pytest.fixture
def site(serve):
    pages = {f"/feed.{kind}": Answer(text.encode()) for kind, text in FEEDS.items()}
    xml = "<shop>" + "".join(f"<product><page>/{n}</page></product>" for n in NUMBERS) + "</shop>"
    pages["/feed.xml"] = Answer(xml.encode(), content_type="application/xml")
    return serve(Scripted({**pages, **{f"/{n}": [] for n in NUMBERS}}))


@pytest.mark.parametrize("kind", FEEDS)
async def test_a_sitemap_spider_fetches_the_pages_of_a_feed(site, tmp_path, kind):
    class Pages(SitemapSpider):
        sitemap_urls = (f"{site.url}feed.{kind}",)

        def parse(self, response):
            yield {"url": response.url}

    ran = await CrawlHarness(Pages, tmp_path, delay=0).run()
    assert sorted(item["url"] for item in ran.items) == sorted(f"{site.url}{n}" for n in NUMBERS)
    assert ran.letters == {}


async def test_callbacks_read_rows_and_xml_feeds(site, tmp_path):
    class Files(Spider):
        start_urls = (f"{site.url}feed.csv", f"{site.url}feed.xml")

        def parse(self, response):
            if response.url.endswith(".csv"):
                yield from response.csv_rows()
            else:
                yield response.follow_all(response.xpath("//product/page/text()"), self.product)

        def product(self, response):
            yield {"product": response.url}

    ran = await CrawlHarness(Files, tmp_path, delay=0).run()
    assert {item["sku"]: item["url"] for item in ran.items if "sku" in item} == {
        str(n): f"/{n}" for n in NUMBERS
    }
    assert sorted(item["product"] for item in ran.items if "product" in item) == sorted(
        f"{site.url}{n}" for n in NUMBERS
    )


async def test_a_collector_visits_the_entries_of_a_feed(site, tmp_path):
    crawler = Collector()

    @crawler.seeds
    def begin():
        yield f"{site.url}feed.atom"

    @crawler.on_response
    def read(response):
        if "feed" not in response.url:
            yield {"url": response.url}
            return
        for entry in response.response.feed():
            response.request.visit(entry.url)

    output = tmp_path / "x.jsonl"
    await crawler.crawl(outputs=[str(output)], settings={"delay": 0}, home=str(tmp_path))
    found = [json.loads(line)["url"] for line in output.read_text().splitlines()]
    assert sorted(found) == sorted(f"{site.url}{n}" for n in NUMBERS)
