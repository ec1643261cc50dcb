"""Data that a collector keeps: cookies that code sets, and pages in a storage of the user."""

import pytest

from crawl_harness import CrawlHarness, Scripted
from skitter import Collector
from skitter.errors import SettingsError, UsageError
from skitter.testing import Answer

LINKS = Answer(b'<a href="/a">a</a><a href="/b">b</a><a href="http://[">broken</a>')


class CrawledSite:
    """A site, and crawls of it, each with its own folder."""

    def __init__(self, serve, tmp_path, pages):
        self.site = Scripted(pages)
        self.url = serve(self.site).url.rstrip("/")
        self._folder = tmp_path
        self._runs = 0

    async def run(self, crawler, **settings):
        self._runs += 1
        crawler.visit(self.url + "/")
        spider = crawler.__spider__("crawler", "test")()
        return await CrawlHarness(spider, self._folder / str(self._runs), **settings).run()

    def sent(self):
        return [(visit.target, visit.headers.get("cookie", "")) for visit in self.site.visits]


@pytest.fixture
def crawled_site(serve, tmp_path):
    return lambda pages: CrawledSite(serve, tmp_path, pages)


def follower(**options):
    crawler = Collector(**options)
    crawler.on_html("a", lambda element: element.request.visit(element.attr("href")))
    return crawler


async def test_cookies_set_before_a_run_are_sent_to_their_site_only(crawled_site):
    crawler, crawled_site = follower(), crawled_site({"/": LINKS, "/a": Answer(b"a"), "/b": Answer(b"b")})
    crawler.set_cookies(crawled_site.url, {"id": "7", "name": "J\u00f6rg"})
    crawler.set_cookies(crawled_site.url, ["only=b; Path=/b"])
    crawler.set_cookies("http://other.test/", {"id": "8"})
    assert await crawler.cookies(crawled_site.url + "/b") == {"only": "b", "id": "7", "name": "J\u00f6rg"}
    await crawled_site.run(crawler)
    sent = {path: set(header.encode("latin-1").decode().split("; ")) for path, header in crawled_site.sent()}
    both = {"id=7", "name=J\u00f6rg"}
    assert sent == {"/": both, "/a": both, "/b": both | {"only=b"}}


async def test_cookies_set_in_a_callback_are_sent_with_its_visits(crawled_site):
    crawler, seen = Collector(), {}
    crawled_site = crawled_site(
        {"/": Answer(b"-", headers={"Set-Cookie": "theirs=1"}), "/next": Answer(b"-")}
    )

    @crawler.on_request
    def before(request):
        crawler.set_cookies(request.url, {"before": str(request.depth)})

    @crawler.on_response
    async def log_in(response):
        seen[response.request.depth] = await crawler.cookies(response.url)
        if response.request.depth == 0:
            crawler.set_cookies(response.url, {"ours": "2"})
            response.request.visit("/next")

    await crawled_site.run(crawler)
    assert crawled_site.sent() == [("/", "before=0"), ("/next", "before=1; theirs=1; ours=2")]
    assert seen == {0: {"before": "0", "theirs": "1"}, 1: {"before": "1", "theirs": "1", "ours": "2"}}


async def test_a_cookie_that_cannot_be_set_is_refused_when_it_is_set():
    crawler = Collector()
    for url, cookies in (
        ("http://h.test/", ["a=1; Domain=other.test"]),
        ("http://h.test/", ["a=1; Secure"]),
        ("http://h.test/", {"a": "x\ny"}),
    ):
        with pytest.raises(SettingsError) as caught:
            crawler.set_cookies(url, cookies)
        assert caught.value.field == "initial_cookies"
    with pytest.raises(UsageError) as refused:
        Collector(disable_cookies=True).set_cookies("http://h.test/", {"a": "1"})
    assert refused.value.field == "cookies"
    assert crawler.__spider__("crawler", "test").custom_settings == {}


class Memory:
    """A storage in memory."""

    def __init__(self):
        self.known, self.jars, self.inits = set(), {}, 0

    def init(self):
        self.inits += 1

    def visited(self, request_id):
        self.known.add(request_id)

    def is_visited(self, request_id):
        return request_id in self.known

    def cookies(self, url):
        return self.jars.get(url, "")

    def set_cookies(self, url, cookies):
        self.jars[url] = cookies


async def test_a_storage_remembers_pages_and_cookies_for_the_next_crawl(crawled_site):
    storage = Memory()
    crawled_site = crawled_site({
        "/": (Answer(LINKS.body, headers={"Set-Cookie": "id=7"}), Answer(LINKS.body + b'<a href="/c">c</a>')),
        "/a": Answer(b"a"), "/b": Answer(b"b", status=500), "/c": Answer(b"c"),
    })  # fmt: skip
    for _ in range(2):
        crawler = follower()
        crawler.set_storage(storage)
        crawler.set_cookies(crawled_site.url, {"first": "1"})
        ran = await crawled_site.run(crawler, max_retries=0)
    assert ran.counters["refused/visited-before"] == 1  # /a; the page that failed is fetched again
    assert ran.counters["refused/unparsable"] == 1
    assert sorted(crawled_site.sent()) == [
        ("/", "first=1"),
        ("/", "first=1; id=7"),
        ("/a", "first=1; id=7"),
        ("/b", "first=1; id=7"),
        ("/b", "first=1; id=7"),
        ("/c", "first=1; id=7"),
    ]
    assert (storage.inits, len(storage.known), list(storage.jars)) == (2, 3, ["https://127.0.0.1/"])


async def test_a_storage_does_not_stop_revisits(crawled_site):
    storage = Memory()
    storage.is_visited = lambda request_id: True
    crawler, site = (
        follower(allow_url_revisit=True, depth_limit=1),
        crawled_site({"/": ["/a"], "/a": Answer(b"a")}),
    )
    crawler.set_storage(storage)
    await site.run(crawler)
    assert site.site.counts == {"/": 1, "/a": 1}


async def test_a_storage_that_fails_fails_the_page_and_not_the_crawl(crawled_site):
    storage = Memory()
    storage.cookies = lambda url: 1 // 0
    crawler, errors = Collector(), []
    crawler.set_storage(storage)
    crawler.on_error(lambda response, error: errors.append(str(error)))
    ran = await crawled_site({"/": Answer(b"-")}).run(crawler, max_retries=0, robots=False)
    assert (ran.status.failed, len(errors)) == (1, 1) and "ZeroDivisionError" in errors[0]
