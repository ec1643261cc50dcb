"""Programs for other systems, ported as their users would, with default settings and exact results."""

import asyncio
import json
import re
import subprocess
import sys

from crawl_harness import CrawlHarness, Scripted
from skitter import Collector, HostLimits, Request, Spider, Task, TaskSpider
from skitter.frontends.lifecycle import Analyzer, CrawlArguments, Downloader, ManagedCrawl, Monitor, Pipeline
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


def test_collys_example_of_google_groups_follows_threads_and_joins_their_mails(serve):
    def row(*cells):
        return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"

    def mails(*rows, rest=""):
        return Answer(f"<body><h2>One</h2><table>{''.join(rows)}</table>{rest}</body>".encode())

    threads = row('<a href="/d/1">one</a>', "ann", "1.1.") + row("deleted", "", "")
    pages = {
        "/": Answer(f"<body><table>{threads}</table></body>".encode()),
        "/d/1": mails(row("a", "ann", "1.1.", "hello"), rest='<p><a href="/no">x</a></p><a href="/d/1b">next</a>'),
        "/d/1b": mails(row("b", "bob", "2.1.", "again")),
    }  # fmt: skip
    crawler, found = Collector(), []
    mail = crawler.clone("mail")

    @crawler.on_html("tr")
    def thread(element):
        cells = element.children()
        if cells[1].text:
            mail.visit(cells[0].children()[0].attr("href"))

    @mail.on_html("body")
    def read(element):
        element.for_each(
            "table tr", lambda each: found.append(each.child_texts("td:nth-of-type(2), td:nth-of-type(4)"))
        )
        if link := element.child_attr("> a[href]", "href"):
            element.request.visit(link)

    crawler.visit(serve(Scripted(pages)).url)
    assert crawler.run().counters["pages"] == 3
    assert found == [["ann", "hello"], ["bob", "again"]]


async def test_gopcps_finder_saves_the_pictures_of_a_site_and_its_monitor_begins_before_the_crawl(
    serve, tmp_path
):
    picture = {"content_type": "image/png"}
    site = Scripted({
        "/": Answer(b'<a href="/a"><a href="#"><a href="javascript:1"><img src="/i/1.png"><a href="http://else.test/">'),
        "/a": Answer(b'<a href="/b"><img src=" i/2.png ">'), "/b": Answer(b'<a href="/c">'), "/c": Answer(b"too deep"),
        "/i/1.png": Answer(b"one", **picture), "/i/2.png": Answer(b"two", **picture),
    })  # fmt: skip
    folder = tmp_path / "pictures"
    folder.mkdir()

    def links(response):
        if response.is_html:
            yield response.follow_all("a")
            yield response.follow_all("img")

    def pictures(response):
        if response.header("content-type").startswith("image/"):
            yield {"body": response.body, "name": response.url.rpartition("/")[2]}

    async def save(item):
        await asyncio.to_thread((folder / item["name"]).write_bytes, item["body"])
        return {"path": item["name"], "size": len(item["body"])}

    crawl, told = ManagedCrawl(), []
    await crawl.initialize(
        CrawlArguments(
            job="finder", home=str(tmp_path), allowed_domains=["zhihu.com"], depth_limit=2, downloaders=[Downloader()],
            analyzers=[Analyzer(links, pictures)], pipelines=[Pipeline(save, fail_fast=True)],
        )
    )  # fmt: skip
    monitor = Monitor(crawl, check_every=0.1, auto_stop=True, report=lambda _level, text: told.append(text))
    watching = asyncio.create_task(monitor.run())
    await asyncio.sleep(0)
    await crawl.start(serve(site).url)
    await watching
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"1.png": b"one", "2.png": b"two"}
    assert ("/c" in site.counts, str(crawl.status), "5 done" in told[-1]) == (False, "stopped", True)


async def test_zhengs_douban_book_task_keeps_its_names_its_cookie_text_and_a_column_for_each_field(
    serve, tmp_path
):
    site = Scripted({
        "/": Answer(b'<a href="/tag/n" class="tag">n</a>'),
        "/tag/n": Answer(b'<a href="/b/1" title="One"></a><a href="/b/2" title="Two"></a>'),
        "/b/1": Answer("<span class=pl>\u9875\u6570:</span> 123<br/>".encode()), "/b/2": Answer(b"-"),
    })  # fmt: skip
    url = serve(site).url

    def tags(context):
        for href in re.findall(r'<a href="([^"]+)" class="tag">', context.response.text):
            yield context.follow(href, "\u4e66\u7c4d\u5217\u8868")

    def books(context):
        for href, title in re.findall(r'<a href="([^"]+)" title="([^"]+)"', context.response.text):
            yield context.follow(href, "\u4e66\u7c4d\u7b80\u4ecb", data={"book_name": title})

    def detail(context):
        pages = re.search("\u9875\u6570:</span> ([^<]+)<br/>", context.response.text)
        yield context.output(
            {"\u4e66\u540d": context.data["book_name"], "\u9875\u6570": int(pages[1]) if pages else 0}
        )

    class Books(TaskSpider):
        tasks = (
            Task(
                "douban_book_list", start=[Request(url, priority=1)], depth_limit=5, cookies="bid=-UXUw--yL5g; ck=X5WM",
                limits=HostLimits(rates=("20/s", "600/60s"), jitter=0.01),
                rules={"\u6570\u636etag": tags, "\u4e66\u7c4d\u5217\u8868": books, "\u4e66\u7c4d\u7b80\u4ecb": detail},
            ),
        )  # fmt: skip

    ran = await CrawlHarness(Books(), tmp_path).run()
    assert sorted((item["\u4e66\u540d"], item["\u9875\u6570"], item["rule"]) for item in ran.items) == [
        ("One", 123, "\u4e66\u7c4d\u7b80\u4ecb"),
        ("Two", 0, "\u4e66\u7c4d\u7b80\u4ecb"),
    ]
    assert {visit.headers["cookie"] for visit in site.visits} == {"bid=-UXUw--yL5g; ck=X5WM"}


class Quotes(Spider):
    """Scrapy's sample spiders for a login with a token and for results that a script loads, as one spider."""

    def parse(self, response):
        token = response.css("input[name=csrf_token] ::attr(value)").extract_first()
        login = {"csrf_token": token, "username": "ann", "password": "wonder"}
        yield Request.form(response.url, login, callback=self.after_login)

    def after_login(self, response):
        yield {"links": response.css("a::attr(href)").extract()}
        for page in (1, 2):
            yield Request.json(response.urljoin("/api"), {"page": page}, callback=self.parse_quotes)

    def parse_quotes(self, response):
        yield from response.json()["quotes"]


async def test_scrapys_sample_of_a_login_with_a_token_and_an_api_finds_all_quotes(serve, tmp_path):
    def login(visit):
        if visit.method == "GET":
            return Answer(b"<form method=post><input type=hidden name=csrf_token value='a b'></form>")
        is_right = visit.body == b"csrf_token=a+b&username=ann&password=wonder"
        return Answer(b"<a href=/logout>Logout</a>" if is_right else b"wrong")

    def api(visit):
        assert visit.headers["content-type"] == "application/json"
        page = json.loads(visit.body)["page"]
        quotes = [{"quote": 10 * page + number} for number in range(2)]
        return Answer(json.dumps({"quotes": quotes}).encode(), content_type="application/json")

    server = serve(Scripted({"/": login, "/api": api}))
    spider = type("Own", (Quotes,), {"start_urls": [server.url]})
    items = (await CrawlHarness(spider(), tmp_path).run()).items
    assert {"links": ["/logout"]} in items
    assert sorted(item["quote"] for item in items if "quote" in item) == [10, 11, 20, 21]
