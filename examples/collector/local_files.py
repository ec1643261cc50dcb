"""Crawl the HTML files of a folder: ``python local_files.py FOLDER``.

A local server serves the files during the crawl, to this machine only. Links, robots.txt and scope therefore work as on the
web, and no web page can lead a crawl to the files of this machine, which a ``file:`` scheme would allow.
"""

import sys

from skitter import Collector
from skitter.testing import SiteServer, StaticSite

crawler = Collector(allowed_domains=["127.0.0.1"], settings={"delay": 0})


@crawler.on_html("a[href]")
def follow(element):
    element.request.visit(element.attr("href"))


@crawler.on_html("h1")
def heading(element):
    print(element.text)


if __name__ == "__main__":
    with SiteServer(StaticSite(sys.argv[1])) as server:
        crawler.visit(server.url + "index.html")
        crawler.run()
