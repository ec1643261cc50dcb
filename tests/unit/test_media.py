"""Files that items name: downloaded once, checked, and added to the items before these are written."""

import asyncio
import gzip
import hashlib
import io
import json
import threading
import zlib
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

import pytest
from PIL import Image

from crawl_harness import CrawlHarness, Scripted, page, redirect
from sites.cases import http_head
from skitter import Request, Spider
from skitter.errors import SettingsError, StoreError
from skitter.frontier.records import Resolution
from skitter.item import pack_items, unpack_items
from skitter.store.media import DraftSource, MediaStore, suffix_of
from skitter.testing import Answer, WireAnswer
from skitter.worker.media import MediaPipeline
from skitter.worker.retry import RetryDecision

PDF = b"%PDF-1.7 " + b"x" * 50_000
OTHER = b"other" * 10_000


def sha(data):
    return hashlib.sha256(data).hexdigest()


def a_file(data, kind="application/pdf", **fields):
    return Answer(data, content_type=kind, **fields)


def stored(data, suffix=".pdf"):
    return f"full/{sha(data)[:2]}/{sha(data)}{suffix}"


def contents(folder):
    """Return the files in a store, without its index."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.relative_to(folder).parts[0].startswith(".")
    }


class Shop(Spider):
    """Yields one item per page with the links of the page as files; a link that ends in ``.html`` is a page."""

    def __init__(self, url, **arguments):
        super().__init__(**arguments)
        self.start_urls = [url]

    def parse(self, response):
        links = response.css("a::attr(href)").getall()
        yield {"url": response.url, "file_urls": [link for link in links if not link.endswith(".html")]}
        yield response.follow_all([link for link in links if link.endswith(".html")])


@pytest.fixture
def crawl(tmp_path, serve):
    """Crawl a scripted site with :class:`Shop`. Return the report and the site."""

    async def run(pages, spider=Shop, hosts=1, workers=1, frontier="memory", **settings):
        site = Scripted(pages)
        server = serve(site, hosts=hosts)
        harness = CrawlHarness(
            spider(server.url), tmp_path, frontier=frontier,
            **{"files_store": str(tmp_path / "files"), **settings},
        )  # fmt: skip
        report = await harness.run(workers)
        report.site, report.origin, report.again = site, server.url.rstrip("/"), harness
        return report

    return run


def result(origin, path, data, suffix=".pdf", kind="application/pdf"):
    return {
        "url": f"{origin}{path}", "path": stored(data, suffix), "checksum": sha(data), "size": len(data), "type": kind,
    }  # fmt: skip


async def test_an_item_is_written_with_its_files(crawl, tmp_path):
    pages = {"/": page("a.pdf", "b.pdf"), "/a.pdf": a_file(PDF), "/b.pdf": a_file(OTHER)}
    report = await crawl(pages)
    (item,) = report.items
    assert item["files"] == [result(report.origin, "/a.pdf", PDF), result(report.origin, "/b.pdf", OTHER)]
    assert contents(tmp_path / "files") == {stored(PDF): PDF, stored(OTHER): OTHER}
    assert (report.counters["pages"], report.counters["items"], report.counters["files"]) == (1, 1, 2)
    assert report.status.state == "finished"


async def test_a_url_is_a_page_and_a_file(crawl):
    class Both(Shop):
        def parse(self, response):
            yield {"url": response.url, "file_urls": [f"{response.base_url}x.html"]}
            yield response.follow("/x.html", callback="parse_x")

        def parse_x(self, response):
            yield {"page": response.url}

    report = await crawl({"/": page(), "/x.html": page("y")}, Both)
    assert sorted(map(len, report.items)) == [1, 3]
    assert report.site.counts["/x.html"] == 2


async def test_the_same_url_and_the_same_content_are_stored_once(crawl, tmp_path, monkeypatch):
    monkeypatch.setattr("skitter.worker.media._CLAIM_SECONDS", 60.0)  # outlasts any pause of the machine
    pages = {f"/{n}.html": page("/logo.png", f"/copy{n}.pdf") for n in range(20)}
    pages |= {f"/copy{n}.pdf": a_file(PDF) for n in range(20)}
    pages |= {"/": page(*(f"/{n}.html" for n in range(20))), "/logo.png": a_file(OTHER, "image/png")}
    report = await crawl(pages, workers=2)
    assert len(report.items) == 21
    assert contents(tmp_path / "files") == {stored(PDF): PDF, stored(OTHER, ".png"): OTHER}
    assert report.site.counts["/logo.png"] == 1
    assert all(len(item["files"]) == len(item["file_urls"]) for item in report.items)


async def test_different_suffixes_of_one_content_are_one_file(crawl, tmp_path):
    report = await crawl({"/": page("a.pdf", "b.bin"), "/a.pdf": a_file(PDF), "/b.bin": a_file(PDF)})
    assert len(contents(tmp_path / "files")) == 1
    assert len({one["path"] for one in report.items[0]["files"]}) == 1


async def test_a_url_that_names_only_the_page_is_an_error_in_its_item(crawl, tmp_path):
    class Blank(Shop):
        def parse(self, response):
            yield {"file_urls": ["", None, "#top", " ", "a.pdf"]}

    report = await crawl({"/": page(), "/a.pdf": a_file(PDF)}, Blank)
    *wrong, good = report.items[0]["files"]
    assert wrong == [{"url": url, "error": "not an http(s) URL"} for url in ("", "", "#top", " ")]
    assert good["checksum"] == sha(PDF)
    assert contents(tmp_path / "files") == {stored(PDF): PDF}
    assert report.site.counts["/"] == 1


async def test_a_missing_file_is_an_error_in_its_item(crawl):
    report = await crawl({"/": page("a.pdf", "gone.pdf", "mailto:me"), "/a.pdf": a_file(PDF)})
    good, gone, mail = report.items[0]["files"]
    assert good["checksum"] == sha(PDF)
    assert gone["error"].startswith("status/404")
    assert mail == {"url": "mailto:me", "error": "not an http(s) URL"}
    assert report.site.counts["/gone.pdf"] == 1
    assert report.letters == {}
    assert report.counters["files/failed"] == 1


async def test_a_required_file_makes_a_dead_letter_that_can_be_replayed(crawl):
    published = False

    def answer(_):
        return a_file(PDF) if published else Answer(b"", status=404)

    report = await crawl(
        {"/": page("a.pdf", "b.pdf"), "/a.pdf": answer, "/b.pdf": a_file(OTHER)}, files_required=True
    )
    assert report.items == []
    assert [error.partition(":")[0] for error in report.letters.values()] == ["status/404"]
    published = True
    await report.again.frontier.dead_letters.replay()
    report = await report.again.run()
    assert [one["checksum"] for one in report.items[0]["files"]] == [sha(PDF), sha(OTHER)]
    assert report.letters == {}


async def test_faults_are_retried(crawl):
    def cut(visit):
        return a_file(PDF, headers={"Content-Length": str(len(PDF) + 10)})

    pages = {
        "/": page("a.pdf", "b.pdf"),
        "/a.pdf": (Answer(b"", status=500), cut, a_file(PDF)), "/b.pdf": (cut, Answer(b"", status=503), a_file(OTHER)),
    }  # fmt: skip
    report = await crawl(pages, read_timeout=1, max_retries=10)  # a busy server may be silent as well
    assert [one["checksum"] for one in report.items[0]["files"]] == [sha(PDF), sha(OTHER)]


async def test_the_failures_of_one_file_do_not_count_for_another(crawl):
    """Each of many files fails twice, and may fail three times."""
    names = [f"/{n}.pdf" for n in range(30)]
    broken = Answer(b"", status=500)
    pages = {name: (broken, broken, a_file(name.encode())) for name in names}
    pages |= {"/": page("/1.html", "/2.html"), "/1.html": page(*names), "/2.html": page(*names[::-1])}
    report = await crawl(pages, workers=2, max_retries=3)
    assert [one.get("error") for item in report.items for one in item["files"]] == [None] * 60


async def test_redirects_lead_to_the_file_also_on_another_host(crawl):
    def elsewhere(visit):
        return redirect(f"http://{visit.origins[1]}/real.pdf")

    pages = {
        "/": page("a.pdf", "b.pdf"),
        "/a.pdf": elsewhere,
        "/b.pdf": redirect("/b.pdf"),
        "/real.pdf": a_file(PDF),
    }
    report = await crawl(pages, hosts=2)
    moved, loop = report.items[0]["files"]
    assert moved == result(report.origin, "/a.pdf", PDF)
    assert "redirect" in loop["error"]


async def test_robots_txt_holds_for_files(crawl):
    rules = Answer(b"User-agent: *\nDisallow: /private", content_type="text/plain")
    report = await crawl({"/": page("private.pdf"), "/private.pdf": a_file(PDF), "/robots.txt": rules})
    assert "robots" in report.items[0]["files"][0]["error"]
    assert report.site.counts["/private.pdf"] == 0


async def test_a_file_above_the_limit_is_an_error(crawl, tmp_path):
    report = await crawl({"/": page("a.pdf"), "/a.pdf": a_file(PDF)}, files_max_size=1000)
    assert report.items[0]["files"][0]["error"].startswith("too_large")
    assert contents(tmp_path / "files") == {}
    assert list((tmp_path / "files/.drafts").iterdir()) == []


async def test_a_file_larger_than_max_body_is_stored(crawl):
    report = await crawl({"/": page("a.pdf"), "/a.pdf": a_file(PDF)}, max_body=1000)
    assert report.items[0]["files"][0]["checksum"] == sha(PDF)


async def test_a_content_coding_is_undone(crawl):
    coded = a_file(gzip.compress(PDF), headers={"Content-Encoding": "gzip"})
    cut = a_file(gzip.compress(PDF)[:-20], headers={"Content-Encoding": "gzip"})
    report = await crawl({"/": page("a.pdf", "b.pdf"), "/a.pdf": coded, "/b.pdf": cut}, max_retries=0)
    assert report.items[0]["files"][0]["checksum"] == sha(PDF)
    assert report.items[0]["files"][1]["error"].startswith("encoding")


async def test_gzip_members_and_raw_deflate_data_are_undone(crawl):
    packer = zlib.compressobj(wbits=-15)
    bodies = {
        "gzip": gzip.compress(PDF[:100]) + gzip.compress(PDF[100:]),
        "deflate": packer.compress(PDF) + packer.flush(),
    }
    files = {
        f"/{coding}.pdf": a_file(body, headers={"Content-Encoding": coding})
        for coding, body in bodies.items()
    }
    report = await crawl({"/": page("gzip.pdf", "deflate.pdf"), **files})
    assert [file["checksum"] for file in report.items[0]["files"]] == [sha(PDF)] * 2


async def test_a_download_that_is_cancelled_at_its_start_can_begin_again(crawl, monkeypatch):
    starts, resume = [], MediaStore.resume

    def cancelled_once(store, url):
        starts.append(url)
        if len(starts) == 1:
            loop.call_soon_threadsafe(beginning[0].cancel)
            assert cancelled.wait(30)
        return resume(store, url)

    original = MediaPipeline.begin

    async def begin(media, page):
        if beginning:
            return await original(media, page)
        beginning.append(asyncio.create_task(original(media, page)))
        try:
            return await beginning[0]
        except asyncio.CancelledError:
            cancelled.set()
            page.finish(RetryDecision(Resolution.RETRY, "lost", 0.0, free=True))
            return False

    loop, beginning, cancelled = asyncio.get_running_loop(), [], threading.Event()
    monkeypatch.setattr(MediaStore, "resume", cancelled_once)
    monkeypatch.setattr(MediaPipeline, "begin", begin)
    report = await crawl({"/": page("a.pdf"), "/a.pdf": a_file(PDF)})
    assert report.items[0]["files"][0]["checksum"] == sha(PDF)
    assert len(starts) == 2


async def test_a_stored_file_is_downloaded_again_after_its_time(crawl, tmp_path):
    pages = {
        "/": page("a.pdf", "b.pdf"),
        "/a.pdf": a_file(PDF),
        "/b.pdf": (Answer(b"", status=404), a_file(OTHER)),
    }
    first = await crawl(pages)
    second = await CrawlHarness(Shop(first.origin), tmp_path, files_store=str(tmp_path / "files")).run()
    assert first.site.counts["/a.pdf"] == 1
    assert second.items[0]["files"][1]["checksum"] == sha(OTHER)
    third = await CrawlHarness(
        Shop(first.origin), tmp_path, files_store=str(tmp_path / "files"), files_ttl=0
    ).run()
    assert first.site.counts["/a.pdf"] == 2
    assert third.items[0]["files"] == second.items[0]["files"]


@pytest.mark.parametrize("header", ["ETag", "Last-Modified"])
async def test_an_expired_file_is_confirmed_by_its_server_or_replaced(header, crawl, tmp_path):
    condition = {"ETag": "if-none-match", "Last-Modified": "if-modified-since"}[header]
    first, second = "Mon, 02 Mar 2026 10:00:00 GMT", "Tue, 03 Mar 2026 10:00:00 GMT"
    now = {"version": first, "data": PDF}

    def answer(visit):
        if visit.headers.get(condition) == now["version"]:
            return Answer(b"", status=304)
        return a_file(now["data"], headers={header: now["version"]})

    again = {"files_store": str(tmp_path / "files"), "files_ttl": 0}
    runs = [await crawl({"/": page("a.pdf"), "/a.pdf": answer})]
    runs.append(await CrawlHarness(Shop(runs[0].origin), tmp_path, **again).run())
    now |= {"version": second, "data": OTHER}
    runs += [await CrawlHarness(Shop(runs[0].origin), tmp_path, **again).run() for _ in range(2)]
    checksums = [run.items[0]["files"][0]["checksum"] for run in runs]
    assert checksums == [sha(PDF), sha(PDF), sha(OTHER), sha(OTHER)]
    counts = [tuple(run.counters.get(name, 0) for name in ("files", "files/unchanged")) for run in runs]
    assert counts == [(1, 0), (0, 1), (1, 0), (0, 1)]
    (tmp_path / "files" / stored(OTHER)).unlink()
    restored = await CrawlHarness(Shop(runs[0].origin), tmp_path, **again).run()
    assert restored.items[0]["files"][0]["checksum"] == sha(OTHER)
    assert (tmp_path / "files" / stored(OTHER)).read_bytes() == OTHER


async def test_a_file_that_was_deleted_is_downloaded_again(crawl, tmp_path):
    first = await crawl({"/": page("a.pdf"), "/a.pdf": a_file(PDF)})
    (tmp_path / "files" / stored(PDF)).unlink()
    await CrawlHarness(Shop(first.origin), tmp_path, files_store=str(tmp_path / "files")).run()
    assert contents(tmp_path / "files") == {stored(PDF): PDF}


async def test_images_get_thumbnails(crawl, tmp_path):
    picture = io.BytesIO()
    Image.new("RGB", (400, 200), "red").save(picture, "PNG")

    class Gallery(Shop):
        def parse(self, response):
            yield {"image_urls": "/red.png"}
            yield {"image_urls": ["/broken.png"]}

    pages = {
        "/": page(),
        "/red.png": a_file(picture.getvalue(), "image/png"),
        "/broken.png": a_file(OTHER, "image/png"),
    }
    report = await crawl(pages, Gallery, image_thumbnails={"small": (50, 50)})
    (good,), (broken,) = (item["images"] for item in report.items)
    with Image.open(tmp_path / "files" / good["thumbnails"]["small"]) as small:
        assert small.size == (50, 25)
    assert "thumbnails" not in broken
    assert (await CrawlHarness(
        Gallery(report.origin), tmp_path, files_store=str(tmp_path / "files"), image_thumbnails={"tiny": (5, 5)}
    ).run()).items[0]["images"][0]["thumbnails"].keys() == {"tiny"}  # fmt: skip


async def test_all_items_of_a_page_keep_their_order_and_their_values(crawl):
    @dataclass
    class Book:
        title: str
        price: Decimal
        file_urls: list

    class Books(Shop):
        def parse(self, response):
            yield {"title": "plain", "day": date(2026, 1, 2)}
            yield Book("one", Decimal("1.50"), ["/a.pdf"])
            yield {"title": "last", "file_urls": []}

    report = await crawl({"/": page(), "/a.pdf": a_file(PDF)}, Books)
    plain, book, last = report.items
    assert plain == {"title": "plain", "day": date(2026, 1, 2)}
    assert (book["title"], book["price"], book["files"][0]["checksum"]) == ("one", Decimal("1.50"), sha(PDF))
    assert last["files"] == []
    assert (book.kind, plain.kind) == ("Book", "")


async def test_without_a_store_the_urls_are_plain_data(crawl):
    report = await crawl({"/": page("a.pdf"), "/a.pdf": a_file(PDF)}, files_store=None)
    assert "files" not in report.items[0]
    assert report.site.counts["/a.pdf"] == 0


async def test_a_limit_of_pages_counts_complete_pages(crawl):
    pages = {f"/{n}.html": page(f"/{n}.pdf") for n in range(10)}
    pages |= {f"/{n}.pdf": a_file(b"%d" % n) for n in range(10)}
    report = await crawl({"/": page(*pages), **pages}, max_pages=4)
    assert len(report.items) == report.counters["pages"] == 4
    assert all("checksum" in one for item in report.items for one in item["files"])


async def test_a_full_disk_fails_the_crawl_and_keeps_the_items(crawl, tmp_path, monkeypatch):
    def full(self, data):
        raise StoreError("the disk is full", remedy="free some space")

    with monkeypatch.context() as patch:
        patch.setattr("skitter.store.media.FileDraft.write", full)
        report = await crawl({"/": page("a.pdf"), "/a.pdf": a_file(PDF)})
    assert "disk is full" in str(report.failure)
    assert report.items == []
    assert (await report.again.run()).items[0]["files"][0]["checksum"] == sha(PDF)


async def test_hooks_see_items_before_and_after_their_files(crawl):
    seen = []

    class Hooked(Shop):
        def before_save(self, response, items):
            seen.append(("before", "files" in items[0], response.url))

        def after_save(self, response, items):
            seen.append(("after", "files" in items[0], response.url))

    report = await crawl({"/": page("a.pdf"), "/a.pdf": a_file(PDF)}, Hooked)
    assert seen == [("before", False, f"{report.origin}/"), ("after", True, f"{report.origin}/")]


async def test_a_file_that_a_hook_drops_is_an_error_and_its_item_is_kept(crawl):
    from skitter import HookAction

    class Dropping(Shop):
        def before_request(self, request):
            return HookAction.DROP if request.url.endswith(".pdf") else None

    report = await crawl({"/": page("a.pdf"), "/a.pdf": a_file(PDF)}, Dropping)
    assert "hook" in report.items[0]["files"][0]["error"]


async def test_files_are_fetched_with_the_session_of_their_page(crawl):
    class Session(Shop):
        async def start(self):
            yield Request(self.start_urls[0], session="ann", cookies={"a": "1"})

    pages = {"/": page("a.pdf", headers={"Set-Cookie": "id=7"}), "/a.pdf": a_file(PDF)}
    report = await crawl(pages, Session)
    asked = next(visit for visit in report.site.visits if visit.target == "/a.pdf")
    assert asked.headers["cookie"] == "id=7"
    assert asked.headers["referer"] == f"{report.origin}/"


async def test_files_are_downloaded_for_changed_items_and_are_not_remembered_as_pages(crawl):
    headers = {"ETag": '"1"'}
    pages = {
        "/": page("a.pdf", "b.html", headers=headers),
        "/b.html": (page("c.pdf", headers=headers), page("a.pdf", "c.pdf")),
        "/a.pdf": a_file(PDF, headers=headers), "/c.pdf": a_file(OTHER, headers=headers),
    }  # fmt: skip
    report = await crawl(pages, changes="changed", files_ttl=0)
    assert len(report.items) == 2
    frontier = report.again.frontier
    visits = await frontier.reports.visits()
    assert sorted(visit.url for visit in visits.pages) == [f"{report.origin}/", f"{report.origin}/b.html"]
    assert await frontier.control.recrawl()
    second = await report.again.run()
    (item,) = [item for item in second.items if item not in report.items]
    assert item["files"] == [result(report.origin, "/a.pdf", PDF), result(report.origin, "/c.pdf", OTHER)]
    assert len(second.items) == 3
    conditional = {visit.target for visit in report.site.visits if "if-none-match" in visit.headers}
    assert conditional == {"/", "/b.html", "/a.pdf", "/c.pdf"}


@pytest.mark.parametrize("mode", ["all", "changed"])
async def test_a_page_whose_items_were_not_delivered_is_fetched_again_in_the_next_pass(mode, crawl):
    headers = {"ETag": '"1"'}
    pages = {
        "/": page("a.html", "b.html", headers=headers), "/a.html": page("a.pdf", headers=headers),
        "/b.html": page("b.pdf", headers=headers), "/a.pdf": (Answer(status=404), a_file(PDF)), "/b.pdf": a_file(OTHER),
    }  # fmt: skip
    report = await crawl(pages, changes=mode, files_required=True)
    assert len(report.items) == 2
    frontier = report.again.frontier
    assert await frontier.control.recrawl()
    second = await report.again.run()
    assert len(second.items) == 3
    assert second.counters["visits/unchanged"] == 2
    asked = [visit for visit in report.site.visits if "if-none-match" in visit.headers]
    assert sorted(visit.target for visit in asked) == ["/", "/b.html"]


class Interrupted:
    """A file whose transfer ends after ``size`` bytes, unless a later request asks for the rest."""

    def __init__(self, size, answer, **headers):
        self.size, self.answer = size, answer
        self.headers = headers or {"ETag": '"1"'}
        self.asked = []

    def __call__(self, visit):
        self.asked.append({name: visit.headers.get(name) for name in ("range", "if-range")})
        if len(self.asked) == 1:
            lines = [f"{name}: {value}" for name, value in self.headers.items()]
            lines += ["Content-Type: application/pdf", f"Content-Length: {len(PDF)}"]
            head = "\r\n".join(["HTTP/1.1 200 OK", *lines, "", ""]).encode()
            return WireAnswer([head, PDF[: self.size]])
        return self.answer if isinstance(self.answer, Answer | WireAnswer) else self.answer(visit)


def rest(visit, *, data=PDF, start=None, total=None, **headers):
    """Answer a request for the rest of a file; without ``Content-Type``, as RFC 9110 section 15.3.7 allows."""
    if "range" not in visit.headers:
        return a_file(data)
    start = int(visit.headers["range"].removeprefix("bytes=").removesuffix("-")) if start is None else start
    headers = {
        "ETag": '"1"',
        **headers,
        "Content-Range": f"bytes {start}-{len(data) - 1}/{total or len(data)}",
    }
    return Answer(data[start:], status=206, headers=headers, content_type=None)


async def test_an_interrupted_download_continues_where_it_ended(crawl, tmp_path):
    file = Interrupted(20_000, rest)
    report = await crawl({"/": page("a.pdf"), "/a.pdf": file})
    assert report.items[0]["files"] == [result(report.origin, "/a.pdf", PDF)]
    assert file.asked == [{"range": None, "if-range": None}, {"range": "bytes=20000-", "if-range": '"1"'}]
    assert contents(tmp_path / "files") == {stored(PDF): PDF}
    assert list((tmp_path / "files" / ".drafts").iterdir()) == []
    names = ("files", "files/continued", "retried/disconnected")
    assert [report.counters[name] for name in names] == [1, 1, 1]
    assert report.counters["bytes"] == len(page("a.pdf").body) + len(PDF) - 20_000


UNREADABLE = {"ETag": '"1"', "Content-Range": f"bytes {'9' * 5_000}-1/2"}
"""Python refuses to read a number of that many digits."""


@pytest.mark.parametrize(
    ("answer", "requests"),
    [
        (a_file(OTHER, headers={"ETag": '"2"'}), 2),  # the file has changed, or the server supports no ranges
        (lambda visit: rest(visit, data=OTHER, ETag='"2"'), 3),
        (lambda visit: rest(visit, data=OTHER, start=0), 3),
        (lambda visit: rest(visit, data=OTHER, total=70_000), 3),
        (lambda visit: Answer(b"", 206, headers=UNREADABLE) if "range" in visit.headers else a_file(OTHER), 3),
        (lambda visit: rest(visit, data=OTHER, **{"Content-Encoding": "gzip"}), 3),
        (lambda visit: Answer(b"", status=416) if "range" in visit.headers else a_file(OTHER), 3),
        (lambda visit: Answer(b"", status=412) if "range" in visit.headers else a_file(OTHER), 3),
    ],
)  # fmt: skip
async def test_a_download_that_cannot_continue_begins_again(answer, requests, crawl, tmp_path):
    file = Interrupted(20_000, answer)
    report = await crawl({"/": page("a.pdf"), "/a.pdf": file})
    assert report.items[0]["files"] == [result(report.origin, "/a.pdf", OTHER)]
    assert len(file.asked) == requests
    assert contents(tmp_path / "files") == {stored(OTHER): OTHER}
    assert list((tmp_path / "files" / ".drafts").iterdir()) == []


@pytest.mark.parametrize(
    ("headers", "validator"),
    [
        ({"ETag": 'W/"1"'}, None),
        ({"X": "y"}, None),
        ({"ETag": '"1"', "Accept-Ranges": "none"}, None),
        ({"Date": "Mon, 23 Nov 2026 10:00:00 GMT", "Last-Modified": "Mon, 23 Nov 2026 10:00:00 GMT"}, None),
        ({"Date": "Mon, 23 Nov 2026 10:00:01 GMT", "Last-Modified": "Mon, 23 Nov 2026 10:00:00 GMT"},
         "Mon, 23 Nov 2026 10:00:00 GMT"),
        ({"ETag": 'W/"1"', "Date": "Mon, 23 Nov 2026 10:00:01 GMT", "Last-Modified": "Mon, 23 Nov 2026 10:00:00 GMT"}, None),
    ],
)  # fmt: skip
async def test_only_a_strong_validator_continues_a_download(headers, validator, crawl):
    file = Interrupted(20_000, a_file(PDF), **headers)
    report = await crawl({"/": page("a.pdf"), "/a.pdf": file})
    assert report.items[0]["files"] == [result(report.origin, "/a.pdf", PDF)]
    assert file.asked[1] == {"range": validator and "bytes=20000-", "if-range": validator}


async def test_a_download_that_is_interrupted_repeatedly_ends(crawl):
    def more(visit):
        start = int(visit.headers["range"].removeprefix("bytes=").removesuffix("-"))
        head = http_head(
            'ETag: "1"', f"Content-Range: bytes {start}-{len(PDF) - 1}/{len(PDF)}", f"Content-Length: {len(PDF) - start}",
            status="206 Partial Content",
        )  # fmt: skip
        return WireAnswer([head, PDF[start : start + 10_000]], end="keep" if start >= 40_000 else "close")

    file = Interrupted(20_000, more)
    report = await crawl({"/": page("a.pdf"), "/a.pdf": file}, max_retries=4, read_timeout=3)
    assert report.items[0]["files"] == [result(report.origin, "/a.pdf", PDF)]
    assert [one["range"] for one in file.asked] == [
        None,
        *(f"bytes={n}-" for n in (20_000, 30_000, 40_000, 50_000)),
    ]


def test_a_suspended_draft_is_resumed_once_and_a_damaged_one_not_at_all(tmp_path):
    store = MediaStore(str(tmp_path), ttl=1, thumbnails={})
    store.open()

    def suspend():
        draft = store.draft()
        draft.source = DraftSource('"1"', "text/plain", {"etag": '"1"'}, 6)
        draft.write(b"abc")
        store.suspend(draft, "http://h.test/")
        draft.write(b"too late")

    suspend()
    draft = store.resume("http://h.test/")
    assert (draft.size, draft.source.length, draft.checksum) == (3, 6, sha(b"abc"))
    assert store.resume("http://h.test/") is None
    draft.write(b"def")
    assert store.keep(draft, "http://h.test/", "text/plain", ".txt", {}).checksum == sha(b"abcdef")
    draft.discard()
    assert (tmp_path / stored(b"abcdef", ".txt")).read_bytes() == b"abcdef"
    suspend()
    (part,) = (tmp_path / ".drafts").iterdir()
    part.write_bytes(part.read_bytes()[:-3])
    assert store.resume("http://h.test/") is None
    assert list((tmp_path / ".drafts").iterdir()) == []


@pytest.mark.parametrize("name", ["max_pages_per_slot", "max_bytes_per_slot", "max_queued_per_slot"])
def test_a_budget_that_would_drop_waiting_items_is_refused(tmp_path, name):
    harness = CrawlHarness(Shop("http://h.test/"), tmp_path, files_store=str(tmp_path / "files"), **{name: 5})
    with pytest.raises(SettingsError) as refusal:
        harness.open_files_store()
    assert refusal.value.field == name


def test_items_are_packed_without_loss():
    item = {
        "d": date(2026, 1, 2),
        "n": Decimal("1.10"),
        "big": 2**70,
        "b": b"\0",
        "l": [1, None, {"x": True}],
        "f": 1.5,
    }
    assert unpack_items(pack_items([item])) == [item]
    assert unpack_items(pack_items([{"text": "\ud800"}])) == [{"text": "\ufffd"}]


@pytest.mark.parametrize(
    ("url", "kind", "suffix"),
    [
        ("http://x/a.PDF?x=1", "", ".pdf"), ("http://x/a", "image/png", ".png"), ("http://x/a", "", ""),
        ("http://x/a.b%2f", "text/plain", ".txt"), ("http://x/.htaccess", "", ""),
    ],
)  # fmt: skip
def test_a_file_gets_the_suffix_of_its_url_or_of_its_type(url, kind, suffix):
    assert suffix_of(url, kind) == suffix


def test_a_secret_in_the_store_is_refused():
    with pytest.raises(SettingsError) as refusal:
        MediaStore("s3://bucket/x?secret=abc", ttl=1, thumbnails={})
    assert refusal.value.field == "files_store"
    assert "abc" not in str(refusal.value)


def test_a_store_that_is_not_writable_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError):
        MediaStore(str(tmp_path / "file"), ttl=1, thumbnails={}).open()


def test_a_damaged_record_is_a_missing_one(tmp_path):
    store = MediaStore(str(tmp_path), ttl=1000, thumbnails={})
    store.open()
    draft = store.draft()
    draft.write(PDF)
    store.keep(draft, "http://x/a.pdf", "application/pdf", ".pdf", {})
    draft.discard()
    assert store.find(["http://x/a.pdf"], 0)
    (record,) = (tmp_path / ".index/urls").rglob("*.json")
    assert json.loads(record.read_bytes())["checksum"] == sha(PDF)
    record.write_bytes(b"{")
    assert store.find(["http://x/a.pdf"], 0) == {}
