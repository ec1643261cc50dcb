"""Send each request by the next of several proxies: ``python proxy_switcher.py SITE PROXY PROXY...``."""

import sys
from itertools import cycle

from skitter import Collector

crawler = Collector(max_depth=2)


@crawler.on_html("a[href]")
def follow(element):
    element.request.visit(element.attr("href"))


@crawler.on_response
def page(response):
    print(response.request.proxy, response.url)


if __name__ == "__main__":
    proxies = cycle(sys.argv[2:])
    crawler.set_proxy_func(lambda request: next(proxies))
    crawler.visit(sys.argv[1])
    crawler.run()
