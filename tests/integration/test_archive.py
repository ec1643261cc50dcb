"""Archives: a job records its responses, and a spider runs on the archive without a server."""

import gzip
import json
import random
import re
import time
from collections import Counter
from datetime import datetime

import pytest

from cli_command import expected_urls, lines_of, skitter, urls_of, usage_error
from crawl_harness import Scripted
from services.processes import free_port
from skitter.testing import Answer, GeneratedSite
from warc_files import ForeignArchive, of_kind, read_warc

pytestmark = pytest.mark.filterwarnings(
    # warcio leaves its temporary files to the garbage collector.
    "ignore:.*SpooledTemporaryFile:pytest.PytestUnraisableExceptionWarning"
)
SPIDER = """
from skitter import Request, Spider

class Pages(Spider):
    url = ""

    async def start(self):
        yield Request(self.url)

    def parse(self, response):
        yield {"url": response.url, "title": response.css("title::text").get(), "size": len(response.body)}
        yield response.follow_all("a")
"""
FAST = ("--delay", 0)


def run(tmp_path, url, *options):
    (tmp_path / "pages.py").write_text(SPIDER)
    return skitter("run", "pages.py", "-a", f"url={url}", *FAST, *options, cwd=tmp_path)


def records_of(tmp_path, name="site.warc.gz"):
    return read_warc((tmp_path / name).read_bytes())


def test_a_spider_finds_in_the_archive_what_it_found_on_the_site(serve, tmp_path):
    site = GeneratedSite(pages=60, links_per_page=12, page_bytes=2000)
    server = serve(site)
    done = run(tmp_path, server.url, "-o", "items.jsonl", "-o", "site.warc.gz", "--workers", 2)
    assert done.returncode == 0, done.stderr
    assert urls_of(tmp_path / "items.jsonl") == expected_urls(site, server)
    hits = len(server.log.hits)
    again = run(
        tmp_path, server.url, "-s", "fetcher=warc:site.warc.gz", "--job", "again", "-o", "again.jsonl"
    )
    assert again.returncode == 0, again.stderr
    assert len(server.log.hits) == hits, "the site was asked"

    def sorted_items(name):
        return sorted(lines_of(tmp_path / name), key=lambda item: item["url"])

    assert sorted_items("again.jsonl") == sorted_items("items.jsonl")


def test_each_answer_is_recorded_once_with_any_outcome_of_its_page(serve, tmp_path):
    body = b"<title>packed</title>" + b" " * 500
    pages = {
        "/robots.txt": Answer(b"User-agent: *\nDisallow: /secret\n", content_type="text/plain"),
        "/": ["/moved", "/gone", "/again", "/packed", "/secret"],
        "/moved": Answer(status=301, headers={"Location": "/here"}),
        "/here": [],
        "/again": (Answer(status=503), []),
        "/packed": Answer(gzip.compress(body), headers={"Content-Encoding": "gzip"}),
    }
    server = serve(Scripted(pages))
    options = ("-o", "items.jsonl", "-o", "site.warc.gz", "-o", "plain.warc", "-s", "retry_delay=0.1")
    done = run(tmp_path, server.url, *options)
    assert done.returncode == 0, done.stderr
    records = records_of(tmp_path)
    answers = Counter(
        (record.url.removeprefix(server.url), record.status.split()[1])
        for record in of_kind(records, "response")
    )
    assert answers == Counter(
        {("robots.txt", "200"): 1, ("", "200"): 1, ("moved", "301"): 1, ("here", "200"): 1, ("gone", "404"): 1,
         ("again", "503"): 1, ("again", "200"): 1, ("packed", "200"): 1}
    )  # fmt: skip
    (packed,) = [record for record in of_kind(records, "response") if record.url.endswith("packed")]
    assert gzip.decompress(packed.body) == body
    assert len(of_kind(records, "request")) == sum(answers.values())
    assert [record[:3] for record in records[1:]] == [
        record[:3] for record in records_of(tmp_path, "plain.warc")[1:]
    ]


@pytest.mark.parametrize(("options", "fetches"), [(["--no-robots"], 1), ([], 2)])
def test_a_page_that_is_robots_txt_is_recorded_as_often_as_it_is_fetched(serve, tmp_path, options, fetches):
    site = Scripted(
        {"/": ["/robots.txt"], "/robots.txt": Answer(b"User-agent: *\n", content_type="text/plain")}
    )
    server = serve(site)
    done = skitter("crawl", server.url, *FAST, *options, "-o", "site.warc.gz", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    records = of_kind(records_of(tmp_path), "response")
    assert sum(record.url.endswith("/robots.txt") for record in records) == fetches
    assert site.counts["/robots.txt"] == fetches


def test_an_archive_is_the_only_output(serve, tmp_path):
    server = serve(Scripted({"/": ["/a"], "/a": []}))
    assert skitter("crawl", server.url, *FAST, "-o", "site.warc.gz", cwd=tmp_path).returncode == 0
    urls = Counter(record.url for record in of_kind(records_of(tmp_path), "response"))
    assert urls == Counter([server.url, f"{server.url}a", f"{server.url}robots.txt"])


def conditional(visit):
    if visit.headers.get("if-none-match") == '"1"':
        return Answer(status=304, headers={"ETag": '"1"'})
    return Answer(b"<title>t</title>", headers={"ETag": '"1"'})


def test_a_pass_records_unmodified_pages_as_revisits(serve, tmp_path):
    server = serve(Scripted({"/": conditional}))
    options = ("-o", "items.jsonl", "-o", "site.warc.gz", "--changes", "all", "--recrawl", "--no-robots")
    for _ in range(2):
        assert run(tmp_path, server.url, *options).returncode == 0
    assert len(lines_of(tmp_path / "items.jsonl")) == 1
    kinds = Counter(record.kind for record in records_of(tmp_path))
    assert kinds == Counter(warcinfo=1, response=1, revisit=1, request=2)


def test_the_archive_keeps_the_response_of_an_unmodified_page_whose_items_have_files(serve, tmp_path):
    spider = SPIDER.replace('"size"', '"file_urls": [response.urljoin("/a.txt")], "size"')
    (tmp_path / "pictures.py").write_text(spider)
    server = serve(Scripted({"/": conditional, "/a.txt": Answer(b"text", content_type="text/plain")}))
    options = ("-o", "items.jsonl", "-o", "site.warc.gz", "--changes", "all", "--recrawl", "--no-robots")
    for number in range(3):
        done = skitter(
            "run", "pictures.py", "-a", f"url={server.url}", *FAST, *options, "-s", "files_store=files",
            cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert [len(item["files"]) for item in lines_of(tmp_path / "items.jsonl")] == [1]
        kinds = Counter(record.kind for record in records_of(tmp_path))
        assert (kinds["response"], kinds["revisit"]) == (1, min(number, 1))


def test_items_with_files_add_no_responses_to_an_archive(serve, tmp_path):
    (tmp_path / "files.py").write_text("""
from skitter import Spider

class Files(Spider):
    start_urls = ["START"]

    def parse(self, response):
        yield {"url": response.url, "file_urls": [response.urljoin("/a.txt"), response.urljoin("/b.txt")]}
        yield response.follow_all("a")
""")
    file = Answer(b"text", content_type="text/plain")
    server = serve(Scripted({"/": ["/page"], "/page": [], "/a.txt": file, "/b.txt": file}))
    spider = (tmp_path / "files.py").read_text().replace("START", server.url)
    (tmp_path / "files.py").write_text(spider)
    done = skitter(
        "run", "files.py", *FAST, "--no-robots", "-s", "files_store=files", "-o", "items.jsonl", "-o", "site.warc.gz",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [len(item["files"]) for item in lines_of(tmp_path / "items.jsonl")] == [2, 2]
    pages = of_kind(records_of(tmp_path), "response")
    assert sorted(page.url for page in pages) == [server.url, f"{server.url}page"]
    dates = [datetime.fromisoformat(page.headers["WARC-Date"]).timestamp() for page in pages]
    assert all(abs(time.time() - date) < 100 for date in dates)


def test_the_archive_of_a_job_is_exported(serve, tmp_path):
    server = serve(Scripted({"/": ["/a"], "/a": []}))
    assert run(tmp_path, server.url, "-o", "site.warc.gz", "-o", "items.jsonl", "--job", "j").returncode == 0
    done = skitter("export", "j", "-o", "copy.warc.gz", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [record[:3] for record in records_of(tmp_path, "copy.warc.gz")[1:]] == [
        record[:3] for record in records_of(tmp_path)[1:]
    ]
    assert skitter("export", "j", "-o", "copy.jsonl", cwd=tmp_path).returncode == 0
    assert urls_of(tmp_path / "copy.jsonl") == [server.url, f"{server.url}a"]


# --- archives of other programs ---------------------------------------------------------------------------

ORIGIN = f"http://127.0.0.1:{free_port()}/"
"""A URL without a server."""


def replay(tmp_path, archive, spider=SPIDER, *options):
    (tmp_path / "site.warc.gz").write_bytes(archive.data)
    (tmp_path / "pages.py").write_text(spider)
    return skitter(
        "run", "pages.py", "-a", f"url={ORIGIN}", *FAST, "-s", "fetcher=warc:site.warc.gz", "-o", "items.jsonl",
        "--job", "j", *options, cwd=tmp_path,
    )  # fmt: skip


def titles(tmp_path):
    return {item["url"].removeprefix(ORIGIN): item["title"] for item in lines_of(tmp_path / "items.jsonl")}


def test_uris_between_angle_brackets_are_those_of_an_archive_of_wget(tmp_path):
    archive = ForeignArchive()
    archive.add(ORIGIN, b"<title>home</title><a href=/b>b</a>")
    archive.add_revisit(f"{ORIGIN}b", ORIGIN)
    plain = re.sub(rb"(Target-URI: )(\S+)", rb"\1<\2>", gzip.decompress(archive.data))
    (tmp_path / "wget.warc").write_bytes(plain)
    done = run(tmp_path, ORIGIN, "-s", "fetcher=warc:wget.warc", "-o", "items.jsonl")
    assert done.returncode == 0, done.stderr
    assert titles(tmp_path) == {"": "home", "b": "home"}


def test_a_recorded_failure_is_not_retried(tmp_path):
    archive = ForeignArchive()
    archive.add(ORIGIN, b"<a href=/busy>b</a><a href=/broken>b</a><a href=/page>p</a>")
    archive.add(f"{ORIGIN}busy", b"", status="503 Busy", fields=[("Retry-After", "1")])
    archive.add(f"{ORIGIN}broken", b"", status="500 Broken")
    archive.add(f"{ORIGIN}page", b"<title>page</title>")
    archive.add(f"{ORIGIN}robots.txt", b"", status="503 Busy")
    done = replay(tmp_path, archive, SPIDER, "-s", "retry_delay=0", "-s", "max_throttled=1")
    assert done.returncode == 0, done.stderr
    assert titles(tmp_path) == {"": None, "page": "page"}
    letters = json.loads(skitter("failures", "list", "j", "--json", cwd=tmp_path).stdout)
    assert sorted((letter["url"].removeprefix(ORIGIN), letter["attempts"]) for letter in letters) == [
        ("broken", 1),
        ("busy", 1),
    ]
    assert "retried" not in skitter("status", "j", cwd=tmp_path).stdout


def test_an_archive_that_was_compressed_as_a_whole_is_refused(tmp_path):
    archive = ForeignArchive()
    for name in ("a", "b", "c"):
        archive.add(f"{ORIGIN}{name}", b"<title>page</title>")
    (tmp_path / "pages.py").write_text(SPIDER)
    (tmp_path / "whole.warc.gz").write_bytes(gzip.compress(gzip.decompress(archive.data)))
    options = ("-a", f"url={ORIGIN}", "-s", "fetcher=warc:whole.warc.gz")
    line = usage_error("run", "pages.py", *options, cwd=tmp_path)
    assert "whole.warc.gz is compressed as a whole" in line
    assert "gunzip" in line


@pytest.mark.parametrize("is_compressed", [True, False])
def test_an_archive_that_is_cut_off_gives_a_warning_and_no_part_of_a_page(tmp_path, is_compressed):
    archive = ForeignArchive()
    archive.add(ORIGIN, b"<title>home</title><a href=/b>b</a>")
    archive.add(f"{ORIGIN}b", b"<title>b</title>" + bytes(random.Random(1).randbytes(5000)))
    data = archive.data if is_compressed else gzip.decompress(archive.data)
    (tmp_path / "cut.warc").write_bytes(data[:-2000])
    done = run(tmp_path, ORIGIN, "-s", "fetcher=warc:cut.warc", "-o", "items.jsonl", "--job", "j")
    assert done.returncode == 0, done.stderr
    assert "the archive cut.warc ends within a record" in done.stderr
    assert titles(tmp_path) == {"": "home"}
    (letter,) = json.loads(skitter("failures", "list", "j", "--json", cwd=tmp_path).stdout)
    assert letter["error"].startswith("archive: the record is cut off after")


def test_a_cut_body_is_replayed_as_it_was_delivered(serve, tmp_path):
    body = b"<title>cut</title>" + random.Random(2).randbytes(50_000)
    server = serve(Scripted({"/": Answer(gzip.compress(body), headers={"Content-Encoding": "gzip"})}))
    limits = ("-s", "max_body=20000", "-s", "truncate_body=true")
    assert run(tmp_path, server.url, *limits, "-o", "live.jsonl", "-o", "site.warc.gz").returncode == 0
    options = ("-s", "fetcher=warc:site.warc.gz", "--job", "again", "-o", "items.jsonl")
    assert run(tmp_path, server.url, *limits, *options).returncode == 0
    assert lines_of(tmp_path / "items.jsonl") == lines_of(tmp_path / "live.jsonl")
    assert [item["size"] for item in lines_of(tmp_path / "items.jsonl")] == [20_000]


def test_the_latest_answer_of_a_foreign_archive_counts(tmp_path):
    archive = ForeignArchive()
    links = b"<title>%s</title><a href=/b>b</a><a href=/c>c</a><a href=/d>d</a><a href=/missing>m</a>"
    archive.add(ORIGIN, links % b"new", date="2026-02-01T00:00:00Z")
    archive.add(ORIGIN, links % b"old", date="2026-01-01T00:00:00Z")
    chunked = b"12\r\n<title>b</title>\r\n\r\n0\r\n\r\n".replace(b"12\r\n", b"10\r\n").replace(
        b"\r\n\r\n0", b"\r\n0"
    )
    archive.add(f"{ORIGIN}b", chunked, fields=[("Transfer-Encoding", "chunked")])
    archive.add_revisit(f"{ORIGIN}c", ORIGIN)
    archive.add_resource(f"{ORIGIN}d", b"<title>d</title>", "text/html")
    done = replay(tmp_path, archive)
    assert done.returncode == 0, done.stderr
    assert titles(tmp_path) == {"": "new", "b": "b", "c": "new", "d": "d"}
    letters = json.loads(skitter("failures", "list", "j", "--json", cwd=tmp_path).stdout)
    assert [(letter["url"], letter["error"].partition(":")[0]) for letter in letters] == [
        (f"{ORIGIN}missing", "archive")
    ]


def test_requests_other_than_get_are_told_apart_by_method_and_body(tmp_path):
    spider = SPIDER.replace(
        "yield Request(self.url)",
        """for body in (b"one", b"two"):
            yield Request(self.url, method="POST", body=body)
        yield Request(self.url)""",
    )
    archive = ForeignArchive()
    archive.add(ORIGIN, b"<title>get</title>")
    for body in (b"one", b"two"):
        archive.add(ORIGIN, b"<title>%s</title>" % body, request=("POST", body))
    done = replay(tmp_path, archive, spider)
    assert done.returncode == 0, done.stderr
    assert sorted(item["title"] for item in lines_of(tmp_path / "items.jsonl")) == ["get", "one", "two"]


def test_rules_of_an_archived_robots_txt_hold(tmp_path):
    archive = ForeignArchive()
    archive.add(ORIGIN, b"<a href=/a>a</a><a href=/b>b</a>")
    archive.add(f"{ORIGIN}a", b"<title>a</title>")
    archive.add(f"{ORIGIN}b", b"<title>b</title>")
    archive.add(f"{ORIGIN}robots.txt", b"User-agent: *\nDisallow: /b\n")
    assert replay(tmp_path, archive).returncode == 0
    assert set(titles(tmp_path)) == {"", "a"}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("warc:missing.warc.gz", "cannot read the archive missing.warc.gz: No such file"),
        ("warc:pages.py", "cannot read the archive pages.py: Invalid WARC header"),
        ("warc:empty.warc", "no responses in empty.warc"),
        ("warc:", "names no file"),
    ],
)
def test_an_archive_that_cannot_be_read_is_named(tmp_path, value, words):
    (tmp_path / "pages.py").write_text(SPIDER)
    (tmp_path / "empty.warc").touch()
    line = usage_error("run", "pages.py", "-a", f"url={ORIGIN}", "-s", f"fetcher={value}", cwd=tmp_path)
    assert words in line


def test_options_of_items_are_refused(tmp_path):
    (tmp_path / "pages.py").write_text(SPIDER)
    command = ("run", "pages.py", "-a", f"url={ORIGIN}", "-o", "site.warc.gz?fields=url")
    assert "unknown option 'fields'" in usage_error(*command, cwd=tmp_path)


def test_an_archive_on_another_file_system_holds_the_same(serve, tmp_path):
    server = serve(Scripted({"/": ["/a"], "/a": []}))
    (tmp_path / "remote").mkdir()
    target = f"file://{tmp_path}/remote/site.warc.gz"
    done = run(tmp_path, server.url, "-o", target, "-o", "site.warc.gz", "-o", "items.jsonl")
    assert done.returncode == 0, done.stderr
    remote, local = (
        Counter(record[:2] for record in records_of(tmp_path, name))
        for name in ("remote/site.warc.gz", "site.warc.gz")
    )
    assert remote == local
    assert local["response", server.url] == 1
    assert urls_of(tmp_path / "items.jsonl") == [server.url, f"{server.url}a"]


def test_a_large_body_is_archived(serve, tmp_path):
    body = b"<title>large</title>" + bytes(range(97, 123)) * 40_000
    server = serve(Scripted({"/": Answer(body)}))
    assert run(tmp_path, server.url, "-o", "site.warc.gz").returncode == 0
    (large,) = [record for record in of_kind(records_of(tmp_path), "response") if record.url == server.url]
    assert large.body == body


def test_an_archive_cannot_be_the_output_of_a_task(tmp_path):
    (tmp_path / "r.yaml").write_text("name: one\nstart: http://a/\npages:\n  p: {follow: [a]}\n")
    line = usage_error("task", "add", "tasks", "r.yaml", "-o", "one.warc.gz", cwd=tmp_path)
    assert "'one.warc.gz' is an archive" in line


def test_a_damaged_record_is_a_dead_letter(tmp_path):
    archive = ForeignArchive()
    archive.add(ORIGIN, b"<a href=/a>a</a>")
    start = len(archive.data)
    archive.add(f"{ORIGIN}a", b"<title>a</title>" + bytes(range(256)) * 40)
    spider = SPIDER.replace(
        "def parse(self, response):",
        """def parse(self, response):
        with open("site.warc.gz", "r+b") as file:
            file.seek(START)
            file.write(b"damaged")""",
    ).replace("START", str(start))
    done = replay(tmp_path, archive, spider)
    assert done.returncode == 0, done.stderr
    letters = json.loads(skitter("failures", "list", "j", "--json", cwd=tmp_path).stdout)
    assert [(letter["url"], letter["error"][:32]) for letter in letters] == [
        (f"{ORIGIN}a", "archive: the record cannot be re")
    ]
