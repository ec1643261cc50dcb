"""Outputs that hold only the items of certain classes, in real runs."""

import csv
import json
import os
import signal
import sqlite3
import time
import uuid
from contextlib import closing

import pytest
import redis

from cli_command import Running, lines_of, skitter, usage_error
from crawl_harness import Scripted
from services.redis_servers import running
from skitter.testing import Answer

SPIDER = """
from dataclasses import dataclass
from typing import TypedDict

import attrs
import msgspec
from pydantic import BaseModel

from skitter import Spider

class Product:
    pass

@dataclass
class Book(Product):
    url: str

@attrs.define
class Map(Product):
    url: str
    number: int

class Author(dict):
    pass

class Publisher(BaseModel):
    url: str

class Shop(msgspec.Struct):
    url: str

class Note(TypedDict):
    url: str

class Books(Spider):
    name = "books"
    start_urls = ["{url}"]
    allowed_domains = ["127.0.0.1"]
    {more}

    def parse(self, response):
        url = response.url
        yield Publisher(url=url)
        yield Map(url, 1)
        yield Book(url)
        yield Author(url=url, name="first")
        yield Map(url, 2)
        yield Note(url=url)
        yield Author(url=url, name="second")
        yield Shop(url)
        yield response.follow_all("a")
"""
PATHS = [f"/{number}" for number in range(40)]
SITE = {"/": PATHS} | {path: [] for path in PATHS}
RUN = ("run", "books.py", "--delay", 0, "--no-robots", "--quiet")


def shop(serve, folder, more=""):
    site = Scripted(SITE)
    url = serve(site).url
    (folder / "books.py").write_text(SPIDER.format(url=url, more=more))
    return site, sorted(url.rstrip("/") + path for path in SITE)


def urls(path):
    return sorted(item["url"] for item in lines_of(path))


def twice(pages):
    return sorted([*pages, *pages])


def rows(folder, table):
    with closing(sqlite3.connect(folder / "items.db")) as db:
        found = db.execute(f"SELECT * FROM {table} ORDER BY _id")
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found]


def test_each_output_holds_the_items_of_its_classes_once_although_the_run_is_killed(serve, tmp_path):
    outputs = (
        "all.jsonl",
        "books.jsonl?item_classes=Book",
        "maps.csv?item_classes=Map&fields=number,url",
        "products.jsonl?item_classes=Product",
        "people.jsonl?item_classes=Author,Publisher",
        "dicts.jsonl?item_classes=dict",
        "shops.jsonl?item_classes=Shop",
        "items.db?table=maps&item_classes=Map",
        "items.db?item_classes=Author&table=authors",
    )
    site, pages = shop(serve, tmp_path)
    command = (*RUN, "--workers", 2, *(word for output in outputs for word in ("-o", output)))
    with Running(*command, "--delay", 0.05, cwd=tmp_path) as run:
        deadline = time.monotonic() + 60
        while len(site.visits) < 15:
            assert time.monotonic() < deadline
            time.sleep(0.02)  # polls another process
        os.killpg(run.process.pid, signal.SIGKILL)
        run.process.wait()
    assert not (tmp_path / "books.jsonl").exists()
    ended = skitter(*command, "--summary", "sum.json", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert urls(tmp_path / "books.jsonl") == pages
    assert all(item.keys() == {"url"} for item in lines_of(tmp_path / "books.jsonl"))
    with (tmp_path / "maps.csv").open(newline="") as file:
        numbers = sorted((row["url"], row["number"]) for row in csv.DictReader(file))
    assert numbers == [(page, number) for page in pages for number in ("1", "2")]
    assert urls(tmp_path / "products.jsonl") == sorted([*pages, *pages, *pages])
    assert urls(tmp_path / "people.jsonl") == sorted([*pages, *pages, *pages])
    assert urls(tmp_path / "dicts.jsonl") == sorted([*pages, *pages, *pages])  # of Author and of Note
    assert urls(tmp_path / "shops.jsonl") == pages
    assert urls(tmp_path / "all.jsonl") == sorted(8 * pages)
    by_page = {}
    for item in lines_of(tmp_path / "people.jsonl"):
        by_page.setdefault(item["url"], []).append(item.get("name"))
    assert set(map(tuple, by_page.values())) == {(None, "first", "second")}  # in the order of the page
    authors, maps = rows(tmp_path, "authors"), rows(tmp_path, "maps")
    assert sorted(row["url"] for row in authors) == sorted(row["url"] for row in maps) == twice(pages)
    assert {(row["_id"].rpartition(":")[2], row["name"]) for row in authors} == {
        ("0", "first"),
        ("1", "second"),
    }
    assert {(row["_id"].rpartition(":")[2], row["number"]) for row in maps} == {("0", 1), ("1", 2)}
    counted = json.loads((tmp_path / "sum.json").read_text())
    assert counted["items"] == 8 * len(pages)
    shown = json.loads(skitter("stats", "books", "item_class/", "--json", cwd=tmp_path).stdout)
    names = {"Author": 2, "Book": 1, "Map": 2, "Product": 3, "Publisher": 1, "Shop": 1, "dict": 3}
    assert shown == {f"item_class/{name}": number * len(pages) for name, number in names.items()}
    again = {path: path.read_bytes() for path in tmp_path.glob("*.jsonl")}
    assert skitter(*command, cwd=tmp_path).returncode == 0
    assert {path: path.read_bytes() for path in again} == again


def test_a_name_that_no_item_has_and_a_changed_selection_are_reported(serve, tmp_path):
    _, pages = shop(serve, tmp_path, 'outputs = ["books.jsonl?item_classes=books:Book,Bok", "all.jsonl"]')
    ended = skitter(*RUN, "--limit", 3, cwd=tmp_path)
    assert "Bok" not in ended.stderr  # the job is not finished
    ended = skitter(*RUN, cwd=tmp_path)
    assert ended.returncode == 0
    found = "Author, Book, Map, Publisher, Shop, books.Book, dict"
    assert f"no item has the class Bok; items had the classes {found}" in ended.stderr
    assert urls(tmp_path / "books.jsonl") == pages
    ended = skitter(*RUN, "-o", "books.jsonl?item_classes=Book", "-o", "all.jsonl", cwd=tmp_path)
    assert "books.jsonl?item_classes=Book is a new output" in ended.stderr
    assert lines_of(tmp_path / "books.jsonl") == []
    assert skitter(*RUN, cwd=tmp_path).returncode == 0
    assert urls(tmp_path / "books.jsonl") == pages  # no item was lost


def test_an_output_elsewhere_does_not_mix_its_items_with_those_of_a_selection_in_the_same_place(
    serve, tmp_path
):
    shop(serve, tmp_path)
    place = f"file://{tmp_path}/remote.jsonl"
    for limit, output in ((4, place), (12, f"{place}?item_classes=Book"), (16, place)):
        ended = skitter(*RUN, "-o", output, "--limit", limit, cwd=tmp_path)
        assert ended.returncode == 0, ended.stderr
    found = urls(tmp_path / "remote.jsonl")
    assert found
    assert found == sorted(
        8 * [*set(found)]
    )  # the pages of the first and of the last run, with all of their items
    ended = skitter(*RUN, "-o", f"{place}?item_classes=Book", "--limit", 16, cwd=tmp_path)
    books = urls(tmp_path / "remote.jsonl")
    assert len(books) == len(set(books)) >= 8
    assert not set(books) & set(found)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (["a.jsonl?item_classes=Book", "a.jsonl"], "in the same place"),
        (["a.jsonl?item_classes=Book", "a.jsonl?item_classes=Map&fields=url"], "in the same place"),
        (["a.db?item_classes=Book", "sqlite:a.db?table=items"], "in the same place"),
        (["a.jsonl?item_classes="], "names no class"),
        (["a.jsonl?item_classes=Book;Map"], "has an invalid class name: 'Book;Map'"),
        (["a.warc.gz?item_classes=Book"], "holds responses and no items"),
        (
            ["a.jsonl?item_class=Book"],
            "use one of the options of jsonl: fields, parts, duplicates, item_classes",
        ),
    ],
)
def test_a_selection_that_cannot_be_written_is_refused_before_anything_is_fetched(
    serve, tmp_path, outputs, message
):
    site, _ = shop(serve, tmp_path)
    error = usage_error(*RUN, *(word for output in outputs for word in ("-o", output)), cwd=tmp_path)
    assert message in error
    assert site.visits == []
    assert list(tmp_path.glob("a.*")) == []


def test_standard_output_and_an_export_hold_the_selected_items(serve, tmp_path):
    _, pages = shop(serve, tmp_path)
    ended = skitter(*RUN, "-o", "-?item_classes=Book", "-o", "maps.jsonl?item_classes=Map", cwd=tmp_path)
    assert sorted(json.loads(line)["url"] for line in ended.stdout.splitlines()) == pages
    assert "?item_classes=Book or ?item_classes=Map" in usage_error(
        "export", "books", "-o", "x.csv", cwd=tmp_path
    )
    error = usage_error("export", "books", "-o", "x.csv?item_classes=Shop", cwd=tmp_path)
    assert "has no output of these classes (Shop)" in error
    assert skitter("export", "books", "-o", "x.jsonl?item_classes=Map", cwd=tmp_path).returncode == 0
    assert urls(tmp_path / "x.jsonl") == twice(pages)
    # `all` contains the items that an output without the option stores, and not in addition the selected ones.
    both = (*RUN, "--job", "both", "-o", "all.jsonl", "-o", "b.jsonl?item_classes=Book")
    assert skitter(*both, cwd=tmp_path).returncode == 0
    exported = skitter("export", "both", "-o", "y.jsonl", cwd=tmp_path)
    assert exported.stderr.splitlines() == [f"y.jsonl: {8 * len(pages)} items of 1 part file"]
    assert sorted(lines_of(tmp_path / "y.jsonl"), key=str) == sorted(
        lines_of(tmp_path / "all.jsonl"), key=str
    )


FILES = """
from dataclasses import dataclass, field
from skitter import Spider

class Named:
    pass

@dataclass
class Cover(Named):
    url: str
    file_urls: list = field(default_factory=list)

class Covers(Spider):
    name = "covers"
    start_urls = ["{url}"]
    custom_settings = {{"files_store": "files"}}
    outputs = ["covers.jsonl?item_classes=covers.Cover", "named.jsonl?item_classes=Named", "dicts.jsonl?item_classes=dict"]

    def parse(self, response):
        yield Cover(response.url, ["{url}cover.png"])
        yield {{"url": response.url, "plain": True}}
"""


def test_items_that_wait_for_their_files_keep_their_class(serve, tmp_path):
    url = serve(
        Scripted({"/": [], "/cover.png": Answer(b"image", headers={"Content-Type": "image/png"})})
    ).url
    (tmp_path / "covers.py").write_text(FILES.format(url=url))
    ended = skitter("run", "covers.py", "--no-robots", "--quiet", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    (cover,) = lines_of(tmp_path / "covers.jsonl")
    assert cover["files"][0]["size"] == len(b"image")
    assert lines_of(tmp_path / "named.jsonl") == [cover]
    assert lines_of(tmp_path / "dicts.jsonl") == [{"url": url, "plain": True}]


HOOK = """
from books import Book, Books as Plain, Map

class Replaced(Plain):
    name = "replaced"

    def before_save(self, response, items):
        items[:] = [Book(item.url) if isinstance(item, Map) else item for item in items]
"""


def test_the_class_that_a_hook_returns_decides(serve, tmp_path):
    _, pages = shop(serve, tmp_path)
    (tmp_path / "replaced.py").write_text(HOOK)
    ended = skitter("run", "replaced.py:Replaced", *RUN[2:], "-o", "b.jsonl?item_classes=Book", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert urls(tmp_path / "b.jsonl") == sorted(3 * pages)


def test_a_recrawl_replaces_the_selected_items_of_changed_pages(serve, tmp_path):
    scripted = {"/": ["/1", "/2"], "/1": [], "/2": []}
    url = serve(Scripted(scripted)).url
    short = "yield Publisher(url=url)\n        if response.css('b'): return"
    text = SPIDER.format(url=url, more="").replace("yield Publisher(url=url)", short)
    (tmp_path / "books.py").write_text(text)
    outputs = ("-o", "books.jsonl?item_classes=Book", "-o", "items.db?item_classes=Author&table=authors")
    command = (*RUN, "-s", "changes=all", *outputs)
    ended = skitter(*command, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert urls(tmp_path / "books.jsonl") == [url, f"{url}1", f"{url}2"]
    scripted["/1"] = Answer(b"<b>sold out</b>")
    assert skitter(*command, "--recrawl", cwd=tmp_path).returncode == 0
    assert urls(tmp_path / "books.jsonl") == [url, f"{url}2"]
    assert sorted({row["url"] for row in rows(tmp_path, "authors")}) == [url, f"{url}2"]


def test_in_a_fleet_shared_parts_and_lists_hold_the_selected_items(serve, tmp_path):
    _, pages = shop(serve, tmp_path)
    server, job = running("valkey").url, f"fleet-{uuid.uuid4().hex}"
    parts = f"parts={server}/{job}-parts"
    outputs = (
        f"books.jsonl?item_classes=Book&{parts}",
        f"maps.jsonl?{parts}&item_classes=Map",
        f"all.jsonl?{parts}",
        f"{server}/{job}-authors?item_classes=Author",
    )
    words = [word for output in outputs for word in ("-o", output)]
    ended = skitter(*RUN, "--job", job, "--frontier", server, "--workers", 2, *words, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert urls(tmp_path / "books.jsonl") == pages
    assert urls(tmp_path / "maps.jsonl") == twice(pages)
    assert urls(tmp_path / "all.jsonl") == sorted(8 * pages)
    with redis.Redis.from_url(server) as client:
        authors = [json.loads(line) for line in client.lrange(f"{job}-authors", 0, -1)]
    assert sorted(author["url"] for author in authors) == twice(pages)
