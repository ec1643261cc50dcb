"""Page directives: the meaning of headers and elements, and how the settings obey them."""

import asyncio
import time
from collections import Counter

import pytest

from crawl_harness import CrawlHarness, Scripted
from skitter import Response, Spider
from skitter.directives import Directives
from skitter.fetch.tdmrep import TdmFiles
from skitter.frontier.embedded.frontier import EmbeddedFrontier
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
        (page(meta("1", "tdm-reservation"), TDM_Reservation="0"), {"tdm_reservation": True}),
        (page(meta("0", "tdm-reservation"), TDM_Reservation="1", TDM_Policy="/p"), {"tdm_reservation": False}),
        (page(meta("yes", "tdm-reservation"), TDM_Reservation="0"), {"tdm_reservation": False}),
        (
            page(meta("1", "tdm-reservation"), TDM_Reservation="1", TDM_Policy="/p"),
            {"tdm_reservation": True, "tdm_policy": "http://h.test/p"},
        ),
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

    return DirectiveRules(Settings(**settings), "skitter").apply(
        results, response, count, Directives()
    ), counted


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


async def test_a_crawl_obeys_the_settings_and_counts_refused_links(serve, tmp_path):
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
    assert sorted(site.counts) == ["/", "/.well-known/tdmrep.json", "/best", "/end", "/yes"]
    assert sorted(item["url"].rpartition("/")[2] for item in ran.items) == ["", "best"]
    names = ("refused/nofollow", "dropped_items/noindex", "dropped_items/tdm", "items")
    assert [ran.counters[name] for name in names] == [1, 1, 1, 2]


async def test_an_unchanged_page_is_followed_as_its_directives_asked(serve, tmp_path):
    html = {"Content-Type": "text/html"}
    site = Scripted({
        "/": Answer(b'<a rel=nofollow href="/no">n</a><a href="/yes">y</a>', headers=html),
        "/yes": Answer(b"<link rel=canonical href=/best>", headers=html),
        "/best": Answer(b"best", headers=html),
    })  # fmt: skip
    spider = All()
    spider.start_urls = [serve(site).url]
    settings = {"obey_nofollow": True, "follow_canonical": True, "changes": "all"}
    harness = CrawlHarness(spider, tmp_path, delay=0, **settings)
    await harness.run()
    assert await harness.frontier.control.recrawl()
    ran = await harness.run()
    assert ran.counters["visits/unchanged"] == 3
    assert site.counts == {"/": 2, "/yes": 2, "/best": 2}


@pytest.mark.parametrize("settings", [{"obey_tdm": True}, {"directives_field": "rights"}])
async def test_content_signals_of_robots_txt_are_obeyed_or_carried(settings, serve, tmp_path):
    lines = b"User-agent: *\nContent-Signal: search=yes, ai-train=no\nAllow: /\n"
    site = Scripted({
        "/robots.txt": Answer(lines, content_type="text/plain"),
        "/": Answer(b"home", content_type="text/html"),
    })  # fmt: skip
    spider = All()
    spider.start_urls = [serve(site).url]
    ran = await CrawlHarness(spider, tmp_path, delay=0, robots=True, **settings).run()
    if "obey_tdm" in settings:
        assert (ran.items, ran.counters["dropped_items/tdm"]) == ([], 1)
    else:
        assert [item["rights"] for item in ran.items] == [
            {"content_signals": {"search": True, "ai-train": False}}
        ]


@pytest.mark.parametrize(
    ("body", "url", "expected"),
    [
        (b'[{"location": "/a", "tdm-reservation": 1, "tdm-policy": "/p.json"}]', "/a/page", (True, "http://h.test/p.json")),
        (b'[{"location": "/a/*.html$", "tdm-reservation": "1"}, {"location": "/", "tdm-reservation": 0}]', "/a/x.html",
         (True, None)),
        (b'[{"location": "/a/*.html$", "tdm-reservation": 1}, {"location": "/", "tdm-reservation": 0}]', "/a/x.html?q",
         (False, None)),
        (b'[{"location": "/", "tdm-reservation": 0}, {"location": "/a/longer", "tdm-reservation": 1}]', "/a/longer",
         (False, None)),  # "the most specific match is the first in sequence"
        (b'[{"location": "/b", "tdm-reservation": 1}]', "/a", None),
        ('[{"location": "/caf\u00e9", "tdm-reservation": 1}]'.encode(), "/caf%C3%A9/menu", (True, None)),
        (b'[{"location": "*", "tdm-reservation": 1}]', "/", (True, None)),
        (b'[1, {}, {"location": 1}, {"location": "/", "tdm-reservation": true}, {"location": "/", "tdm-reservation": 1}]', "/x",
         (True, None)),
        (b'{"location": "/", "tdm-reservation": 1}', "/", None),
        (b"[" * 100_000, "/", None),
        (b"\xff\xfe", "/", None),
        (b"<html>not here</html>", "/", None),
    ],
)  # fmt: skip
async def test_the_first_rule_of_a_tdmrep_file_that_matches_decides(body, url, expected):
    files = TdmFiles(SimpleFetcher(body), 60)
    await files.read(f"http://h.test{url}")
    rule = files.find(f"http://h.test{url}")
    assert (rule and (rule.reserves, rule.policy)) == expected


class SimpleFetcher:
    def __init__(self, body, status=200):
        self.body, self.status, self.asked = body, status, []

    async def fetch(self, request, *, permit):
        self.asked.append(request.url)
        await asyncio.sleep(0)
        return Response(request.url, status=self.status, body=self.body)


async def test_a_tdmrep_file_is_fetched_once_for_all_workers():
    fetcher = SimpleFetcher(b'[{"location": "/", "tdm-reservation": 1}]')
    notes = EmbeddedFrontier().notes
    here, there = TdmFiles(fetcher, 60, notes), TdmFiles(fetcher, 60, notes)
    await asyncio.gather(*(here.read(f"http://h.test/{number}") for number in range(9)))
    await there.read("http://h.test/other")
    assert there.find("http://h.test/other").reserves
    assert fetcher.asked == ["http://h.test/.well-known/tdmrep.json"]


@pytest.mark.parametrize(("status", "ttl"), [(404, 86_400), (503, 600), (429, 600)])
async def test_an_origin_without_a_tdmrep_file_is_asked_again_later(status, ttl, monkeypatch):
    fetcher = SimpleFetcher(b"[]", status)
    files = TdmFiles(fetcher, 86_400)
    now = time.time()
    await files.read("http://h.test/")
    assert files.find("http://h.test/") is None
    for seconds, expected in ((ttl - 5, True), (ttl + 60, False)):
        monkeypatch.setattr(time, "time", lambda at=now + seconds: at)
        assert files.knows("http://h.test/") is expected


TDMREP = Answer(
    b'[{"location": "/reserved", "tdm-reservation": 1, "tdm-policy": "/p"}]', content_type="application/json"
)


class Linked(All):
    def parse(self, response):
        yield {"url": response.url}
        yield response.follow_all("a")


def tdm_site(serve, answer, robots=b""):
    own = Answer(b'<meta name="tdm-reservation" content="0">own', content_type="text/html")
    links = b'<a href="/reserved/1">1</a><a href="/reserved/own">2</a><a href="/free">3</a>'
    site = Scripted({
        "/robots.txt": Answer(robots, content_type="text/plain"),
        "/.well-known/tdmrep.json": answer,
        "/": Answer(links, content_type="text/html"),
        "/reserved/1": Answer(b"1", content_type="text/html"),
        "/reserved/own": own,
        "/free": Answer(b"3", content_type="text/html"),
    })  # fmt: skip
    spider = Linked()
    spider.start_urls = [serve(site).url]
    return site, spider


@pytest.mark.parametrize("robots", [True, False])
@pytest.mark.parametrize("delay", [0, 0.02])
async def test_a_tdmrep_file_is_obeyed_once_per_origin(robots, delay, serve, tmp_path):
    site, spider = tdm_site(serve, TDMREP)
    ran = await CrawlHarness(spider, tmp_path, delay=delay, robots=robots, obey_tdm=True).run(workers=2)
    assert sorted(item["url"].removeprefix(spider.start_urls[0]) for item in ran.items) == [
        "", "free", "reserved/own",
    ]  # fmt: skip
    assert ran.counters["dropped_items/tdm"] == 1
    assert site.counts["/.well-known/tdmrep.json"] == 1


async def test_a_tdmrep_file_is_carried_with_items(serve, tmp_path):
    _, spider = tdm_site(serve, TDMREP)
    ran = await CrawlHarness(spider, tmp_path, delay=0, directives_field="rights").run()
    assert {item["url"].removeprefix(spider.start_urls[0]): item["rights"] for item in ran.items} == {
        "": {},
        "free": {},
        "reserved/1": {"tdm_reservation": True, "tdm_policy": f"{spider.start_urls[0]}p"},
        "reserved/own": {"tdm_reservation": False},
    }


@pytest.mark.parametrize(
    ("answer", "robots", "asked"),
    [
        (Answer(b"", status=500), b"", 1),
        (Answer(b"", delay=120), b"", 1),
        (TDMREP, b"User-agent: *\nDisallow: /.well-known/", 0),
    ],
)
async def test_pages_do_not_depend_on_a_tdmrep_file(answer, robots, asked, serve, tmp_path):
    site, spider = tdm_site(serve, answer, robots)
    ran = await CrawlHarness(
        spider, tmp_path, delay=0, robots=True, obey_tdm=True, unreachable_timeout=0.3
    ).run()
    assert len(ran.items) == 4
    assert site.counts.get("/.well-known/tdmrep.json", 0) == asked


async def test_a_tdmrep_file_is_not_fetched_without_a_setting_for_it(serve, tmp_path):
    site, spider = tdm_site(serve, TDMREP)
    await CrawlHarness(spider, tmp_path, delay=0, obey_noindex=True).run()
    assert "/.well-known/tdmrep.json" not in site.counts
