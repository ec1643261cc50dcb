"""One crawl with a collector for lists and a clone for details: ``skitter run cloned_collectors.py -a site=... -o books.jsonl``."""

import sys
from dataclasses import dataclass
from typing import Annotated

from skitter import Collector
from skitter.frontends.collector import Css

shelves = Collector("books")
books = shelves.clone("book")


@dataclass
class Book:
    title: Annotated[str, Css("h1")]
    price: Annotated[float, Css(".price", regex=r"[\d.]+")]
    author: Annotated[str, Css(".author")]
    tags: Annotated[list[str], Css(".tag")]


@shelves.on_html(".book a")
def to_book(element):
    element.request.visit(element.attr("href"), via=books)


@shelves.on_html("a.next")
def to_next(element):
    element.request.visit(element.attr("href"))


@books.on_html("body")
def book(element):
    return element.unmarshal(Book)


@shelves.seeds
def begin(site="http://127.0.0.1:8000/"):
    return [site + "shelf/0"]


if __name__ == "__main__":
    shelves.run(arguments={"site": sys.argv[1]}, outputs=["books.jsonl"], fresh=True)
