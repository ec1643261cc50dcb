"""Scrapy-Redis on the same job, tuned as ``scrapy_driver.py`` is.

Usage: ``python scrapy_redis_driver.py OUT.jsonl REDIS_URL feed|pipeline URL IDLE_SECONDS``. The seed is taken from the list
``titles:start_urls``. Items go to a feed file, or by the pipeline of Scrapy-Redis to the list ``titles:items``.
"""

import sys

from scrapy import Request
from scrapy.crawler import CrawlerProcess
from scrapy_driver import Titles, settings
from scrapy_redis.spiders import RedisMixin


class Shared(RedisMixin, Titles):
    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider.setup_redis(crawler)
        return spider

    async def start(self):
        for request in self.next_requests():
            yield request

    def make_request_from_data(self, data):
        # Passes the duplicate filter, so that the first page is not fetched twice.
        return Request(data.decode())


def shared_settings(path, redis_url, items, idle):
    extra = {
        "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
        "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
        "SCHEDULER_PERSIST": True,
        "REDIS_URL": redis_url,
        "MAX_IDLE_TIME_BEFORE_CLOSE": idle,
    }
    if items == "pipeline":
        extra |= {"FEEDS": {}, "ITEM_PIPELINES": {"scrapy_redis.pipelines.RedisPipeline": 300}}
    return settings(path, 32) | extra


def main():
    path, redis_url, items, start, idle = sys.argv[1:]
    process = CrawlerProcess(shared_settings(path, redis_url, items, int(idle)))
    process.crawl(Shared, start=start)
    process.start()


if __name__ == "__main__":
    main()
