"""A Scrapy project with skitter's scheduler, run by Scrapy itself, with methods to kill it."""

import sys
from pathlib import Path

from crawling import CONCURRENCY, Crawling
from shared_crawling import SharedCrawling

SPIDER = Path(__file__).with_name("scrapy_spider.py")
SETTINGS = {
    "CONCURRENT_REQUESTS": CONCURRENCY, "CONCURRENT_REQUESTS_PER_DOMAIN": CONCURRENCY, "ROBOTSTXT_OBEY": False,
    "TELNETCONSOLE_ENABLED": False, "LOG_LEVEL": "INFO", "RETRY_TIMES": 5, "SKITTER_JOB": "job",
}  # fmt: skip


def scrapy_command(site, output, settings, urls=()):
    """Return the command that runs the spider with skitter's scheduler. ``urls``: requested by an idle spider."""
    values = {
        **SETTINGS, "ADDONS": '{"skitter.scrapy.Addon": 0}', "SKITTER_OUTPUTS": str(output), **settings,
    }  # fmt: skip
    command = [sys.executable, "-m", "scrapy", "runspider", str(SPIDER), "-a", f"url={site.url}"]
    if urls:
        command += ["-a", f"_urls={' '.join(urls)}"]
    for name, value in values.items():
        command += ["-s", f"{name}={value}"]
    return command


class ScrapyCrawling(Crawling):
    """A crawl by one Scrapy process."""

    def __init__(self, folder, site, *, output="items.jsonl", settings=(), urls=()):
        super().__init__(folder, "", output=output)
        self.command = scrapy_command(site, self.output, dict(settings), urls)


class SharedScrapyCrawling(SharedCrawling):
    """A crawl by one of several Scrapy processes that share a server."""

    def __init__(self, folder, server, site, *, output="items.jsonl", settings=(), name="stderr", urls=()):
        super().__init__(folder, server, site, output=output)
        self.errors_file = folder / f"{name}.txt"
        self.command = scrapy_command(
            site, self.output, {"SKITTER_FRONTIER": server.url, **dict(settings)}, urls
        )
