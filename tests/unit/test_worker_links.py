"""Gatherer: results of callbacks become items and entries; every refused URL is counted by its reason."""

import pytest

from crawl_harness import CrawlHarness, Scripted
from skitter import Request, Spider
from skitter.errors import RequestError, SpiderError
from skitter.frontier.records import Entry
from skitter.links import Links
from skitter.politeness import LimitRule, Politeness
from skitter.request import decode_request, fingerprint
from skitter.scope import Scope
from skitter.settings import Settings
from skitter.web.urls import normalize
from skitter.worker import links as links_module
from skitter.worker.links import LinkCollector
from skitter.worker.traps import TrapDetector

BASE = "http://h.test/dir/page.html"
PARENT = Request(BASE, depth=3)


@pytest.fixture
def gatherer(link_table, monkeypatch):
    monkeypatch.setattr(links_module, "LinkTable", link_table)

    def make(scope=None, politeness=None):
        return LinkCollector(scope or Scope(), politeness or Politeness(), 42)

    return make


def urls_of(gathered):
    return [entry.url for entry in entries_of(gathered)]


def entries_of(gathered):
    batched = [entry for batch in gathered.batches for entry in batch.entries()]
    return gathered.entries + batched


def links(*hrefs, **fields):
    return Links(BASE, list(hrefs), fields)


def request_of(entry):
    return decode_request(entry.url, entry.record)


def test_items_requests_and_batches_are_distinguished(gatherer):
    gathered = gatherer().collect([{"a": 1}, Request("http://h.test/x"), links("y", "z"), None], PARENT)
    assert gathered.items == [{"a": 1}]
    assert urls_of(gathered) == ["http://h.test/x", "http://h.test/dir/y", "http://h.test/dir/z"]
    assert gathered.links == 3


@pytest.mark.parametrize("strange", ["text", 7, ["list"], object()])
def test_an_unsupported_result_is_named(gatherer, strange):
    with pytest.raises(SpiderError, match=type(strange).__name__):
        gatherer().collect([strange], PARENT)


def test_a_batch_gives_the_same_entries_as_its_requests_one_by_one(gatherer):
    hrefs = ["a.html", "/b?x=1&c=%41", "//other.test/", "../d/./e", "g h", "http.html"]
    batch = links(*hrefs, priority=5, meta={"k": 1}, callback="item", delay=2.0)
    together = entries_of(gatherer().collect([batch], PARENT))
    single = entries_of(gatherer().collect(list(batch), PARENT))
    assert [(e.fingerprint, e.slot, e.url, e.priority, e.delay, e.dedup) for e in together] == [
        (e.fingerprint, e.slot, e.url, e.priority, e.delay, e.dedup) for e in single
    ]
    assert [request_of(entry) for entry in together] == [request_of(entry) for entry in single]


def test_the_fingerprint_of_a_batched_link_is_that_of_its_request(gatherer):
    for entry in entries_of(gatherer().collect([links("a", "b?y=2&x=1", "c%7e")], PARENT)):
        assert entry.fingerprint == fingerprint(Request(entry.url), 42)


@pytest.mark.parametrize(
    "fields", [{"method": "POST"}, {"body": b"x"}, {"fingerprint_keys": ("k",), "meta": {"k": 1}}]
)
def test_fields_of_the_identity_hold_for_a_batch_too(gatherer, fields):
    (entry,) = entries_of(gatherer().collect([links("a", **fields)], PARENT))
    assert entry.fingerprint == fingerprint(Request("http://h.test/dir/a", **fields), 42)
    assert entry.fingerprint != fingerprint(Request("http://h.test/dir/a"), 42)


def test_a_batch_may_skip_the_duplicate_test(gatherer):
    gathered = gatherer().collect([links("a", dont_filter=True)], PARENT)
    assert [entry.dedup for entry in entries_of(gathered)] == [False]


def test_requests_that_differ_only_in_their_url_share_one_record(gatherer):
    pages = [Request(f"http://h.test/{n}", "parse", meta={"k": 1}) for n in range(3)]
    gathered = gatherer().collect([*pages, {"a": 1}, Request("http://h.test/other", "item")], PARENT)
    assert [batch.urls for batch in gathered.batches] == [
        [page.url for page in pages],
        ["http://h.test/other"],
    ]
    assert [request_of(entry).meta for entry in entries_of(gathered)] == [{"k": 1}] * 3 + [{}]
    assert [request_of(entry).callback for entry in entries_of(gathered)] == ["parse"] * 3 + ["item"]


def test_requests_and_batches_keep_the_order_in_which_they_were_yielded(gatherer):
    results = [
        Request("http://h.test/1"),
        links("/2"),
        Request("http://h.test/3"),
        Request("http://h.test/4"),
    ]
    assert urls_of(gatherer().collect(results, PARENT)) == [f"http://h.test/{n}" for n in range(1, 5)]


def test_a_request_to_a_known_url_is_a_duplicate_unless_its_identity_differs(gatherer):
    collector, url = gatherer(), "http://h.test/known"
    collector.cache.learn([url])
    others = [{"method": "POST"}, {"body": b"x"}, {"dont_filter": True}]
    others.append({"meta": {"k": 1}, "fingerprint_keys": ("k",)})
    requests = [Request(url), Request(url + "#part"), *(Request(url, **fields) for fields in others)]
    gathered = collector.collect(requests, PARENT)
    assert gathered.refused == {"duplicate": 2}
    assert [entry.fingerprint for entry in gathered.entries] == [
        fingerprint(request, 42) for request in requests[2:]
    ]


@pytest.mark.parametrize("known_forever", [True, False])
def test_a_link_that_another_worker_has_added_is_known_unless_urls_are_forgotten(known_forever):
    collector = LinkCollector(Scope(), Politeness(), 42, known_forever=known_forever)
    collector.traps = TrapDetector(Settings())
    collector.learn(["http://h.test/dir/y", "http://h.test/p?id=1"])
    gathered = collector.collect([links("y", "../p?id=1", "z")], PARENT)
    new = ["http://h.test/dir/z"]
    if not known_forever:
        new = ["http://h.test/dir/y", "http://h.test/p?id=1", *new]
    assert (urls_of(gathered), gathered.refused.get("duplicate", 0)) == (new, 3 - len(new))


@pytest.mark.parametrize("url", ["#top", "x", ""])
def test_a_request_without_an_absolute_url_is_an_error_also_beside_known_ones(gatherer, url):
    one = gatherer()
    one.learn(["http://h.test/x", "http://h.test/dir/x"])
    with pytest.raises(RequestError, match="no absolute URL"):
        one.collect([Request("http://h.test/x"), Request(url)], PARENT)


def test_a_request_that_is_yielded_twice_is_counted_as_a_duplicate(gatherer):
    gathered = gatherer().collect([Request("http://h.test/x")] * 3, PARENT)
    assert (urls_of(gathered), gathered.refused, gathered.links) == (["http://h.test/x"], {"duplicate": 2}, 3)


def test_the_first_of_several_requests_to_a_url_is_added(gatherer):
    requests = [Request("http://h.test/x", priority=number) for number in (1, 2, 1)]
    gathered = gatherer().collect(requests, PARENT)
    assert [entry.priority for entry in entries_of(gathered)] == [1]
    assert gathered.refused == {"duplicate": 2}


def test_an_outside_url_is_refused_on_every_page(gatherer):
    collector = gatherer(scope=Scope(allowed_domains=["h.test"]))
    for page in range(3):
        gathered = collector.collect([Request("http://x.test/"), Request("http://h.test/")], PARENT)
        assert gathered.refused == {"host": 1}, page
        assert urls_of(gathered) == ["http://h.test/"]


def test_depth_and_referer_are_always_set(gatherer):
    given = [Request("http://h.test/x", depth=99), links("y", depth=99)]
    requests = [request_of(entry) for entry in entries_of(gatherer().collect(given, PARENT))]
    assert [(request.depth, request.referer) for request in requests] == [(4, BASE), (4, BASE)]


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize(
    ("href", "scope", "reason"),
    [
        ("mailto:me@h.test", Scope(), "scheme"),
        ("ftp://h.test/", Scope(), "scheme"),
        ("http://other.test/", Scope(allowed_domains=["h.test"]), "host"),
        ("http://other.test/", Scope(scope="host", seeds=[BASE]), "host"),
        ("/elsewhere", Scope(scope="prefix", seeds=[BASE]), "pattern"),
        ("/denied", Scope(deny=["denied"]), "pattern"),
        ("/other", Scope(allow=["only"]), "pattern"),
        ("/" + "x" * 5000, Scope(), "length"),
        ("/x", Scope(depth_limit=3), "depth"),
    ],
)
def test_a_refused_url_is_counted_by_its_reason(gatherer, href, scope, reason, batched):
    batch = links(href)
    gathered = gatherer(scope).collect([batch] if batched else list(batch), PARENT)
    assert urls_of(gathered) == []
    assert {name: count for name, count in gathered.refused.items() if count} == {reason: 1}


def test_links_that_are_not_urls_are_counted(gatherer):
    gathered = gatherer().collect([links("http://[::1", "http://a b/", "ok")], PARENT)
    assert gathered.refused["unparsable"] == 2
    assert urls_of(gathered) == ["http://h.test/dir/ok"]


def test_relative_links_are_resolved_again_on_another_page(gatherer):
    """``http.html`` is not an absolute URL, and ``?page=2`` belongs to its page."""
    one = gatherer()
    hrefs = [
        "http.html",
        "https",
        "http:x.html",
        "?page=2",
        "#top",
        "",
        " ?page=3",
        "\x01?page=4",
        "\n?page=5",
    ]
    for folder in ("a", "b"):
        for page in ("one.html", "two.html"):
            base = f"http://h.test/{folder}/{page}"
            gathered = one.collect([Links(base, hrefs, {})], Request(base))
            one.cache.learn(urls_of(gathered))
            # A second page that repeats the links makes the memory store them by their text.
            one.collect([Links(base, hrefs, {})], Request(base))
    expected = [
        f"http://h.test/{folder}/{name}" for folder in "ab" for name in ("http.html", "https", "x.html")
    ]
    expected += [
        f"http://h.test/{folder}/{page}.html?page={number}"
        for folder in "ab"
        for page in ("one", "two")
        for number in (2, 3, 4, 5)
    ]
    assert {one.cache.reason(url) for url in expected} == {"duplicate"}


def test_a_part_leads_to_the_page_itself_unless_the_page_has_another_base(gatherer):
    one = gatherer()
    page, base = "http://h.test/a/one.html", "http://h.test/b/two.html"
    for _ in range(3):
        gathered = one.collect([Links(page, ["#top", "#", "#c1", "#top"], {})], Request(page))
        assert urls_of(gathered) == []
        assert gathered.refused == {"duplicate": 4}
    gathered = one.collect([Links(base, ["#top", "x.html", "#", "#c1", "#top"], {})], Request(page))
    assert set(urls_of(gathered)) == {base, "http://h.test/b/x.html"}


HOSTS_AND_FOLDERS = [
    f"{host}{folder}page{number}.html"
    for number in range(2)
    for host in ("http://h.test", "http://g.test", "https://h.test", "http://h.test:81")
    for folder in ("/", "/a/", "/b/", "/a/c/", "/a/d/", "/b/c/", "/a/c/e/")
]


@pytest.mark.parametrize(
    "href", ["../x.html", "../../x.html", "..//x", "../", "/x", "x", "../a/c/x", "./../x", ".."]
)
def test_every_url_is_found_once_whatever_folder_and_host_its_links_are_in(gatherer, href):
    one, found, expected = gatherer(), [], set()
    for base in HOSTS_AND_FOLDERS * 2:
        gathered = one.collect([Links(base, [href], {})], Request(base))
        found += urls_of(gathered)
        one.cache.learn(urls_of(gathered))
        expected.add(normalize(href, base))
    assert sorted(found) == sorted(expected)


def test_the_slot_comes_from_the_politeness_rules(gatherer):
    rules = [LimitRule(domain_glob="*.pool.test", unit="rule", delay=1.0)]
    one = gatherer(politeness=Politeness(rules=rules))
    gathered = one.collect([links("http://a.pool.test/", "http://b.pool.test:81/", "/here")], PARENT)
    assert [entry.slot for entry in entries_of(gathered)] == ["rule:0", "rule:0", "h.test"]


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize(
    "fields",
    [
        {"priority": 2**63}, {"priority": -(2**63) - 1}, {"priority": 10**30}, {"priority": "high"},
        {"priority": 1.5}, {"delay": float("nan")}, {"delay": "5"}, {"not_before": float("inf")},
    ],
)  # fmt: skip
def test_an_invalid_priority_or_time_is_rejected_by_name(gatherer, fields, batched):
    batch = links("x", **fields)
    with pytest.raises(RequestError) as caught:
        gatherer().collect([batch] if batched else list(batch), PARENT)
    assert caught.value.field == next(iter(fields))


def test_a_seed_becomes_an_entry_or_a_reason(gatherer):
    one = gatherer(Scope(allowed_domains=["h.test"]))
    assert isinstance(one.entry(Request("HTTP://H.test/%7Ea b#part")), Entry)
    assert one.entry(Request("http://H.test/a b#part")).url == "http://h.test/a%20b"
    assert one.entry(Request("http://x.test/")) == "host"
    assert one.entry(Request("nonsense")) == "unparsable"


class Everywhere(Spider):
    async def start(self):
        yield Request(self.url)

    def parse(self, response):
        yield {"url": response.url}
        yield response.follow_all("a")
        for href in response.hrefs():
            yield Request(href if "://" in href else response.urljoin(href))


async def test_a_crawl_counts_all_that_it_refuses(serve, tmp_path):
    hrefs = ["/a", "/a#x", "/b", "mailto:x@y.test", "ftp://h.test/", "http://outside.invalid/", "/denied"]
    server = serve(Scripted({"/": hrefs, "/a": [], "/b": []}))
    bench = CrawlHarness(Everywhere(url=server.url), tmp_path, deny=["denied", "outside"], max_url_length=100)
    ran = await bench.run()
    assert len(ran.items) == 3
    counted = {name: count for name, count in ran.counters.items() if name.startswith("refused/")}
    assert counted == {"refused/scheme": 4, "refused/pattern": 4, "refused/duplicate": 4}
    assert ran.counters["links"] == 14


def test_credentials_in_a_url_become_a_header_of_a_request_and_leave_a_link(gatherer):
    secret = "http://us%40er:p%3Aw@h.test/x?a@b"
    found = gatherer().collect(
        [Request(secret), Request(secret + "1", headers={"authorization": "own"})], PARENT
    )
    assert [request_of(entry).headers for entry in entries_of(found)] == [
        {"Authorization": "Basic dXNAZXI6cDp3"}, {"authorization": "own"},
    ]  # fmt: skip
    found = gatherer().collect([links(secret, "//user@h.test/y", "/@z", "http://me:pw@h.test/y")], PARENT)
    assert sorted(set(urls_of(found))) == ["http://h.test/@z", "http://h.test/x?a@b", "http://h.test/y"]
    assert all(request_of(entry).headers == {} for entry in entries_of(found))
    found = gatherer(Scope(allowed_domains=["h.test"])).collect(
        [links("http://h.test@evil.test/"), Request("http://h.test@evil.test/")], PARENT
    )
    assert (urls_of(found), dict(found.refused)) == ([], {"host": 2})
