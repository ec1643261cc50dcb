"""Follow every link of a site and print each page: ``python basic.py http://127.0.0.1:8000/``."""

import sys

from skitter import Collector

crawler = Collector(allowed_domains=["127.0.0.1"])


@crawler.on_request
def announce(request):
    print("visiting", request.url)


@crawler.on_html("a[href]")
def follow(element):
    print("found", element.text, "->", element.attr("href"))
    element.request.visit(element.attr("href"))


if __name__ == "__main__":
    crawler.visit(sys.argv[1])
    summary = crawler.run()
    print(summary.state, summary.counters["pages"])
