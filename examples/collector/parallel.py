"""Fetch many pages at once, with callbacks in two processes: ``python parallel.py http://127.0.0.1:8000/``.

Every crawl is parallel; limits determine how much. With several processes, each process imports this file.
"""

import sys

from skitter import Collector

crawler = Collector(concurrency=16)
crawler.limit(domain_glob="*", concurrency_per_slot=8, delay=0)


@crawler.on_html("a[href]")
def follow(element):
    element.request.visit(element.attr("href"))


@crawler.on_response
async def page(response):
    return {"url": response.url}


if __name__ == "__main__":
    crawler.visit(sys.argv[1])
    crawler.run(workers=2, outputs=["pages.jsonl"], fresh=True)
