"""Scrapy on the same job, tuned: everything off that the job does not need, uvloop underneath.

Usage: ``python scrapy_driver.py URL OUT.jsonl [CONCURRENCY [SCHEDULER [FRONTIER]]]``. The scheduler is ``memory`` (the default),
``jobdir`` or ``skitter``, and the frontier a URL of skitter.
"""

import sys
from urllib.parse import urlsplit

import scrapy
from scrapy.crawler import CrawlerProcess


class Titles(scrapy.Spider):
    name = "titles"

    def __init__(self, start, **kwargs):
        super().__init__(**kwargs)
        self.first = start
        self.allowed_domains = [urlsplit(start).hostname]

    async def start(self):
        # Unlike ``start_urls`` this passes the duplicate filter, so that no page is fetched twice.
        yield scrapy.Request(self.first)

    def parse(self, response):
        yield {"url": response.url, "title": response.css("title::text").get()}
        # Repeats on one page are dropped first, which helps Scrapy.
        for href in dict.fromkeys(response.css("a::attr(href)").getall()):
            if not href.startswith(("#", "mailto:", "javascript:")):
                yield response.follow(href, callback=self.parse)


def settings(path, concurrency):
    middlewares = "scrapy.downloadermiddlewares"
    off = ["cookies.CookiesMiddleware", "httpproxy.HttpProxyMiddleware", "redirect.MetaRefreshMiddleware"]
    return {
        "FEEDS": {path: {"format": "jsonlines", "overwrite": True}},
        "CONCURRENT_REQUESTS": concurrency,
        "CONCURRENT_REQUESTS_PER_DOMAIN": concurrency,
        "DOWNLOAD_DELAY": 0,
        "DOWNLOAD_TIMEOUT": 15,
        "ROBOTSTXT_OBEY": False,
        "RETRY_ENABLED": False,
        "COOKIES_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False,
        "EXTENSIONS": dict.fromkeys(
            ["scrapy.extensions.telnet.TelnetConsole", "scrapy.extensions.logstats.LogStats"]
        ),
        "DOWNLOADER_MIDDLEWARES": dict.fromkeys(f"{middlewares}.{name}" for name in off),
        "SPIDER_MIDDLEWARES": {"scrapy.spidermiddlewares.referer.RefererMiddleware": None},
        "ASYNCIO_EVENT_LOOP": "uvloop.Loop",
        "TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor",
        "LOG_LEVEL": "ERROR",
    }


LEASE_SECONDS = 5
"""As in ``beside_scrapy_redis.py``."""
SCHEDULERS = {
    "memory": {},
    "jobdir": {"JOBDIR": "jobdir"},
    "skitter": {"ADDONS": {"skitter.scrapy.Addon": 0}},
}


def main():
    start, path, *rest = sys.argv[1:]
    concurrency, scheduler = int(rest[0]) if rest else 32, rest[1] if len(rest) > 1 else "memory"
    chosen = dict(SCHEDULERS[scheduler])
    if len(rest) > 2:
        chosen |= {"SKITTER_FRONTIER": rest[2], "SKITTER_SETTINGS": {"lease_seconds": LEASE_SECONDS}}
    process = CrawlerProcess(settings(path, concurrency) | chosen)
    process.crawl(Titles, start=start)
    process.start()


if __name__ == "__main__":
    main()
