"""Follow links up to two steps from the start URL, which has depth 0."""

import sys

from skitter import Collector

crawler = Collector(depth_limit=2)


@crawler.on_html("a[href]")
def follow(element):
    element.request.visit(element.attr("href"))


@crawler.on_response
def page(response):
    print(response.request.depth, response.url)


if __name__ == "__main__":
    crawler.visit(sys.argv[1])
    crawler.run()
