"""The spider for these deployment files: fetches the given pages and follows their links once. Replace it with your own."""

from skitter import Spider


class Pages(Spider):
    name = "pages"
    custom_settings = {"depth_limit": 1}

    def __init__(self, start="", **kwargs):
        super().__init__(**kwargs)
        self.start_urls = start.split()

    def start(self):
        return self.start_urls  # may be empty: seeds can come from outside

    def parse(self, response):
        yield {"url": response.url, "title": response.css("title::text").get()}
        yield response.follow_all("a")
