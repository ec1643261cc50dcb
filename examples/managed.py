"""A crawl assembled from modules, started, stopped and started again: ``python managed.py http://127.0.0.1:8000``."""

import asyncio
import sys

from skitter import HookAction
from skitter.frontends.lifecycle import Analyzer, CrawlArguments, Downloader, ManagedCrawl, Monitor, Pipeline


def titles(response):
    yield {"url": response.url, "title": response.css("title::text").get("")}


def links(response):
    yield response.follow_all("a")


def tidy(item):
    return item | {"title": item["title"].strip()}


def untitled(item):
    return None if item["title"] else HookAction.DROP


async def main(site):
    crawl = ManagedCrawl()
    await crawl.initialize(
        CrawlArguments(
            job="managed",
            downloaders=[Downloader(id="one"), Downloader(id="two")],
            analyzers=[Analyzer(titles, links)],
            pipelines=[Pipeline(tidy, untitled, fail_fast=True)],
            depth_limit=2,
            outputs=["managed.jsonl"],
            frontier="sqlite:",
            settings={"max_errors": 100},
        )
    )
    await crawl.start(site)
    await crawl.stop("time for a break")
    print(crawl.status, (await crawl.summary()).reason)
    await crawl.start()  # continues where it stopped
    await Monitor(crawl, report=lambda level, text: None if level == 0 else print(text)).run()
    print((await crawl.summary()).text())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
