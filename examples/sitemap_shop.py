"""The pages that a sitemap lists: recent products and pages, each with its own callback."""

from skitter import SitemapSpider


class Shop(SitemapSpider):
    sitemap_urls = ["http://127.0.0.1:8000/robots.txt"]
    sitemap_rules = [("/product/", "parse_product"), ("/page/", "parse")]
    sitemap_follow = ["/map"]
    sitemap_alternate_links = True

    def __init__(self, site="", **arguments):
        super().__init__(**arguments)
        if site:  # -a site=http://...
            self.sitemap_urls = [f"{site}/robots.txt"]

    def sitemap_filter(self, entries):
        for entry in entries:
            if not entry.lastmod or entry.lastmod >= "2026":
                yield entry

    def parse(self, response):
        yield {"page": response.url}

    def parse_product(self, response):
        yield {"product": response.url}
