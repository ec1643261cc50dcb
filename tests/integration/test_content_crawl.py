"""``skitter crawl --content``: texts and their metadata, near duplicates in files, and unreadable pages."""

import json
from collections import defaultdict
from urllib.parse import urlsplit

import pytest

from cli_command import skitter
from loop_turns import MAX_SHARE, WATCH, longest_turn
from sites import hostile
from sites.texts import TextSite, pairs_of
from skitter.testing import Answer

pytest.importorskip("trafilatura", reason="trafilatura is not installed")


def items_of(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


RECEIVED = [
    name for name, page in hostile.PAGES.items() if page.dead not in {"encoding", "protocol", "too_large"}
]
"""Hostile pages whose answers are read completely."""


def groups_in(items):
    """Return the paths of each group of the items."""
    groups = defaultdict(list)
    for item in items:
        if item["content"] is not None:
            groups[item["duplicate_of"] or item["url"]].append(urlsplit(item["url"]).path)
    return groups


def test_each_page_becomes_an_item_with_its_text_and_near_duplicates_are_marked(serve, tmp_path):
    pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    site = TextSite(120)
    server = serve(site)
    result = skitter(
        "crawl", server.url, "--delay", 0, "--content", "markdown", "-o", "pages.parquet", "-o", "kept.jsonl?duplicates=drop",
        cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    rows = pq.read_table(tmp_path / "pages.parquet").to_pylist()
    assert {urlsplit(row["url"]).path for row in rows} == {
        "/",
        *(f"/{place}" for place in range(len(site.corpus.pages))),
    }
    for row in rows:
        if (path := urlsplit(row["url"]).path) == "/":
            continue
        _, _, text = site.corpus.pages[int(path[1:])]
        paragraphs = text.split("\n\n")
        assert row["content"] == "\n\n".join([f"# {text.split()[0]}", *paragraphs])
        assert (row["title"], row["language"], row["content_error"]) == (f"Page {path[1:]}", "en", None)
        assert row["author"] == f"Author {int(path[1:]) % 7}"
        assert (len(row["digest"]), len(row["signature"])) == (32, 32)
    true, found = pairs_of(site.groups()), pairs_of(groups_in(rows))
    assert found <= true
    assert len(found) >= 0.95 * len(true) > 10
    assert {item["url"] for item in items_of(tmp_path / "kept.jsonl")} == {
        row["url"] for row in rows if row["duplicate_of"] is None
    }


def rights_site(visit):
    pages = {
        "/": Answer(b"<main><p>A text that may be read and quoted by everyone.</p><a href=/r>r</a></main>"),
        "/r": Answer(
            b"<main><p>A text whose rights are reserved by its author.</p></main>",
            headers={"X-Robots-Tag": "noai", "TDM-Reservation": "1"},
        ),
        "/robots.txt": Answer(
            b"User-agent: *\nContent-Signal: search=yes, ai-train=no\n", content_type="text/plain"
        ),
    }
    return pages.get(visit.path, Answer(b"", status=404))


def test_an_item_has_the_rights_that_the_page_and_its_site_reserve(serve, tmp_path):
    server = serve(rights_site)
    result = skitter("crawl", server.url, "--delay", 0, "--content", "text", "-o", "a.jsonl", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    items = {urlsplit(item["url"]).path: item for item in items_of(tmp_path / "a.jsonl")}
    signals = {"search": True, "ai-train": False}
    assert items["/"]["rights"] == {"content_signals": signals}
    assert items["/r"]["rights"] == {"noai": True, "tdm_reservation": True, "content_signals": signals}
    assert items["/r"]["content"] == "A text whose rights are reserved by its author."


def hostile_site(visit):
    """A front page, pages that would take minutes and gigabytes, and ordinary ones."""
    if visit.path == "/":
        links = "".join(
            f"<a href=/{kind}{number}>{number}</a>" for number in range(3) for kind in ("slow", "page")
        )
        return Answer(f"<body><nav>{links}</nav>".encode())
    if visit.path.startswith("/slow"):
        return Answer(b"<html><body><p>" + b"<b>x</b> " * 150_000)
    return Answer(
        f"<main><p>An ordinary page, which is the one at {visit.path}, and short.</p></main>".encode()
    )


def test_pages_that_take_too_much_are_items_with_an_error_and_no_page_is_lost(serve, tmp_path):
    server = serve(hostile_site)
    result = skitter(
        "crawl", server.url, "--delay", 0, "--content", "markdown", "-o", "a.jsonl", cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    items = {urlsplit(item["url"]).path: item for item in items_of(tmp_path / "a.jsonl")}
    assert len(items) == 7
    for number in range(3):
        slow, page = items[f"/slow{number}"], items[f"/page{number}"]
        assert slow["content_error"].partition(":")[0] in {"timeout", "memory", "crash"}
        assert (slow["content"], slow["status"], slow["duplicate_of"]) == (None, 200, None)
        assert page["content"] == f"An ordinary page, which is the one at /page{number}, and short."
    counted = skitter(
        "stats", "127.0.0.1-" + server.url.rstrip("/").rpartition(":")[2], "user/", cwd=tmp_path
    )
    assert "content_errors" in counted.stdout
    assert "3" in counted.stdout.split()


WATCHER = f"""
from skitter import Request, Spider
{WATCH}

class Watcher(Spider):
    async def start(self):
        for path in self.paths.split():
            yield Request(self.site + path)

    def on_start(self, worker):
        worker.start_task(watch())

    async def parse(self, response):
        yield await response.main_content("markdown")
"""


@pytest.mark.slow
def test_pages_that_are_made_to_exhaust_a_worker_block_neither_its_event_loop_nor_the_crawl(serve, tmp_path):
    server = serve(hostile.hostile_site)
    (tmp_path / "watcher.py").write_text(WATCHER)
    result = skitter(
        "run", "watcher.py", "-a", f"site={server.url.rstrip('/')}", "-a", f"paths={' '.join(f'/css/{name}' for name in RECEIVED)}",
        "-s", "robots=no", "-s", "delay=0", "-s", "concurrency_per_slot=2", "-s", "max_retries=0", "-o", "a.jsonl", cwd=tmp_path,
        patience=250,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    items = {urlsplit(item["url"]).path: item["content_error"] for item in items_of(tmp_path / "a.jsonl")}
    assert set(items) == {f"/css/{name}" for name in RECEIVED}
    kinds = {error.partition(":")[0] for error in items.values() if error is not None}
    assert "too_large" in kinds
    assert kinds & {"timeout", "memory", "crash"}
    assert 0.0 < longest_turn(tmp_path)[1] < MAX_SHARE
