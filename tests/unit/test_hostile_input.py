"""Inputs of a few hundred kilobytes that took minutes or gigabytes: the time of each reader is linear in the input.

A reader that needs quadratic time exceeds the time limit of a test by far.
"""

import pytest

from skitter.browser.adaptive import is_shell
from skitter.directives import linked_canonical
from skitter.errors import PageTooComplex
from skitter.fetch.contract import UNCONDITIONAL, FetcherCapabilities
from skitter.fetch.robots_cache import RobotsCache
from skitter.fetch.robots_rules import RobotsPolicy
from skitter.fetch.tdmrep import TdmFiles
from skitter.frontends.recipe.fields import to_float
from skitter.links import Links
from skitter.politeness import HostLimits, Politeness
from skitter.request import Request
from skitter.response import Response
from skitter.scope import Scope
from skitter.web.feeds import FeedError, read_feed, read_rows
from skitter.web.headers import parse_length
from skitter.web.sitemap import SitemapError, read_sitemap
from skitter.worker.links import LinkCollector

MB = 1_000_000
PAGE = "http://site.test/folder/page"


def page(body):
    return Response(PAGE, headers={"content-type": "text/html"}, body=body.encode())


# --- base URLs -----------------------------------------------------------------------------------------------------


def test_a_base_of_enormous_length_is_ignored():
    """Each of the links would be as long as the base, 20 GB in all."""
    anchors = "".join(f"<a href=p{number}>x</a>" for number in range(50_000))
    urls = page(f'<base href="/{"a" * 400_000}/">{anchors}').links()
    assert len(urls) == 50_000
    assert urls[0] == "http://site.test/folder/p0"


def test_a_base_of_great_length_is_used():
    folder = "a" * 8000
    assert page(f'<base href="/{folder}/"><a href=b>').links() == [f"http://site.test/{folder}/b"]


def test_the_links_of_a_page_with_a_long_url_are_limited_by_their_total_length():
    collector = LinkCollector(Scope(max_url_length=10_000), Politeness(HostLimits()), 1)
    base = "http://site.test/" + "a" * 4000 + "/"
    found = collector.collect([Links(base, [f"p{number}" for number in range(45_000)], {})], Request(base))
    followed = sum(len(batch.urls) for batch in found.batches)
    assert followed == 32_000_000 // len(base)
    assert found.refused["page_links"] == 45_000 - followed


def test_the_search_for_a_base_outside_of_images_ends():
    deep = "<svg>" + "<g>" * 450 + "<base href=/x/ />" * 100_000
    assert page(f"{deep}<a href=y>").links() == ["http://site.test/folder/y"]


# --- headers and markup ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["<", "<a", "<a>;", '<a>;x="', "<a> ", "<a>; rel", '<a>;rel="'])
def test_a_link_header_without_an_end_names_no_canonical_url(unit):
    assert linked_canonical([unit * (MB // len(unit))]) is None


@pytest.mark.parametrize(
    ("value", "target"),
    [
        ("<a>; rel=canonical", "a"),
        ('<a>;rel="canonical"', "a"),
        ('<a> ; title="x, <y>; rel=next" ; REL = "next Canonical"', "a"),
        ('<a>; rel=next, <b>; rel="canonical"', "b"),
        ('<a>; rel="next"; rel=canonical', None),
        ("<a>; rel=canonicals", None),
    ],
)
def test_the_canonical_url_of_a_link_header(value, target):
    """RFC 8288, 3 and 3.3: relations are separated by spaces, and only the first ``rel`` counts."""
    assert linked_canonical([value]) == target


@pytest.mark.parametrize(
    ("value", "length"),
    [("0", 0), ("12", 12), ("", None), ("-1", None), ("\u00b2", None), ("9" * 5000, None)],
)
def test_the_length_of_a_body_is_read_from_ascii_digits(value, length):
    assert parse_length(value) == length


def test_rules_for_crawlers_may_contain_a_million_blanks():
    assert page(f"<meta name=robots content='{' ' * MB}noindex'>").directives().noindex


@pytest.mark.parametrize(
    "unit",
    [
        "<div ",
        "<main id",
        "<script",
        "<!--",
        "<noscript>",
        "<noscript>enable java ",
        "<",
        "<title",
        "<style ",
        "need ",
    ],
)
def test_the_scripts_of_a_page_are_found_in_any_markup(unit):
    assert not is_shell(f"<div id=root><p>{'word ' * 50}<script></script>" + unit * (MB // len(unit)))


@pytest.mark.parametrize("unit", [" ", "- ", "+", "\N{NO-BREAK SPACE}", "."])
def test_a_text_without_a_number_has_no_number(unit):
    with pytest.raises(ValueError, match="no number"):
        to_float(unit * (MB // len(unit)))


# --- sitemaps, feeds and CSV -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sitemap.txt", "robots.txt"])
@pytest.mark.parametrize("unit", ["a", " ", "http://site.test/"])
def test_a_line_of_any_length_is_read_once(name, unit):
    """It was copied with each further piece of 64 KB: 12 s for 64 MB."""
    long = "Sitemap: http://site.test/" + unit * (30 * MB // len(unit))
    text = (
        f"{long}\nSitemap: http://site.test/after\n"
        if name == "robots.txt"
        else f"{long}\nhttp://site.test/after"
    )
    entries = list(read_sitemap(text.encode(), f"http://site.test/{name}"))
    assert [entry.url for entry in entries] == ["http://site.test/after"]


@pytest.mark.parametrize(
    ("name", "begin", "unit", "end"),
    [
        ("sitemap.xml", "<urlset>", "<url/>", "</urlset>"),
        ("sitemap.txt", "", "nothing\n", ""),
        ("robots.txt", "", "Sitemap: mailto:x\n", ""),
        ("list.csv", "url,a\n", ",b\n", ""),
    ],
)
def test_a_sitemap_without_urls_is_given_up_soon(name, begin, unit, end):
    """Other tasks wait until the next entry is found."""
    text = begin + unit * (20 * MB // len(unit)) + end
    with pytest.raises(SitemapError, match="without a URL"):
        list(read_sitemap(text.encode(), f"http://site.test/{name}"))


def test_entries_without_a_url_among_others_are_left_out():
    rows = "".join(f"<url><loc>/{number}</loc></url><url/>" for number in range(60_000))
    assert sum(1 for _ in read_sitemap(f"<urlset>{rows}</urlset>".encode(), PAGE)) == 60_000


@pytest.mark.parametrize("unit", ["[]", '{"":0}', '""'])
def test_the_values_of_a_json_feed_are_limited(unit):
    body = b'{"items":[' + unit.encode() + f",{unit}".encode() * (30 * MB // len(unit)) + b"]}"
    for read in (read_feed, read_sitemap):
        with pytest.raises(PageTooComplex) as refused:
            list(read(body, "http://site.test/feed.json"))
        assert refused.value.field == ""


def test_the_text_of_a_json_page_counts_if_it_is_needed():
    values = ",[]" * 1_200_000
    plain = f'["{"a" * 24 * MB}"{values},NaN]'.encode()
    wide = f'["{"a" * 24 * MB}\U0001f600"{values},NaN]'.encode()
    headers = {"content-type": "application/json"}
    assert len(Response(PAGE, headers=headers, body=plain).json()) == 1_200_002
    with pytest.raises(PageTooComplex):
        Response(PAGE, headers=headers, body=wide).json()


def test_the_columns_of_a_csv_are_limited():
    """Each row has a value for each column."""
    with pytest.raises(FeedError, match="columns"):
        list(read_rows("a," * 100_000 + "\n" + "1\n" * 20_000))
    rows = read_rows(",".join(f"c{number}" for number in range(1_000)) + "\n" + "1\n" * 1_000)
    assert [len(row) for row in rows] == [1_000] * 1_000


# --- robots.txt ------------------------------------------------------------------------------------------------------


def large_robots(line):
    return b"User-agent: *\n" + b"".join(line % number for number in range(500_000 // (len(line) + 4)))


def test_a_file_whose_rules_take_long_to_compare_slows_its_own_host():
    policy = RobotsPolicy(large_robots(b"Disallow: /*a%d*a$\n"), "skitter")
    assert policy.crawl_delay > 1.0


def test_an_ordinary_number_of_wildcards_sets_no_delay():
    rules = b"User-agent: *\n" + b"".join(b"Disallow: /*%d$\n" % number for number in range(1000))
    assert RobotsPolicy(rules, "skitter").crawl_delay is None


def test_the_longer_of_two_delays_counts():
    file = b"User-agent: *\nCrawl-delay: 100\n" + large_robots(b"Disallow: /*a%d*a$\n")
    assert RobotsPolicy(file, "skitter").crawl_delay == 100


class FetchesOneFile:
    capabilities = FetcherCapabilities()

    def __init__(self, body):
        self.body = body
        self.fetched = 0

    async def open(self): ...

    async def close(self): ...

    async def fetch(self, request, *, permit=UNCONDITIONAL, on_headers=None):
        self.fetched += 1
        return Response(request.url, 200, body=self.body, request=request)


async def test_the_files_of_many_origins_take_a_limited_amount_of_memory():
    fetcher = FetchesOneFile(large_robots(b"Disallow: /%d\n"))
    robots = RobotsCache(fetcher, "skitter")
    for number in range(12):  # 6 MB each
        await robots.policy(f"http://h{number}.test/")
    assert robots.known("http://h11.test/") is not None
    assert robots.known("http://h0.test/") is None  # it is fetched again, or read from the notes


async def test_many_small_files_stay_known():
    robots = RobotsCache(FetchesOneFile(b"User-agent: *\nDisallow: /private\n"), "skitter")
    for number in range(2000):
        await robots.policy(f"http://h{number}.test/")
    assert robots.known("http://h0.test/") is not None


async def test_a_file_that_is_read_again_does_not_count_twice():
    fetcher = FetchesOneFile(b"User-agent: *\n#" + b"x" * 400_000)
    robots = RobotsCache(fetcher, "skitter", notes=None)
    await robots.policy("http://first.test/")
    for _ in range(50):
        robots._keep("http://again.test", await robots._find("http://again.test", UNCONDITIONAL, None))
    assert robots.known("http://first.test/") is not None


async def test_the_tdm_files_of_many_origins_take_a_limited_amount_of_memory():
    rules = b",".join(b'{"location":"/%d*x","tdm-reservation":1}' % number for number in range(10_000))
    files = TdmFiles(FetchesOneFile(b"[" + rules + b"]"), 3600.0)
    for number in range(30):
        await files.read(f"http://h{number}.test/", UNCONDITIONAL, None)
    assert files.knows("http://h29.test/")
    assert not files.knows("http://h0.test/")
