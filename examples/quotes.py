"""A paginated list, and a page for each detail."""

from skitter import Spider


class Quotes(Spider):
    site = "http://127.0.0.1:8000"  # another one: -a site=http://...

    async def start(self):
        yield f"{self.site}/quotes/"

    def parse(self, response):
        yield response.follow_all("li.quote a", self.parse_quote)
        yield response.follow_all("li.next a")

    def parse_quote(self, response):
        yield {
            "url": response.url,
            "text": response.css("blockquote::text").get(),
            "author": response.css("small::text").get(),
        }
