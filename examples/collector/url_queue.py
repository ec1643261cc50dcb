"""Crawl a long list of URLs, two at a time. The queue is the frontier, which loses nothing.

Run the script again after a kill to continue; ``skitter status url_queue`` shows the progress.
"""

import sys

from skitter import Collector

crawler = Collector("url_queue", concurrency=2)


@crawler.seeds
def urls(site="http://127.0.0.1:8000/", count="12"):
    for number in range(int(count)):
        yield f"{site}book/{number}"


@crawler.on_html("h1")
def book(element):
    return {"url": element.response.url, "title": element.text}


if __name__ == "__main__":
    crawler.run(arguments={"site": sys.argv[1]}, frontier="sqlite:", outputs=["books.jsonl"])
