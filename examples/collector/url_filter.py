"""Follow only URLs that pass the filters. Refused URLs are counted."""

import re
import sys

from skitter import Collector

crawler = Collector(
    url_filters=[r"/$", re.compile(r"/(SHELF|BOOK)/\d+$", re.IGNORECASE)],
    disallowed_url_filters=[r"/book/1\d$"],
)


@crawler.on_html("a[href]")
def follow(element):
    element.request.visit(element.attr("href"))


@crawler.on_response
def page(response):
    print(response.url)


if __name__ == "__main__":
    crawler.visit(sys.argv[1])
    print("refused", crawler.run().counters["refused/pattern"])
