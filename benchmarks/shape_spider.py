"""skitter on the shapes of shapes.py: ``skitter run shape_spider.py -a start=URL -a shape=NAME``."""

import re
from urllib.parse import urlsplit

from skitter import Spider

NAME, PRICE, SIZE = (
    re.compile(rf'<td class="{name}"[^>]*>([^<]*)</td>') for name in ("name", "price", "size")
)
TITLE = re.compile(r"<title>([^<]*)</title>")


class Shapes(Spider):
    def __init__(self, start, shape, **kwargs):
        super().__init__(**kwargs)
        self.start_urls = [start]
        self.allowed_domains = [urlsplit(start).hostname]
        self.extract = getattr(self, shape)

    def parse(self, response):
        yield from self.extract(response)

    def batch(self, response):
        yield self.item(response)
        yield response.follow_all("a")

    def single(self, response):
        yield self.item(response)
        for link in response.css("a"):
            yield response.follow(link, callback=self.parse)

    def item(self, response, **fields):
        return {"url": response.url, "title": response.css("title::text").get(), **fields}

    def css_fields(self, response):
        yield self.item(response, **{f"f{i}": response.css(f"span.f{i}::text").get() for i in range(20)})
        yield response.follow_all("a")

    def xpath_fields(self, response):
        fields = {f"f{i}": response.xpath(f'//span[@class="f{i}"]/text()').get() for i in range(20)}
        yield {"url": response.url, "title": response.xpath("//title/text()").get(), **fields}
        yield response.follow_all("a")

    def mixed(self, response):
        fields = {f"f{i}": response.css(f"span.f{i}::text").get() for i in range(5)}
        yield self.item(
            response,
            **fields,
            heading=response.css("h1::text").get(),
            labels=response.css("div.field b::text").getall(),
            sizes=response.css("td.size::attr(data-size)").getall(),
            total=len(response.css("tr.row")),
        )
        yield response.follow_all("a")

    def css_rows(self, response):
        rows = [
            {
                "name": row.css("td.name::text").get(),
                "price": row.css("td.price::text").get(),
                "size": row.css("td.size::attr(data-size)").get(),
            }
            for row in response.css("tr.row")
        ]
        yield self.item(response, rows=rows)
        yield response.follow_all("a")

    def xpath_rows(self, response):
        rows = [
            {
                "name": row.xpath('./td[@class="name"]/text()').get(),
                "price": row.xpath('./td[@class="price"]/text()').get(),
                "size": row.xpath('./td[@class="size"]/@data-size').get(),
            }
            for row in response.xpath('//tr[@class="row"]')
        ]
        yield {"url": response.url, "title": response.xpath("//title/text()").get(), "rows": rows}
        yield response.follow_all("a")

    def regex(self, response):
        text = response.text
        title = TITLE.search(text)[1].replace("&amp;", "&")
        rows = [NAME.findall(text), PRICE.findall(text), SIZE.findall(text)]
        yield {"url": response.url, "title": title, "rows": rows}
        yield response.follow_all(re.findall(r'<a href="([^"]*)"', text))
