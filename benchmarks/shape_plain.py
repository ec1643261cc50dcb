"""The plain script on the shapes of shapes.py. Usage: ``python shape_plain.py URL OUT.jsonl CONCURRENCY SHAPE LIMIT``.

HTML by selectolax, XPath by lxml, regular expressions by ``re``: what one would write without a framework for each shape.
"""

import asyncio
import gc
import re
import sys
from functools import lru_cache
from pathlib import Path

import lxml.html
import uvloop
from lxml import etree
from plain import Plain, crawl
from selectolax.lexbor import LexborHTMLParser
from shape_spider import NAME, PRICE, SIZE, TITLE
from yarl import URL

_HREF = re.compile(r'<a href="([^"]*)"')
_path = lru_cache(etree.XPath)


def _text(tree, query):
    node = tree.css_first(query)
    return None if node is None else node.text(deep=False)


def _attribute(node, query, name):
    found = node.css_first(query)
    return None if found is None else found.attributes.get(name)


def _first(values):
    return str(values[0]) if values else None


class Shaped(Plain):
    """Extracts what the spider of shape_spider.py extracts."""

    def __init__(self, start, out, shape, limit):
        super().__init__(start, out)
        self.extract = getattr(self, shape)
        self.limit = limit

    async def page(self, session, url):
        if self.limit == 0:
            return 0
        self.limit -= 1
        async with session.get(URL(url, encoded=True), allow_redirects=False) as response:
            body = await response.read()
            if response.status != 200:
                return 0
        fields, hrefs = self.extract(body)
        self.out.write(self.encode({"url": url, **fields}) + b"\n")
        return self.follow(url, hrefs)

    def batch(self, body):
        tree = LexborHTMLParser(body)
        return self.title(tree), self.hrefs(tree)

    single = batch

    def title(self, tree):
        return {"title": _text(tree, "title")}

    def hrefs(self, tree):
        return [node.attributes.get("href") for node in tree.tags("a")]

    def css_fields(self, body):
        tree = LexborHTMLParser(body)
        fields = {f"f{i}": _text(tree, f"span.f{i}") for i in range(20)}
        return self.title(tree) | fields, self.hrefs(tree)

    def xpath_fields(self, body):
        tree = lxml.html.fromstring(body)
        fields = {f"f{i}": _first(_path(f'//span[@class="f{i}"]/text()')(tree)) for i in range(20)}
        return {"title": _first(_path("//title/text()")(tree)), **fields}, _path("//a/@href")(tree)

    def mixed(self, body):
        tree = LexborHTMLParser(body)
        fields = {f"f{i}": _text(tree, f"span.f{i}") for i in range(5)}
        fields["heading"] = _text(tree, "h1")
        fields["labels"] = [node.text(deep=False) for node in tree.css("div.field b")]
        fields["sizes"] = [node.attributes.get("data-size") for node in tree.css("td.size")]
        fields["total"] = len(tree.css("tr.row"))
        return self.title(tree) | fields, self.hrefs(tree)

    def css_rows(self, body):
        tree = LexborHTMLParser(body)
        rows = [
            {
                "name": _text(row, "td.name"),
                "price": _text(row, "td.price"),
                "size": _attribute(row, "td.size", "data-size"),
            }
            for row in tree.css("tr.row")
        ]
        return {**self.title(tree), "rows": rows}, self.hrefs(tree)

    def xpath_rows(self, body):
        tree = lxml.html.fromstring(body)
        rows = [
            {
                "name": _first(_path('./td[@class="name"]/text()')(row)),
                "price": _first(_path('./td[@class="price"]/text()')(row)),
                "size": _first(_path('./td[@class="size"]/@data-size')(row)),
            }
            for row in _path('//tr[@class="row"]')(tree)
        ]
        return {"title": _first(_path("//title/text()")(tree)), "rows": rows}, _path("//a/@href")(tree)

    def regex(self, body):
        text = body.decode()
        title = TITLE.search(text)[1].replace("&amp;", "&")
        rows = [NAME.findall(text), PRICE.findall(text), SIZE.findall(text)]
        return {"title": title, "rows": rows}, _HREF.findall(text)


def main():
    start, path, concurrency, shape, limit = sys.argv[1:]
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    loop = uvloop.new_event_loop
    with Path(path).open("wb", buffering=1 << 20) as out, asyncio.Runner(loop_factory=loop) as run:
        run.run(crawl(Shaped(start, out, shape, int(limit) or -1), int(concurrency)))


if __name__ == "__main__":
    main()
