"""Keep the crawl in Redis or Valkey. Run the same command on any number of machines.

``python redis_backend.py http://127.0.0.1:8000/ redis://127.0.0.1:6379/0``
"""

import sys

from skitter import Collector

crawler = Collector("books")


@crawler.on_html("a[href]")
def follow(element):
    element.request.visit(element.attr("href"))


@crawler.on_html("h1")
def book(element):
    return {"url": element.response.url, "title": element.text}


if __name__ == "__main__":
    crawler.visit(sys.argv[1] + "shelf/0")
    summary = crawler.run(frontier=sys.argv[2], outputs=["books.jsonl"])
    print(summary.state, summary.counters["items"])
