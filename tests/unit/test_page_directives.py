"""Page directives: what headers and elements mean, and how the settings obey them."""

from collections import Counter

import pytest

from crawl_harness import CrawlHarness, Scripted
from skitter import Response, Spider
from skitter.links import Links, SkippedLinks
from skitter.settings import Settings
from skitter.testing import Answer
from skitter.worker.directives import DirectiveRules

URL = "http://h.test/a/page"


def page(head="", body="", **headers):
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    text = f"<html><head>{head}</head><body>{body}</body></html>"
    return Response(URL, headers={"Content-Type": "text/html", **names}, body=text.encode())


def meta(content, name="robots"):
    return f'<meta name="{name}" content="{content}">'


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (page(), {}),
        (page(meta("NoIndex , nofollow")), {"noindex": True, "nofollow": True}),
        (page(meta("none")), {"noindex": True, "nofollow": True}),
        (page(meta("all, index, max-snippet:0")), {}),
        (page(meta("noai, noimageai")), {"noai": True, "noimageai": True}),
        (page(X_Robots_Tag="noarchive, nosnippet"), {"noarchive": True, "nosnippet": True}),
        (page(X_Robots_Tag="skitter: noindex, nofollow"), {"noindex": True, "nofollow": True}),
        (page(X_Robots_Tag="otherbot: noindex, nofollow"), {}),
        (page(meta("noindex", "otherbot")), {}),
        (page(meta("noindex", "Skitter")), {"noindex": True}),
        (page(meta("noindex"), X_Robots_Tag="nofollow"), {"noindex": True, "nofollow": True}),
        (page(X_Robots_Tag="unavailable_after: 25 Jun 2010 15:00:00 PST"), {"unavailable_after": 1277506800.0}),
        (
            page(X_Robots_Tag="noai, unavailable_after: Wed, 21 Oct 2015 07:28:00 GMT"),
            {"noai": True, "unavailable_after": 1445412480.0},
        ),
        (page(X_Robots_Tag="unavailable_after: 2020-09-21"), {"unavailable_after": 1600646400.0}),
        (page(X_Robots_Tag="unavailable_after: soon"), {}),
        (page('<link rel="canonical" href="../b?x=1">'), {"canonical": "http://h.test/b?x=1"}),
        (
            page('<link rel="canonical" href="/b">', Link='</c>; rel="canonical", </d>; rel=next'),
            {"canonical": "http://h.test/c"},
        ),
        (
            page('<link rel="alternate" hreflang="de-AT" href="/de"><link rel="alternate" href="/feed">'),
            {"alternates": {"de-at": "http://h.test/de"}},
        ),
        (
            page(meta("1", "tdm-reservation") + meta("/policy.json", "tdm-policy")),
            {"tdm_reservation": True, "tdm_policy": "http://h.test/policy.json"},
        ),
        (page(meta("1", "tdm-reservation"), TDM_Reservation="0"), {"tdm_reservation": False}),
        (page(TDM_Reservation="yes"), {}),
    ],
)  # fmt: skip
def test_directives_of_headers_and_elements(response, expected):
    assert response.directives("skitter").to_dict() == expected


def test_content_other_than_html_has_the_directives_of_its_headers():
    pdf = Response(URL, headers={"Content-Type": "application/pdf", "X-Robots-Tag": "noindex"}, body=b"%PDF")
    assert pdf.directives().noindex


def apply(response, results, **settings):
    counted = Counter()

    def count(name, amount):
        counted[name] += amount

    return DirectiveRules(Settings(**settings), "skitter").apply(results, response, count), counted


def followed(results):
    return [href for result in results if isinstance(result, Links) for href in result.hrefs]


def skipped(results):
    return sum(result.amount for result in results if isinstance(result, SkippedLinks))


LINKS = (
    '<a href="/1">1</a><a rel="ugc NoFollow" href="/2">2</a><a rel=nofollow href="/3">3</a><a href="/3">3</a>'
)


def test_links_with_nofollow_are_skipped_unless_another_element_has_them():
    response = page("", LINKS)
    found, _ = apply(response, [response.follow_all("a")], obey_nofollow=True)
    assert (followed(found), skipped(found)) == (["/1", "/3", "/3"], 1)


@pytest.mark.parametrize("response", [page(meta("nofollow"), LINKS), page("", LINKS, X_Robots_Tag="none")])
def test_no_link_of_a_page_with_nofollow_is_followed(response):
    found, _ = apply(response, [{"a": 1}, response.follow_all("a")], obey_nofollow=True)
    assert (followed(found), skipped(found), found[0]) == ([], 4, {"a": 1})


@pytest.mark.parametrize(
    ("response", "setting", "reason"),
    [
        (page(meta("noindex")), "obey_noindex", "noindex"),
        (page(X_Robots_Tag="unavailable_after: 25 Jun 2010 15:00:00 GMT"), "obey_noindex", "noindex"),
        (page(meta("noai")), "obey_tdm", "tdm"),
        (page(TDM_Reservation="1"), "obey_tdm", "tdm"),
    ],
)
def test_items_of_a_page_are_dropped_if_the_setting_says_so(response, setting, reason):
    links = response.follow_all(["/x"])
    assert apply(response, [{"a": 1}, links], **{setting: True}) == ([links], {f"dropped_items/{reason}": 1})
    assert apply(response, [{"a": 1}, links]) == ([{"a": 1}, links], {})


def test_items_carry_the_directives_in_a_field():
    found, _ = apply(page(meta("noai")), [{"a": 1}], directives_field="rights")
    assert found == [{"a": 1, "rights": {"noai": True}}]


def test_the_canonical_page_and_translations_are_followed():
    response = page('<link rel=canonical href="/c"><link rel=alternate hreflang=de href="/de">')
    found, _ = apply(response, [], follow_canonical=True, follow_hreflang=True)
    assert followed(found) == ["http://h.test/c", "http://h.test/de"]


class All(Spider):
    def parse(self, response):
        yield {"url": response.url}
        yield response.follow_all("a")


async def test_a_crawl_obeys_the_settings_and_counts_what_it_leaves_out(serve, tmp_path):
    html = {"Content-Type": "text/html"}
    site = Scripted({
        "/": Answer(b'<a rel=nofollow href="/no">n</a><a href="/yes">y</a>', headers=html),
        "/yes": Answer(meta("noindex").encode() + b'<a href="/end">e</a>', headers=html),
        "/end": Answer(b"<link rel=canonical href=/best>", headers={**html, "TDM-Reservation": "1"}),
        "/best": Answer(b"best", headers=html),
    })  # fmt: skip
    spider = All()
    spider.start_urls = [serve(site).url]
    settings = {"obey_nofollow": True, "obey_noindex": True, "obey_tdm": True, "follow_canonical": True}
    ran = await CrawlHarness(spider, tmp_path, delay=0, **settings).run()
    assert sorted(site.counts) == ["/", "/best", "/end", "/yes"]
    assert sorted(item["url"].rpartition("/")[2] for item in ran.items) == ["", "best"]
    names = ("refused/nofollow", "dropped_items/noindex", "dropped_items/tdm", "items")
    assert [ran.counters[name] for name in names] == [1, 1, 1, 2]
