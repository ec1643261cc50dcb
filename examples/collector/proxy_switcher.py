"""Send requests through several proxies in turn: ``python proxy_switcher.py SITE PROXY PROXY...``.

robots.txt is fetched through the proxies, too. A proxy that fails is skipped for a while, and its request uses another one.
To choose proxies yourself: ``crawler.set_proxy_func(lambda request: ...)``.
"""

import sys

from skitter import Collector

crawler = Collector(depth_limit=1, settings={"proxies": sys.argv[2:]})


@crawler.on_html("a[href]")
def follow(element):
    element.request.visit(element.attr("href"))


@crawler.on_response
def page(response):
    print(response.request.proxy, response.url)


if __name__ == "__main__":
    crawler.visit(sys.argv[1])
    crawler.run()
