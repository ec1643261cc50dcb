"""A manual as Markdown files: ``skitter run docs_markdown.py -a folder=manual -o manual.jsonl``."""

import re
from pathlib import Path
from urllib.parse import urlsplit

from skitter import Spider


class Manual(Spider):
    custom_settings = {"scope": "prefix"}  # the pages below the start URL

    def __init__(self, site="http://127.0.0.1:8000/docs/", folder="manual"):
        super().__init__()
        self.start_urls = [site]
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def parse(self, response):
        place = urlsplit(response.url).path.removeprefix(urlsplit(self.start_urls[0]).path)
        name = re.sub(r"[^\w-]+", "-", place.removesuffix(".html")).strip("-") or "index"
        yield {"file": f"{name}.md", "url": response.url, "markdown": response.markdown("main")}
        yield response.follow_all("a")

    def after_save(self, response, items):
        for item in items:  # once more after a kill, with the same content
            (self.folder / item["file"]).write_text(item["markdown"], "utf-8")
