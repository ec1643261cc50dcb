"""Spiders that the chaos tests run in separate processes."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from skitter import Request, SitemapSpider, Spider

sys.path.append(str(Path(__file__).parents[1]))
from sites.shop import ShopSpider


class Everything(Spider):
    """Yields one item for each page and follows all links. ``url``: the start URLs, separated by spaces."""

    url = ""

    async def start(self):
        for url in self.url.split():
            yield Request(url)

    def parse(self, response):
        title = response.css("title::text").get() if response.is_html else None
        yield {"url": response.url, "title": title, "links": len(response.hrefs())}
        yield response.follow_all("a")


class Texts(Everything):
    """Yields the main content of each page."""

    async def parse(self, response):
        yield await response.main_content("text")
        yield response.follow_all("a")


class Counted(Everything):
    """Counts its pages and the characters of their titles. One of its monitors is violated."""

    monitors = ("stat(seen) == pages", "coverage(title) == 1", {"name": "broken", "rule": "items >= 1000000"})

    def parse(self, response):
        item, links = super().parse(response)
        self.stats.inc_value("seen")
        self.stats.inc_value("characters", len(item["title"]))
        yield item
        yield links


class MonitoredShop(ShopSpider):
    """The shop with a monitor for each fault."""


class Heavy(Everything):
    """Like ``Everything``, with the page several times in each item, so that items are much larger than the frontier file."""

    def parse(self, response):
        item, links = super().parse(response)
        yield {**item, "text": response.text * 6}
        yield links


class Poisoned(Everything):
    """Kills its process on pages whose URL ends with ``poison``."""

    poison = ""

    def parse(self, response):
        if response.url.endswith(self.poison):
            os.kill(os.getpid(), signal.SIGKILL)
        yield from super().parse(response)


class HeldSeeds(Everything):
    """Reads the elements of seed keys. The first process that reads one stops there until the file ``go_on`` exists.

    The file ``held`` then holds the id of that process.
    """

    def make_request_from_data(self, data):
        try:
            with Path("held").open("x") as file:
                file.write(str(os.getpid()))
        except FileExistsError:
            return Request(data.decode(), dont_filter=True)
        while not Path("go_on").exists():
            time.sleep(0.01)
        return Request(data.decode(), dont_filter=True)


class Sleepy(Everything):
    """Stops the first worker that reads the page whose URL ends with ``stop_at``.

    The file ``stopped`` then contains the process id of that worker. A dead link that is requested late keeps the
    crawl from ending meanwhile.
    """

    stop_at = ""
    stopped = ""

    async def start(self):
        yield self.url
        yield Request(f"{self.url}late", delay=4)

    def parse(self, response):
        if response.url.endswith(self.stop_at) and not Path(self.stopped).exists():
            draft = Path(f"{self.stopped}.tmp")
            draft.write_text(str(os.getpid()))
            draft.rename(self.stopped)
            os.kill(os.getpid(), signal.SIGSTOP)
        yield from super().parse(response)


class ManySeeds(Spider):
    """Yields ``count`` seeds as a stream. Follows no links."""

    url = ""
    count = "0"

    async def start(self):
        for number in range(int(self.count)):
            if number % 100 == 0:
                await asyncio.sleep(0)
            yield f"{self.url}?seed={number}"

    def parse(self, response):
        yield {"url": response.url}


class LoggedIn(Everything):
    """Like ``Everything``, but each request uses the session of its parent page."""

    def parse(self, response):
        yield {"url": response.url}
        yield response.follow_all("a", session=response.request.session)


class Stages(Spider):
    """Uses two queues: list pages, and the pages that they link to. Each item contains the process that fetched its page."""

    url = ""

    async def start(self):
        yield Request(f"{self.url}list/0", queue="list")

    def parse(self, response):
        yield {"url": response.url, "queue": response.request.queue, "worker": os.getpid()}
        yield response.follow_all("a.next, a.more")
        yield response.follow_all("a.detail", queue="detail")


class Archive(Spider):
    """Yields one item for each page, with the files that the page names."""

    url = ""

    async def start(self):
        yield self.url

    def parse(self, response):
        paths = response.css("img::attr(src)").getall()
        yield {"url": response.url, "file_urls": paths}
        yield response.follow_all("a")


class Priced(Everything):
    """Yields one item for each page with a price."""

    def parse(self, response):
        if price := response.css(".price::text").get():
            yield {"url": response.url, "price": int(price)}
        yield response.follow_all("a")


class Maps(SitemapSpider):
    """Yields the text of each page of a sitemap."""

    url = ""

    async def start(self):
        self.sitemap_urls = [f"{self.url}index.xml"]
        async for request in super().start():
            yield request

    def parse(self, response):
        yield {"url": response.url, "text": response.css("p::text").get()}
