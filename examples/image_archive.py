"""An archive of images: each is stored once, and an item is written when its images are there."""

from skitter import Spider


class ImageArchive(Spider):
    site = "http://127.0.0.1:8000"
    custom_settings = {"files_store": "archive"}

    async def start(self):
        yield f"{self.site}/photos/"

    def parse(self, response):
        yield {"page": response.url, "image_urls": response.css("img::attr(src)").getall()}
        yield response.follow_all("a.photo")
