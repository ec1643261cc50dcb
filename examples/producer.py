"""A crawl that takes URLs while it runs: ``python producer.py < urls.txt``."""

import asyncio
import sys

from skitter import Crawl, JobSpec, Spider
from skitter.errors import UsageError


class Titles(Spider):
    custom_settings = {"wait_for_seeds": 1}  # the crawl ends when it has had nothing to do for one second

    def parse(self, response):
        yield {"url": response.url, "title": response.css("title::text").get()}


async def main():
    spec = JobSpec(job="titles", spider=Titles, outputs=["titles.jsonl"])
    crawl = Crawl(spec, spider_class=Titles)
    running = asyncio.create_task(crawl.run())
    while line := await asyncio.to_thread(sys.stdin.readline):
        try:
            result = await crawl.add([line])  # from now on, the URL survives a kill
        except UsageError as error:  # an invalid URL, or the crawl has ended
            print(error)
        else:
            print("new" if result.added else "known", line.strip())
    print((await running).state)


if __name__ == "__main__":
    asyncio.run(main())
