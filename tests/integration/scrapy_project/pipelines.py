from itemadapter import ItemAdapter
from scrapy import Request
from scrapy.dupefilters import RFPDupeFilter
from scrapy.exceptions import DropItem


class Checked:
    def process_item(self, item, spider=None):
        adapter = ItemAdapter(item)
        if adapter.get("drop"):
            raise DropItem("not wanted")
        if adapter.get("broken"):
            raise ValueError("a pipeline that fails")
        adapter["checked"] = True
        return item


class Following:
    """Sends the engine a request that does not belong to a page."""

    def __init__(self, crawler):
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def process_item(self, item, spider=None):
        if ItemAdapter(item).get("path") == "/coroutine":
            url = f"{self.crawler.spider.start_urls[0]}from-pipeline"
            self.crawler.engine.crawl(Request(url, self.crawler.spider.parse_page))
        return item


class OddRetry:
    """Retries a request with a value that no queue on disk can store."""

    def process_response(self, request, response, spider=None):
        if response.url.endswith("/odd") and "lock" not in request.meta:
            return request.replace(dont_filter=True, meta={**request.meta, "lock": object()})
        return response


class OddFilter(RFPDupeFilter):
    """A duplicate filter of the project."""


class Forgetting:
    def process_item(self, item, spider=None):
        """Return nothing."""


class OlderStart:
    """A spider middleware in the form of Scrapy before 2.13."""

    def process_start_requests(self, start_requests, spider):
        yield from start_requests
