"""Work off a long list of URLs with two fetches at a time: the queue is the frontier, and nothing of it is lost.

Run it again after a kill and it goes on where it was; ``skitter status url_queue`` tells how far it is.
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
