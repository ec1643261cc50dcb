"""Crawlee on the same job, over HTTP: everything in memory, parsed by Parsel, uvloop underneath.

Usage: ``python crawlee_driver.py URL OUT.jsonl [CONCURRENCY]``.
"""

import json
import logging
import sys
from datetime import timedelta
from pathlib import Path

import uvloop
from crawlee import ConcurrencySettings
from crawlee.crawlers import ParselCrawler, ParselCrawlingContext
from crawlee.storage_clients import MemoryStorageClient


async def crawl(start, out, concurrency):
    # Crawlee may not slow down because the machine is busy: the comparison is about CPU time.
    crawler = ParselCrawler(
        storage_client=MemoryStorageClient(),
        concurrency_settings=ConcurrencySettings(
            min_concurrency=concurrency, desired_concurrency=concurrency, max_concurrency=concurrency
        ),
        max_request_retries=0,
        request_handler_timeout=timedelta(seconds=60),
        use_session_pool=False,
        configure_logging=False,
    )

    @crawler.router.default_handler
    async def handle(context: ParselCrawlingContext) -> None:
        title = context.selector.css("title::text").get()
        url = context.request.url.partition("#")[0]
        out.write(json.dumps({"url": url, "title": title}) + "\n")
        await context.enqueue_links(strategy="same-hostname")

    await crawler.run([start])


def main():
    start, path, *rest = sys.argv[1:]
    logging.getLogger("crawlee").setLevel(logging.ERROR)
    with Path(path).open("w", encoding="utf-8", buffering=1 << 20) as out:
        uvloop.run(crawl(start, out, int(rest[0]) if rest else 32))


if __name__ == "__main__":
    main()
