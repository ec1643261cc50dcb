"""Texts for a dataset, without near duplicates: ``skitter run text_dataset.py -o 'texts.jsonl?duplicates=drop'``."""

from skitter import Spider


class Texts(Spider):
    custom_settings = {
        "scope": "host",  # follow no links to other hosts
        "directives_field": "rights",  # what robots.txt, headers and <meta> reserve
    }

    def __init__(self, site="http://127.0.0.1:8000/"):
        self.start_urls = [site]

    async def parse(self, response):
        found = await response.main_content("markdown")
        if found.content is not None:
            yield found
        yield response.follow_all("a")
