"""Follow links two steps far: the first page has depth 1."""

import sys

from skitter import Collector

crawler = Collector(max_depth=3)


@crawler.on_html("a[href]")
def follow(element):
    element.request.visit(element.attr("href"))


@crawler.on_response
def page(response):
    print(response.request.depth, response.url)


if __name__ == "__main__":
    crawler.visit(sys.argv[1])
    crawler.run()
