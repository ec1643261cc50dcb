"""The spider of these files: gets the pages it is given, and follows their links once. Put your own in its place."""

from skitter import Spider


class Pages(Spider):
    name = "pages"
    custom_settings = {"depth_limit": 1}

    def __init__(self, start="", **kwargs):
        super().__init__(**kwargs)
        self.start_urls = start.split()

    def start(self):
        return self.start_urls  # there may be none: seeds come from outside

    def parse(self, response):
        yield {"url": response.url, "title": response.css("title::text").get()}
        yield response.follow_all("a")
