"""A Scrapy spider for the kill tests: requests every page once, with arguments, coroutines and an errback."""

from urllib.parse import urldefrag

import scrapy
from scrapy import signals
from scrapy.exceptions import DontCloseSpider

BATCH = 20


class Everything(scrapy.Spider):
    """Follows all links. With ``_urls``, it follows none, and requests a batch of these whenever it is idle."""

    name = "everything"
    _urls = ""

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider.waiting = spider._urls.split()
        crawler.signals.connect(spider.feed, signals.spider_idle)
        return spider

    def feed(self):
        batch, self.waiting = self.waiting[:BATCH], self.waiting[BATCH:]
        for url in batch:
            self.crawler.engine.crawl(scrapy.Request(url, errback=self.failed))
        if batch:  # after a kill, all URLs of a batch may be known
            raise DontCloseSpider

    async def start(self):
        # Unlike start_urls, this uses the duplicate filter, so that no page is fetched twice.
        yield scrapy.Request(self.url, errback=self.failed)

    def parse(self, response):
        yield {"url": response.url, "title": response.css("title::text").get()}
        if self._urls:
            return
        for href in response.css("a::attr(href)").getall():
            url = urldefrag(response.urljoin(href)).url  # a dead letter keeps the fragment of its first link
            if url.startswith("http://127.0.0."):
                yield scrapy.Request(
                    url, errback=self.failed, cb_kwargs={"parent": response.url}, callback=self.parse_linked
                )

    async def parse_linked(self, response, parent):
        assert parent.startswith("http://127.0.0.")
        for result in self.parse(response):
            yield result

    def failed(self, failure):
        self.logger.info("failed: %s", failure.value)
