"""What a worker remembers of a page, and how it asks for the page again."""

import msgspec
import pytest
import xxhash

from skitter.frontier.records import Lease, PageChange, Resolution
from skitter.links import Links
from skitter.request import Request, encode_request
from skitter.response import Response
from skitter.settings import Settings
from skitter.worker.page import Page, PageSnapshot
from skitter.worker.retry import RetryDecision
from skitter.worker.revisit import Revisits, pack_links, unpack_links, visit_of

URL = "http://h.test/page"
DIGEST = xxhash.xxh3_128_digest(b"body", 200)
OLD, DATE = "Tue, 01 Jan 2030 00:00:00 GMT", "Tue, 01 Jan 2030 00:00:10 GMT"


def page_of(request=None, memory=None):
    request = request or Request(URL)
    lease = Lease(1, bytes(16), "h.test", request.url, encode_request(request), 0, 0, 0.0, None, memory)
    return Page(lease, request, lease.fingerprint)


def revisits(number=2, **settings):
    settings.setdefault("changes", "all")
    return Revisits(Settings(**settings), number, renders_pages=False)


def visited(asker, headers=(), body=b"body", items=(), results=(), memory=None, status=200):
    """Process a page to its end; return it."""
    page = page_of(memory=memory)
    asker.begin(page)
    page.response = Response(URL, status, headers=dict(headers), body=body)
    if not asker.is_unchanged(page, page.response):
        page.items = asker.select(list(items), page)
        page.visit = asker.visit(page, results, ())
    return page


def sent_again(headers, request=None, **settings):
    """Return the headers of the second request for a page that was first answered with some headers."""
    first = visited(revisits(1), headers)
    asker = revisits(**settings)
    page = page_of(request, first.visit.memory)
    asker.begin(page)
    return asker.conditional(page, page.request).headers


def test_validators_are_sent_as_they_came():
    assert sent_again({"ETag": 'W/"x"', "Last-Modified": OLD, "Date": DATE}) == {
        "If-None-Match": 'W/"x"', "If-Modified-Since": OLD,
    }  # fmt: skip


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Last-Modified": DATE, "Date": DATE},
        {"Last-Modified": DATE, "Date": OLD},
        {"Last-Modified": "yesterday", "Date": DATE},
    ],
)
def test_a_date_that_is_not_older_than_the_response_is_not_a_validator(headers):
    assert sent_again(headers) == {}


@pytest.mark.parametrize(
    "request_",
    [
        Request(URL, method="POST"),
        Request(URL, headers={"range": "bytes=0-9"}),
        Request(URL, fetcher="browser"),
        Request(URL, browsing={"wait_until": "load"}),
        Request(URL, dont_filter=True),
    ],
)
def test_some_requests_are_never_conditional(request_):
    assert sent_again({"ETag": '"x"'}, request_) == dict(request_.headers)


def test_a_request_that_a_rule_gives_to_a_browser_is_not_conditional():
    rules = ({"domain_glob": "*.test", "fetcher": "browser"},)
    assert sent_again({"ETag": '"x"'}, fetcher_rules=rules) == {}


def test_the_memory_of_another_version_only_means_that_the_page_is_known():
    for memory in (b"", b"\xc1", msgspec.msgpack.encode(PageSnapshot(version=99, digest=DIGEST))):
        page = visited(revisits(), memory=memory)
        assert page.visit.change is PageChange.CHANGED


def test_the_status_belongs_to_the_content():
    memory = visited(revisits(1)).visit.memory
    assert visited(revisits(), memory=memory).visit is None  # unchanged; the pipeline notes it
    assert visited(revisits(), memory=memory, status=203).visit.change is PageChange.CHANGED


def test_only_items_with_new_content_are_delivered():
    settings = {"changes": "changed"}
    first = visited(revisits(1, **settings), items=[{"a": 1}, {"a": 2}])
    assert first.items == [{"a": 1}, {"a": 2}]
    second = visited(revisits(**settings), body=b"2", items=[{"a": 2}, {"a": 3}], memory=first.visit.memory)
    assert second.items == [{"a": 3}]
    third = visited(revisits(**settings), body=b"3", items=[{"a": 2}, {"a": 1}], memory=second.visit.memory)
    assert third.items == [{"a": 1}]


def test_keys_of_items_differ_by_pass_unless_items_are_replaced():
    keys = {visited(revisits(number, changes="changed")).item_key for number in (1, 2, 3)}
    assert len(keys) == 3
    assert {visited(revisits(number)).item_key for number in (1, 2, 3)} == {bytes(16)}


def test_links_are_replayed_as_the_callback_yielded_them():
    results = [
        {"an": "item"},
        Links(URL, ["a", "../b#c"], {"callback": "parse_b", "meta": {"k": [1]}, "priority": 3}),
        Request("http://h.test/1", callback="parse_c"),
        Request("http://h.test/2", callback="parse_c"),
        Request("http://user:word@h.test/3", callback="parse_c"),
        Request("http://h.test/4", method="POST", body=b"x", dont_filter=True),
    ]
    hop = Request("http://h.test/hop", redirects=(URL,), depth=2)
    found, hops = unpack_links(PageSnapshot(links=pack_links(results, [hop])), URL)
    links, requests, secret, post = found
    assert (links.base_url, links.hrefs, links.fields) == (URL, ["a", "../b#c"], results[1].fields)
    assert list(requests) == results[2:4]
    assert secret == results[4]
    assert list(post) == [results[5]]
    assert hops == [hop]


def test_a_page_without_links_remembers_none():
    assert pack_links([{"an": "item"}, None], []) == b""
    assert unpack_links(PageSnapshot(), URL) == ([], [])


def test_a_page_whose_items_cannot_be_stored_keeps_the_visit_before():
    page = visited(revisits(1))
    page.finish(RetryDecision(Resolution.FAILED, "store: full"))
    assert (visit_of(page).change, visit_of(page).memory) == (PageChange.UNCHECKED, None)
    page.finish(RetryDecision(Resolution.RETRY, "again"))
    assert visit_of(page) is None
