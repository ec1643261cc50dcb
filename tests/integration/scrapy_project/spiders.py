"""Spiders with common features of Scrapy projects. Items contain the path of a page, without the port."""

import os
import signal
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import scrapy
from scrapy import signals
from scrapy.exceptions import CloseSpider, DontCloseSpider
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule, SitemapSpider


class Product(scrapy.Item):
    path = scrapy.Field()
    price = scrapy.Field(serializer=lambda value: f"{value} EUR")
    weight = scrapy.Field(serializer=int)
    checked = scrapy.Field()


@dataclass
class Note:
    path: str
    text: str
    checked: bool = False


def path_of(response):
    parts = urlsplit(response.url)
    return parts.path + (f"?{parts.query}" if parts.query else "")


class Mixed(scrapy.Spider):
    """Items of all kinds, retries, redirects, failures, forms and arguments."""

    name = "mixed"

    def __init__(self, url, **arguments):
        super().__init__(**arguments)
        self.start_urls = [url]

    def parse(self, response):
        yield {"path": path_of(response), "depth": response.meta["depth"]}
        for path in (
            "/retried",
            "/always-busy",
            "/moved",
            "/moved-known",
            "/gone",
            "/forbidden",
            "/plain",
            "/odd",
        ):
            yield response.follow(path, self.parse_page, errback=self.failed)
        yield response.follow("/plain", self.parse_page)  # a known URL
        for number in (1, 2):
            yield response.follow("/again", self.parse_page, dont_filter=True, cb_kwargs={"number": number})
        yield scrapy.FormRequest(response.urljoin("/form"), formdata={"a": "1"}, callback=self.parse_form)
        yield scrapy.FormRequest(response.urljoin("/form"), formdata={"a": "2"}, callback=self.parse_form)
        yield scrapy.http.JsonRequest(response.urljoin("/form"), data={"a": [1]}, callback=self.parse_form)
        yield response.follow(
            "/product", self.parse_product, meta={"item": Product(path="/product"), "pair": (1, {2})}
        )
        yield response.follow("/raises", self.parse_raising)
        yield response.follow("/items", self.parse_items)
        yield scrapy.Request("http://127.0.0.1:9/unreachable", errback=self.failed)
        yield response.follow("/handled", self.parse_page, meta={"handle_httpstatus_list": [404]})
        yield response.follow("/coroutine", self.parse_later)

    def parse_page(self, response, number=0):
        yield {
            "path": path_of(response),
            "status": response.status,
            "number": number,
            "retries": response.meta.get("retry_times", 0),
        }

    def parse_form(self, response):
        yield {"path": path_of(response), "body": response.text}

    def parse_product(self, response):
        item, pair = response.meta["item"], response.meta["pair"]
        assert isinstance(item, Product)
        assert pair == (1, {2})
        item["price"] = 7
        yield item
        yield Note(path="/product", text="a note")

    def parse_raising(self, response):
        yield {"path": path_of(response)}
        yield response.follow("/after-error", self.parse_page)
        raise ValueError("a callback that fails")

    def parse_items(self, response):
        yield {"path": "dropped", "drop": True}
        yield {"path": "kept"}
        yield scrapy.Request(response.urljoin("/heavy"), self.parse_heavy)
        yield {"path": "broken", "broken": True}

    def parse_heavy(self, response):
        yield Product(path="/heavy", weight="no number")
        yield Note(path="/heavy", text="beside it")
        yield {"path": "/heavy", "value": object()}
        yield response.follow("/after-heavy", self.parse_page)

    async def parse_later(self, response):
        yield {"path": path_of(response)}
        yield response.follow("/after-coroutine", self.parse_page)

    def failed(self, failure):
        response = getattr(failure.value, "response", None)
        yield {"path": urlsplit(failure.request.url).path, "failed": response.status if response else 0}
        yield scrapy.Request(self.start_urls[0] + "after-failure", self.parse_page)


class Ruled(CrawlSpider):
    name = "ruled"
    rules = (
        Rule(LinkExtractor(allow="/list/"), follow=True),
        Rule(LinkExtractor(allow="/entry/"), callback="parse_entry", cb_kwargs={"word": "entry"}),
    )

    def __init__(self, url, **arguments):
        super().__init__(**arguments)
        self.start_urls = [f"{url}list/0"]
        self.allowed_domains = ["127.0.0.1"]

    def parse_entry(self, response, word):
        yield {"path": path_of(response), "word": word, "text": response.meta["link_text"]}


class Mapped(SitemapSpider):
    name = "mapped"
    sitemap_rules = (("/entry/", "parse_entry"), ("/list/", "parse_list"))

    def __init__(self, url, **arguments):
        self.sitemap_urls = [f"{url}robots.txt"]
        super().__init__(**arguments)

    def parse_entry(self, response):
        yield {"path": path_of(response), "kind": "entry"}

    def parse_list(self, response):
        yield {"path": path_of(response), "kind": "list"}


class Sessions(scrapy.Spider):
    """Two cookie jars; each page shows the cookies that it received."""

    name = "sessions"
    url = ""

    async def start(self):
        for jar in ("a", "b"):
            yield scrapy.Request(
                f"{self.url}login?user={jar}", meta={"cookiejar": jar}, callback=self.logged_in
            )

    def logged_in(self, response):
        meta = {"cookiejar": response.meta["cookiejar"]}
        yield scrapy.FormRequest.from_response(response, callback=self.welcomed, meta=meta, dont_filter=True)

    def welcomed(self, response):
        yield {"path": path_of(response), "text": response.text, "jar": response.meta["cookiejar"]}


class Unstorable(scrapy.Spider):
    """Requests that no queue on disk can store."""

    name = "unstorable"
    url = ""

    async def start(self):
        yield scrapy.Request(self.url)
        yield scrapy.Request(self.url + "start", callback=lambda response: None)

    def parse(self, response):
        yield {"path": path_of(response)}
        yield response.follow("/lock", meta={"lock": {"inner": object()}})
        yield response.follow("/lambda", callback=lambda response: None)
        yield response.follow("/plain", callback=self.parse_plain)

    def parse_plain(self, response):
        yield {"path": path_of(response)}


class Starting(scrapy.Spider):
    """Many start requests, some of them for the same page."""

    name = "starting"
    url = ""

    async def start(self):
        for number in range(int(self.number)):
            yield scrapy.Request(
                f"{self.url}entry/{number % 50}", dont_filter=True, cb_kwargs={"number": number}
            )

    def parse(self, response, number):
        yield {"path": path_of(response), "number": number}


class StartItems(scrapy.Spider):
    """Items of all kinds between the start requests."""

    name = "start-items"
    url = ""
    number = 20

    async def start(self):
        yield Product(path="product", price=7)
        yield Note(path="note", text="an item without a response")
        yield {"path": "dropped", "drop": True}
        for number in range(int(self.number)):
            yield {"path": "item", "number": number}
            if number % 10 == 0:
                yield scrapy.Request(f"{self.url}entry/{number // 10}")

    def parse(self, response):
        yield {"path": path_of(response)}


class FailingStartItems(scrapy.Spider):
    name = "failing-start-items"
    url = ""

    async def start(self):
        yield {"path": "broken", "broken": True}
        yield {"path": "lock", "lock": object()}
        yield {"path": "whole"}


class Feeding(scrapy.Spider):
    """Takes its requests in batches from a database whenever it is idle. Its arguments may differ between processes of a job.

    ``_keep``: keep the spider open until this file exists. ``_slow``: seconds that the first batch takes.
    ``_kill``: the process dies when it is idle for this time. ``_stop``: reason to close the spider when nothing is left.
    """

    name = "feeding"
    url = _database = _keep = _stop = ""
    _slow = _kill = 0

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.feed, signals.spider_idle)
        return spider

    async def start(self):
        yield scrapy.Request(self.url + "entry/0")

    def parse(self, response):
        yield {"path": path_of(response)}

    def feed(self):
        self.crawler.stats.inc_value("idle_signals")
        if int(self._kill) == self.crawler.stats.get_value("idle_signals"):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(float(self._slow))
        self._slow = 0
        with closing(sqlite3.connect(self._database, timeout=30)) as file, file:
            query = (
                "DELETE FROM waiting WHERE number IN (SELECT number FROM waiting LIMIT 10) RETURNING number"
            )
            numbers = [number for (number,) in file.execute(query).fetchall()]
        for number in numbers:
            self.crawler.engine.crawl(scrapy.Request(f"{self.url}entry/{number}"))
        if self._keep and not Path(self._keep).exists():
            raise DontCloseSpider
        if self._stop and not numbers:
            raise CloseSpider(self._stop)


class Categories(scrapy.Spider):
    """Crawls the categories of its argument."""

    name = "categories"
    url = ""
    category = 0

    async def start(self):
        yield scrapy.Request(f"{self.url}entry/{self.category}")

    def parse(self, response):
        yield {"path": path_of(response)}


class Repeating(scrapy.Spider):
    """Requests one page several times, with priorities of any size."""

    name = "repeating"
    url = ""

    async def start(self):
        for number, priority in enumerate((0, 2**40, -(2**63) - 1, 2**64)):
            yield scrapy.Request(f"{self.url}entry/1", cb_kwargs={"number": number}, priority=priority)

    def parse(self, response, number):
        yield {"number": number}


class WithFiles(scrapy.Spider):
    """Downloads the files of its items."""

    name = "with-files"
    url = ""
    custom_settings: ClassVar = {
        "ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1},
        "FILES_STORE": "files",
        "ROBOTSTXT_OBEY": False,
    }

    async def start(self):
        yield scrapy.Request(f"{self.url}list/0")

    def parse(self, response):
        yield {"file_urls": [f"{self.url}file/{number}" for number in range(6)]}


class Opaque(scrapy.Spider):
    """Yields items for pipelines only: no output can store them."""

    name = "opaque"
    url = ""

    async def start(self):
        yield scrapy.Request(self.url)

    def parse(self, response):
        yield {"bytes": b"\xff", "page": response, "object": object()}


class Forgetful(scrapy.Spider):
    """Has a last pipeline that returns nothing."""

    name = "forgetful"
    url = ""
    custom_settings: ClassVar = {"ITEM_PIPELINES": {"scrapy_project.pipelines.Forgetting": 1}}

    async def start(self):
        yield scrapy.Request(self.url)

    def parse(self, response):
        yield {"path": path_of(response)}
        yield response.follow("/plain", self.parse_plain)

    def parse_plain(self, response):
        """Yields nothing."""


class Members(scrapy.Spider):
    """Logs in once. Each further page shows the cookies that it received."""

    name = "members"
    url = ""
    number = 40

    async def start(self):
        yield scrapy.Request(f"{self.url}login?user=a")

    def parse(self, response):
        for number in range(self.number):
            yield response.follow(f"/welcome/{number}", self.parse_page)

    def parse_page(self, response):
        yield {"path": path_of(response), "text": response.text}


class Older(scrapy.Spider):
    """Starts in the way of Scrapy before 2.13."""

    name = "older"
    url = ""

    def start_requests(self):
        yield scrapy.Request(self.url)

    def parse(self, response):
        yield {"page": response.url}
