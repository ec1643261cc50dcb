"""skitter on the same job: ``skitter run skitter_spider.py -a start=URL -o OUT.jsonl``."""

from urllib.parse import urlsplit

from skitter import Spider


class Titles(Spider):
    def __init__(self, start, hosts="", **kwargs):
        super().__init__(**kwargs)
        self.start_urls = [start]
        self.allowed_domains = [urlsplit(start).hostname, *filter(None, hosts.split(","))]

    def parse(self, response):
        yield {"url": response.url, "title": response.css("title::text").get()}
        yield response.follow_all("a", callback=self.parse)
