"""A Scrapy spider for the kill tests: every page once, with arguments, coroutines and an errback. Scrapy runs it."""

from urllib.parse import urldefrag

import scrapy


class Everything(scrapy.Spider):
    name = "everything"

    async def start(self):
        # Unlike start_urls this passes the duplicate filter, so that no page is fetched twice.
        yield scrapy.Request(self.url, errback=self.failed)

    def parse(self, response):
        yield {"url": response.url, "title": response.css("title::text").get()}
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
