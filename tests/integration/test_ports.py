"""Programs of other systems, ported as their users would, with default settings and exact results."""

import subprocess
import sys

from crawl_harness import Scripted
from skitter import Collector
from skitter.frontier.records import JobState
from skitter.testing import Answer

SITEMAP = b"""<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
<url><loc>http://h.test/1</loc></url><url><loc>http://h.test/2</loc></url><url><loc>http://h.test/3</loc></url></urlset>"""


def test_collys_example_of_a_sitemap_finds_all_its_locations(serve):
    crawler, known = Collector(), []
    crawler.on_xml("//urlset/url/loc", lambda element: known.append(element.text))
    crawler.visit(serve(Scripted({"/s.xml": Answer(SITEMAP, content_type="text/xml")})).url + "s.xml")
    assert crawler.run().state is JobState.FINISHED
    assert known == ["http://h.test/1", "http://h.test/2", "http://h.test/3"]


def test_collys_example_of_a_queue_that_grows_in_on_request_visits_all(serve):
    site = Scripted({f"/?n={number}": Answer(b"-") for number in range(10)})
    url = serve(site).url
    crawler = Collector(concurrency=2)

    @crawler.on_request
    def grow(request):
        number = int(request.url.rpartition("=")[2])
        if number < 5:
            assert crawler.visit(f"{url}?n={number + 5}") is None

    for number in range(5):
        crawler.visit(f"{url}?n={number}")
    result = crawler.run()
    assert (result.state, result.counters["pages"]) == (JobState.FINISHED, 10)
    assert site.counts == {f"/?n={number}": 1 for number in range(10)}


def test_collys_example_of_errors_hears_once_of_each_url_that_fails(serve, free_port):
    url = serve(Scripted({"/": Answer(b"-"), "/loop": Answer(status=302, headers={"Location": "/loop"}),
                          "/ftp": Answer(status=302, headers={"Location": "ftp://h.test/"})})).url  # fmt: skip
    crawler, errors = Collector(), []
    crawler.on_error(
        lambda response, error: errors.append((response.url, response.status, type(error).__name__))
    )
    dead, unknown = f"http://127.0.0.1:{free_port}/", "http://no-such-name.invalid/"
    for one in (url, f"{url}gone", f"{url}loop", f"{url}ftp", dead, unknown):
        crawler.visit(one)
    result = crawler.run()
    assert sorted(errors) == sorted([
        (f"{url}gone", 404, "StatusError"),
        (f"{url}loop", 0, "RedirectError"),
        (f"{url}ftp", 0, "RedirectError"),
        (dead, 0, "ConnectError"),
        (unknown, 0, "UnresolvedHost"),
    ])  # fmt: skip
    assert (result.state, result.counters["pages"], result.status.failed) == (JobState.FINISHED, 1, 5)


def test_a_page_of_collys_users_that_declares_a_wrong_charset_is_read_with_the_forced_one(serve):
    page = "<html><head><meta charset=iso-8859-1></head><body><h1>\u4e2d\u6587</h1></body></html>".encode(
        "gbk"
    )
    url = serve(Scripted({"/": Answer(page, content_type="text/html; charset=iso-8859-1")})).url
    crawler, titles = Collector(), []

    @crawler.on_request
    def force(request):
        request.encoding = "gbk"  # r.ResponseCharacterEncoding in Colly

    crawler.on_html("h1", lambda element: titles.append(element.text))
    crawler.visit(url)
    crawler.run()
    assert titles == ["\u4e2d\u6587"]


TUTORIAL = """
from pathlib import Path

import skitter as scrapy


class QuotesSpider(scrapy.Spider):
    name = "quotes"

    def start_requests(self):
        urls = [
            "{url}page/1/",
            "{url}page/2/",
        ]
        for url in urls:
            yield scrapy.Request(url=url, callback=self.parse)

    def parse(self, response):
        page = response.url.split("/")[-2]
        filename = f"quotes-{{page}}.html"
        Path(filename).write_bytes(response.body)
        self.log(f"Saved file {{filename}}")
"""


def test_the_first_spider_of_scrapys_tutorial_runs_with_only_its_import_changed(serve, tmp_path):
    pages = {f"/page/{number}/": Answer(f"<p>{number}</p>".encode()) for number in (1, 2)}
    (tmp_path / "quotes_spider.py").write_text(TUTORIAL.format(url=serve(Scripted(pages)).url))
    command = [
        sys.executable,
        "-m",
        "skitter",
        "run",
        "quotes_spider.py",
        "--log-level",
        "debug",
        "-o",
        "x.jsonl",
    ]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stderr
    assert {path.name: path.read_bytes() for path in tmp_path.glob("quotes-*.html")} == {
        "quotes-1.html": b"<p>1</p>",
        "quotes-2.html": b"<p>2</p>",
    }
    assert sorted(
        line.partition("Saved ")[2] for line in ran.stderr.splitlines() if "Saved file" in line
    ) == [
        "file quotes-1.html",
        "file quotes-2.html",
    ]
