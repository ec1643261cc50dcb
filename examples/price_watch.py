"""Price watch: which prices are new or changed since the last run. Run it again and again with --recrawl."""

from skitter import Spider


class PriceWatch(Spider):
    name = "price_watch"
    site = "http://127.0.0.1:8000"  # another one: -a site=http://...
    custom_settings = {"changes": "changed"}

    async def start(self):
        yield f"{self.site}/"

    def parse(self, response):
        yield response.follow_all("a[href^='/list']", self.parse_list)

    def parse_list(self, response):
        yield response.follow_all("a[href^='/p']", self.parse_product)

    def parse_product(self, response):
        yield {
            "url": response.url,
            "name": response.css("h1::text").get(),
            "price": int(response.css(".price::text").get()),
        }
