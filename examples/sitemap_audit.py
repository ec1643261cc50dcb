"""Pages of a sitemap that are missing, redirected or not to be indexed: ``skitter run sitemap_audit.py -o audit.csv``."""

from skitter import SitemapSpider


class Audit(SitemapSpider):
    custom_settings = {"allowed_statuses": list(range(300, 600)), "max_retries": 1}

    def __init__(self, site="http://127.0.0.1:8000"):
        super().__init__()
        self.sitemap_urls = [f"{site}/robots.txt"]

    def parse_sitemap(self, response):
        if not response.ok:
            yield {"url": response.url, "problem": f"sitemap returns {response.status}"}
            return
        yield from super().parse_sitemap(response)

    def parse(self, response):
        robots = response.css("meta[name=robots]::attr(content)").get(default="")
        if not response.ok:
            yield {"url": response.url, "problem": f"page returns {response.status}"}
        elif "noindex" in f"{robots},{response.header('x-robots-tag')}":
            yield {"url": response.url, "problem": "page is not to be indexed"}
