"""Pass values from page to page. Each request has its own copy, so siblings do not share values."""

import sys

from skitter import Collector

crawler = Collector()
detail = crawler.clone("detail")


@crawler.on_request
def note(request):
    request.ctx["shelf"] = request.url.rpartition("/")[2]


@crawler.on_html(".book a")
def to_book(element):
    element.response.ctx["place"] = element.index
    element.request.visit(element.attr("href"), via=detail)


@crawler.on_html("a.next")
def to_next(element):
    crawler.visit(element.request.absolute_url(element.attr("href")))


@detail.on_html("h1")
def book(element):
    return {"title": element.text, **element.response.ctx}


if __name__ == "__main__":
    crawler.visit(sys.argv[1] + "shelf/0")
    crawler.run(outputs=["books.jsonl"], fresh=True)
