"""Later passes of a job that remembers its pages: exact reports, little traffic, and replaced or single items."""

import json
import sqlite3
from contextlib import closing

import pytest

from cli_command import skitter, usage_error
from sites.changing import ChangingSite
from skitter.testing import Answer

SHOP = """
from skitter import Spider

class Shop(Spider):
    url = ""

    async def start(self):
        yield self.url

    def parse(self, response):
        if price := response.css(".price::text").get():
            yield {"url": response.url, "price": int(price)}
        yield response.follow_all("a")
"""
PAGES = 200


@pytest.fixture
def shop(tmp_path, serve):
    """Serve a site, and return the server and a function that crawls it."""
    (tmp_path / "shop.py").write_text(SHOP)

    def start(site, *options):
        server = serve(site)

        def crawl(*more, output="items.jsonl"):
            done = skitter(
                "run", "shop.py", "-a", f"url={server.url}", "-o", output, "--no-robots", "--delay", 0,
                "--summary", "summary.json", *options, *more, cwd=tmp_path,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            return json.loads((tmp_path / "summary.json").read_text())

        return server, crawl

    return start


def prices_in(path):
    found = [json.loads(line) for line in path.read_text().splitlines()]
    prices = {int(item["url"].rpartition("/p")[2]): item["price"] for item in found}
    assert len(prices) == len(found), "an item twice"
    return prices


def listed(folder):
    done = skitter("changes", "shop", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = {}
    for page in json.loads(done.stdout):
        found.setdefault(page["reason"] or page["change"], set()).add(page["url"])
    return found


@pytest.mark.parametrize("validators", ["etag", "now"])
def test_a_pass_asks_the_server_in_spite_of_a_cache(shop, tmp_path, validators):
    site = ChangingSite(PAGES, validators, page_bytes=2000)
    server, crawl = shop(site, "--changes", "all", "--setting", "cache_dir=cache")
    crawl()
    for version in (2, 1, 2):
        site.version = version
        crawl("--recrawl")
        assert prices_in(tmp_path / "items.jsonl") == site.prices(version)
    asked = len(server.log.hits)
    crawl("--fresh")  # the responses of the last pass are in the cache
    assert prices_in(tmp_path / "items.jsonl") == site.prices(2)
    assert len(server.log.hits) == asked


@pytest.mark.parametrize("validators", ["etag", "modified", "new-etag", "now"])
def test_a_pass_reports_exactly_what_has_changed(shop, tmp_path, validators):
    site = ChangingSite(PAGES, validators, page_bytes=2000)
    server, crawl = shop(site, "--changes", "all")
    first = crawl()
    assert first["changes"]["new"] == first["pages"] == PAGES + 1
    assert prices_in(tmp_path / "items.jsonl") == site.prices(1)
    site.version = 2
    second = crawl("--recrawl")
    truth = site.expected_changes(server.origins)
    assert listed(tmp_path) == {
        "new": truth.new, "changed": truth.changed, "status/404": truth.missing, "unlinked": truth.unlinked
    }  # fmt: skip
    gone = len(truth.missing) + len(truth.unlinked)
    assert second["changes"] == {
        "new": len(truth.new), "changed": len(truth.changed), "unchanged": len(truth.unchanged), "gone": gone,
        "unchecked": 0, "skipped": 0, "unlinked": len(truth.unlinked),
    }  # fmt: skip
    assert second["pages"] - first["pages"] == len(truth.new | truth.changed), "an unchanged page was parsed"
    assert prices_in(tmp_path / "items.jsonl") == site.prices(2)
    if validators in {"etag", "modified"}:
        assert second["statuses"]["304"] == len(truth.unchanged)
    if validators == "etag":
        third = crawl("--recrawl")
        assert {name for name, count in third["changes"].items() if count} == {"unchanged"}
        assert third["changes"]["unchanged"] == len(truth.new | truth.changed | truth.unchanged)
        assert third["bytes"] - second["bytes"] == len(truth.missing) * len(b"<title>Not found</title>")
        assert prices_in(tmp_path / "items.jsonl") == site.prices(2)


def prices_in_database(path):
    with closing(sqlite3.connect(path)) as file:
        rows = file.execute("SELECT url, price FROM items").fetchall()
    prices = {int(url.rpartition("/p")[2]): price for url, price in rows}
    assert len(prices) == len(rows), "an item twice"
    return prices


@pytest.mark.parametrize(("output", "read"), [("items.jsonl", prices_in), ("items.db", prices_in_database)])
def test_passes_that_fetch_a_share_of_the_pages_find_all_changes_in_the_end(shop, tmp_path, output, read):
    site = ChangingSite(PAGES, page_bytes=2000)
    _, crawl = shop(site, "--changes", "all", "-s", "revisit_share=0.25")
    crawl(output=output)
    site.version = 2
    for _ in range(6):
        found = crawl("--recrawl", output=output)["changes"]
        fetched = found["changed"] + found["unchanged"] + found["gone"] - found["unlinked"]
        assert fetched <= 0.25 * PAGES + 1, "more than the share and the seed"
        assert found["skipped"], "all pages were fetched"
        if read(tmp_path / output) == site.prices(2):
            break
    else:
        pytest.fail("six passes have not found all changes")


def test_a_database_holds_the_items_of_the_present_pages(shop, tmp_path):
    site = ChangingSite(PAGES, page_bytes=2000)
    _, crawl = shop(site, "--changes", "all")
    for version in (1, 2, 2):
        site.version = version
        crawl("--recrawl", output="items.db")
        assert prices_in_database(tmp_path / "items.db") == site.prices(version)


@pytest.mark.parametrize("mode", ["changed", "new"])
def test_a_file_holds_the_changes_of_the_last_round_and_a_database_all_versions(shop, tmp_path, mode):
    site = ChangingSite(PAGES, page_bytes=2000)
    _, crawl = shop(site, "--changes", mode)
    crawl("-o", "items.db")
    site.version = 2
    crawl("--recrawl", "-o", "items.db")
    before, now = site.prices(1), site.prices(2)
    new = {number: price for number, price in now.items() if number not in before}
    changed = {number: price for number, price in now.items() if before.get(number, price) != price}
    expected = new if mode == "new" else new | changed
    assert prices_in(tmp_path / "items.jsonl") == expected
    with closing(sqlite3.connect(tmp_path / "items.db")) as file:
        rows = file.execute("SELECT url, price FROM items").fetchall()
    versions = sorted((int(url.rpartition("/p")[2]), price) for url, price in rows)
    assert versions == sorted([*before.items(), *expected.items()])
    crawl("--recrawl", "-o", "items.db")
    assert prices_in(tmp_path / "items.jsonl") == {}


def test_a_page_that_fails_keeps_its_items_and_links(shop, tmp_path):
    """The list fails in the second pass: its products are neither lost nor reported as gone."""
    failing = set()
    pages = {
        "/": '<a href="/list">list</a>',
        "/list": '<a href="/p1">1</a><a href="/p2">2</a>',
        "/p1": '<b class="price">1</b>',
        "/p2": '<b class="price">2</b>',
    }

    def site(visit):
        if visit.path in failing:
            return Answer(b"", status=500)
        return Answer(pages[visit.path].encode())

    server, crawl = shop(site, "--changes", "all", "-s", "max_retries=0")
    crawl()
    failing |= {"/list", "/p1"}
    second = crawl("--recrawl")
    assert {name: count for name, count in second["changes"].items() if count} == {
        "unchanged": 2,
        "unchecked": 2,
    }
    assert prices_in(tmp_path / "items.jsonl") == {1: 1, 2: 2}
    failing.clear()
    pages["/p1"] = '<b class="price">10</b>'
    third = crawl("--recrawl")
    assert listed(tmp_path) == {"changed": {server.url_of("/p1")}}
    assert third["changes"]["unchanged"] == 3
    assert prices_in(tmp_path / "items.jsonl") == {1: 10, 2: 2}


def test_a_page_that_moves_is_gone_and_its_target_is_new(shop, tmp_path):
    moved = []

    def site(visit):
        if visit.path == "/p1" and moved:
            return Answer(status=301, headers={"Location": "/p2"})
        return Answer(b'<a href="/p1">1</a>' if visit.path == "/" else b'<b class="price">1</b>')

    server, crawl = shop(site, "--changes", "all")
    crawl()
    moved.append(True)
    crawl("--recrawl")
    assert listed(tmp_path) == {"status/301": {server.url_of("/p1")}, "new": {server.url_of("/p2")}}
    assert prices_in(tmp_path / "items.jsonl") == {2: 1}


def test_a_stopped_pass_keeps_the_records_of_pages_it_has_not_visited(shop, tmp_path):
    site = ChangingSite(PAGES, page_bytes=2000)
    _, crawl = shop(site, "--changes", "all")
    first = crawl()
    site.version = 2
    stopped = crawl("--recrawl", "--limit", first["pages"] + 5)
    assert stopped["state"] == "stopped"
    assert stopped["changes"]["unlinked"] == 0
    kept = prices_in(tmp_path / "items.jsonl")
    assert len(kept.keys() & site.prices(1).keys()) >= len(site.prices(1)) - PAGES // 100
    done = crawl("--limit", 10 * PAGES)
    assert (done["state"], done["pass_number"]) == ("finished", 2)
    assert prices_in(tmp_path / "items.jsonl") == site.prices(2)


def test_mistakes_are_refused(shop, tmp_path):
    site = ChangingSite(PAGES, page_bytes=2000)
    server, crawl = shop(site)
    crawl()
    again = ("run", "shop.py", "-a", f"url={server.url}", "-o", "items.jsonl", "--recrawl", "--changes")
    assert "changes" in usage_error(*again, "all", cwd=tmp_path)
    assert "visited_ttl" in usage_error(*again, "all", "-s", "visited_ttl=5", cwd=tmp_path)
    assert "remembers no page" in usage_error("changes", "shop", cwd=tmp_path)
    assert prices_in(tmp_path / "items.jsonl") == site.prices(1)


GALLERY = """
from skitter import Spider

class Gallery(Spider):
    url = ""

    async def start(self):
        yield self.url

    def parse(self, response):
        if pictures := response.css("img::attr(src)").getall():
            yield {"page": response.url.rpartition("/")[2], "file_urls": pictures}
        yield response.follow_all("a")
"""


@pytest.mark.parametrize("output", ["items.jsonl", "items.db"])
def test_items_with_files_are_those_of_the_present_pages(output, serve, tmp_path):
    """The files are on the host of the pages and on another one. Pages change, disappear and stay from pass to pass."""
    (tmp_path / "gallery.py").write_text(GALLERY)
    pictures = {}

    def site(visit):
        name = visit.path[1:]
        if name.startswith("picture"):
            return Answer(name.encode(), content_type="image/png")
        if not name:
            return Answer("".join(f"<a href=/{page}>x</a>" for page in pictures).encode())
        if name not in pictures:
            return Answer(status=404)
        host = visit.origins[len(name) % 2]
        body = "".join(f"<img src=http://{host}/picture{number}.png>" for number in pictures[name])
        return Answer(body.encode(), headers={"ETag": f'"{pictures[name]}"'})

    server = serve(site, hosts=2)

    def crawl(**present):
        pictures.update(present)
        done = skitter(
            "run", "gallery.py", "-a", f"url={server.url}", "-o", output, "--no-robots", "--delay", 0, "--recrawl",
            "--changes", "all", "-s", "files_store=files", cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        if output == "items.db":
            with closing(sqlite3.connect(tmp_path / output)) as file:
                rows = file.execute("SELECT page, files FROM items").fetchall()
            found = [(page, json.loads(files)) for page, files in rows]
        else:
            lines = (tmp_path / output).read_text().splitlines()
            found = [(item["page"], item["files"]) for item in map(json.loads, lines)]
        return sorted(
            (page, sorted(int(one["url"][:-4].rpartition("picture")[2]) for one in files))
            for page, files in found
        )

    assert crawl(a=[1, 2], bb=[3], c=[4], dd=[5]) == [("a", [1, 2]), ("bb", [3]), ("c", [4]), ("dd", [5])]
    pictures.clear()
    second = [("a", [1, 2]), ("bb", [3, 6]), ("c", [4]), ("e", [8]), ("ff", [1])]
    assert crawl(a=[1, 2], bb=[3, 6], c=[4], e=[8], ff=[1]) == second
    assert crawl() == second
    pictures.clear()
    assert crawl(bb=[3, 6], c=[7]) == [("bb", [3, 6]), ("c", [7])]
