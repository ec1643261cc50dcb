"""Links are selected by pattern, domain, extension, place and text, per call, by an extractor and by rules."""

import re

import pytest

from crawl_harness import CrawlHarness, Scripted
from skitter import LinkExtractor, Request, Response, Rule, Spider
from skitter.errors import QueryError, SettingsError, SpiderError, UsageError
from skitter.link_extractor import Link, LinkFilter
from skitter.worker.callbacks import CallbackRunner

PAGE = """<body>
<nav><a href="/">Home</a> <a href="/cart" rel="nofollow">Cart</a></nav>
<main><a href="/book/1">One</a><a href=" /book/2#top ">Two</a><a href="/book/1?b=1&a=2">x</a><a href="/book/1?a=2&b=1">y</a>
<a href="/files/a.pdf">PDF</a><a href="/files/a.tar.gz">TGZ</a><a href="https://shop.other.test/x.html">Other</a>
<a>none</a><a href="javascript:go('/js/1')">JS</a><area href="/map"><img src="/i.png"><a href="mailto:x@y">mail</a></main>"""


@pytest.fixture
def response():
    return Response("http://h.test/d/", headers={"content-type": "text/html"}, body=PAGE.encode())


def paths(urls):
    return [url.removeprefix("http://h.test") for url in urls]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"allow": r"/book/\d$"}, ["/book/1", " /book/2#top "]),
        ({"allow": [r"/book/1$", re.compile("CART", re.IGNORECASE)]}, ["/cart", "/book/1"]),
        ({"allow": "/book/", "deny": r"\?"}, ["/book/1", " /book/2#top "]),
        ({"css": "nav a", "deny": "cart"}, ["/"]),
        ({"xpath": "//nav/a", "allow": "cart"}, ["/cart"]),
        ({"links": ["/book/1", "/x"], "allow": "book"}, ["/book/1"]),
        ({"domains": "other.test"}, ["https://shop.other.test/x.html"]),
        ({"extensions": ("pdf", ".GZ")}, ["/files/a.pdf", "/files/a.tar.gz"]),
        ({"extensions": "", "allow": "cart"}, ["/cart"]),
        ({"extensions": "", "css": "[href*=files], nav a"}, ["/", "/cart"]),
        (
            {"extensions": ("", "html"), "css": "main a[href^='https'], nav a"},
            ["/", "/cart", "https://shop.other.test/x.html"],
        ),
        ({"css": "area", "allow": "."}, ["/map"]),
    ],
)
def test_follow_all_selects_per_call(response, arguments, found):
    batch = response.follow_all(callback="parse_book", **arguments)
    assert list(batch.hrefs) == found
    assert batch.fields == {"callback": "parse_book"}


def test_follow_all_without_a_source_takes_all_links_only_if_it_selects(response):
    with pytest.raises(UsageError):
        response.follow_all()
    with pytest.raises(UsageError):
        response.follow_all("a", css="a", allow="x")


def test_a_filter_knows_subdomains_ports_and_compound_extensions():
    admits = LinkFilter(
        domains=("a.test", "b.test:8000"), deny_domains="x.a.test", deny_extensions="tar.gz"
    ).admits
    assert admits("http://a.test/")
    assert admits("http://y.a.test:81/b.gz")
    assert admits("http://b.test:8000/a.tar")
    assert not admits("http://b.test/")
    assert not admits("http://z.x.a.test/")
    assert not admits("http://ba.test/")
    assert not admits("http://a.test/b.TAR.GZ?x=1")
    assert not admits("ftp://a.test/")
    assert LinkFilter(extensions="").admits("http://a.test/d.e/x")


@pytest.mark.parametrize("argument", [{"allow": "("}, {"deny": "["}, {"domains": "http://x/"}])
def test_an_invalid_pattern_or_domain_is_named(argument):
    with pytest.raises(SettingsError):
        LinkFilter(**argument)
    with pytest.raises(UsageError):
        LinkExtractor(restrict_text="(")


def test_an_extractor_takes_all_links_but_those_to_files(response):
    links = LinkExtractor().extract_links(response)
    assert paths(link.url for link in links) == [
        "/", "/cart", "/book/1", "/book/2", "/book/1?b=1&a=2", "https://shop.other.test/x.html", "/map",
    ]  # fmt: skip
    assert links[1] == Link("http://h.test/cart", "Cart", "", nofollow=True)
    assert links[3] == Link("http://h.test/book/2", "Two", "top")
    assert LinkExtractor().urls(response) == [link.url for link in links]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"allow": r"/book/", "unique": False}, ["/book/1", "/book/2", "/book/1?b=1&a=2", "/book/1?a=2&b=1"]),
        ({"allow": r"\?", "canonicalize": True}, ["/book/1?a=2&b=1"]),
        ({"restrict_css": "nav"}, ["/", "/cart"]),
        ({"restrict_xpaths": ["//nav", "//main/area"], "deny": "/$"}, ["/cart", "/map"]),
        ({"restrict_text": "^T", "deny_extensions": ()}, ["/book/2", "/files/a.tar.gz"]),
        ({"tags": "img", "attrs": ("src", "alt"), "deny_extensions": ()}, ["/i.png"]),
        (
            {"tags": ("area", "img"), "attrs": ("src", "href"), "deny_extensions": ()},
            ["/map", "/i.png"],
        ),
        ({"allow_domains": "h.test", "deny_domains": (), "deny": ("book", "/$")}, ["/cart", "/map"]),
        ({"deny_domains": "h.test"}, ["https://shop.other.test/x.html"]),
        ({"process_value": lambda value: "/js/1" if value.startswith("javascript:") else None}, ["/js/1"]),
    ],
)  # fmt: skip
def test_the_arguments_of_scrapys_link_extractor(response, arguments, found):
    extractor = LinkExtractor(**arguments)
    assert paths(extractor.urls(response)) == found
    assert [link.url for link in extractor.extract_links(response)] == extractor.urls(response)
    assert all(extractor.matches(url) for url in extractor.urls(response))


def test_an_extractor_finds_no_links_in_other_content_and_names_a_bad_query(response):
    pdf = Response("http://h.test/x", headers={"content-type": "application/pdf"}, body=b"%PDF")
    assert LinkExtractor().extract_links(pdf) == []
    with pytest.raises(QueryError):
        LinkExtractor(restrict_css="a[").extract_links(response)


class Ruled(Spider):
    rules = (
        Rule(LinkExtractor(allow=r"/book/1$"), "parse_book", {"kind": "first"}, follow=True),
        Rule(LinkExtractor(allow="/book/"), "parse_book", request_fields={"priority": 3}),
        Rule(LinkExtractor(restrict_css="nav"), process_links="without_home"),
        Rule(LinkExtractor(allow="other"), process_request="marked", errback="failed"),
    )

    def parse_book(self, response, kind="other"):
        yield {"url": response.url, "kind": kind}

    def without_home(self, links):
        return [link for link in links if link.text != "Home"]

    def marked(self, request, response):
        return request.replace(meta={"from": response.url})

    def failed(self, request, error):
        pass


async def results(spider, name, response, **arguments):
    runner = CallbackRunner()
    return await runner.run(runner.find(spider, name), response, **arguments)


class Changing(Spider):
    rules = (Rule(LinkExtractor(allow=r"/book/\d$"), process_links="without_numbers"),)

    def without_numbers(self, links):
        for link in links:
            link.url = link.url.rpartition("/")[0]
            yield link


async def test_process_links_may_change_the_links_as_in_scrapy(response):
    (found,) = await results(Changing(), None, response)
    assert set(found.hrefs) == {"http://h.test/book"}
    assert len({Link("http://h.test/"), Link("http://h.test/"), Link("http://h.test/", "text")}) == 2


async def test_rules_apply_to_start_pages_and_to_pages_of_rules_that_follow(response):
    first, second, third, single = await results(Ruled(), None, response)
    assert (first.hrefs, first.fields) == (
        ["http://h.test/book/1"],
        {"callback": "rules:parse_book", "cb_kwargs": {"kind": "first"}},
    )
    assert paths(second.hrefs) == ["/book/2", "/book/1?b=1&a=2"]
    assert second.fields == {"callback": "parse_book", "priority": 3}
    assert (paths(third.hrefs), third.fields) == (["/cart"], {"callback": "rules:"})
    assert isinstance(single, Request)
    assert (single.url, single.meta["from"], single.callback, single.errback) == (
        "https://shop.other.test/x.html", response.url, "rules:", "failed",
    )  # fmt: skip

    item, *links = await results(Ruled(), "rules:parse_book", response, kind="first")
    assert item == {"url": response.url, "kind": "first"}
    assert len(links) == 4
    assert await results(Ruled(), "parse_book", response) == [{"url": response.url, "kind": "other"}]
    assert len(await results(Ruled(), "rules:", response)) == 4


async def test_parse_comes_before_the_rules(response):
    class WithParse(Ruled):
        def parse(self, response):
            return {"start": response.url}

    item, *links = await results(WithParse(), None, response)
    assert item == {"start": response.url}
    assert len(links) == 4


def test_rules_that_cannot_work_are_named(response):
    with pytest.raises(UsageError):
        Rule(follow=False)
    with pytest.raises(SpiderError):
        CallbackRunner().find(Ruled(), "rules:misspelt")
    with pytest.raises(SpiderError):
        CallbackRunner().find(Ruled(), "misspelt")


async def test_a_crawl_by_rules_fetches_exactly_the_selected_pages(serve, tmp_path):
    site = Scripted(
        {
            "/": ["/list/1", "/other"],
            "/list/1": ["/item/1", "/list/2"],
            "/list/2": ["/item/2", "/item/1"],
            "/item/1": ["/item/3", "/list/3"],
            "/item/2": [],
            "/other": ["/list/4"],
        }
    )
    server = serve(site)

    class Shop(Spider):
        start_urls = (f"{server.url}",)
        rules = (Rule(LinkExtractor(allow="/list/")), Rule(LinkExtractor(allow="/item/"), "parse_item"))

        def parse_item(self, response):
            yield {"url": response.url}

    ran = await CrawlHarness(Shop, tmp_path, frontier="sqlite").run()
    assert site.counts == dict.fromkeys(["/", "/list/1", "/list/2", "/item/1", "/item/2"], 1)
    assert sorted(item["url"] for item in ran.items) == [f"{server.url}item/1", f"{server.url}item/2"]
