"""Crawl the HTML files of a folder: ``python local_files.py FOLDER``.

They are served on this machine alone for the time of the crawl. So links, robots.txt and scope mean what they mean on the
web, and no page of the web can ever lead a crawl to the files of this machine, as it could if ``file:`` were a scheme like
any other.
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
