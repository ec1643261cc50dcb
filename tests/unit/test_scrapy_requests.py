"""The stored form of Scrapy's requests."""

import asyncio
import gc
import weakref
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from posixpath import basename as path_of
from uuid import UUID

import msgspec
import pytest
import scrapy
from hypothesis import given
from hypothesis import strategies as some
from scrapy.http import FormRequest, HtmlResponse, JsonRequest
from scrapy.loader import ItemLoader
from scrapy.selector import Selector
from scrapy.utils.test import get_crawler

from skitter.errors import RequestError, UndecodableRecord
from skitter.frontier.embedded.damage import matches
from skitter.frontier.records import JobInfo
from skitter.politeness import Politeness
from skitter.request import Request as StoredRequest
from skitter.request import decode_request
from skitter.scope import Scope
from skitter.scrapy.leases import leases_of
from skitter.scrapy.requests import RequestCodec
from skitter.worker.links import LinkCollector

URL = "http://127.0.0.1/page?b=1&a=2#part"


class Product(scrapy.Item):
    name = scrapy.Field()
    parts = scrapy.Field()


@dataclass
class Note:
    text: str


class Helper:
    """Holds callbacks that several spiders share."""

    def parse_shared(self, response):
        """A callback."""


def parse_page(response):
    """A callback outside of all classes."""


def decorated(callback):
    def called(*arguments):
        return callback(*arguments)

    return called


class Books(scrapy.Spider):
    name = "books"

    def parse_book(self, response):
        """A callback."""

    def failed(self, failure):
        """An errback."""

    @staticmethod
    def parse_static(response):
        """A callback without the spider."""

    @decorated
    def parse_decorated(self, response):
        """A callback with the name of another function."""

    @classmethod
    def parse_class(cls, response):
        """A callback of the class."""

    def __init__(self, name=None, **arguments):
        super().__init__(name, **arguments)
        self.helper = Helper()


@pytest.fixture(scope="module")
def crawler():
    crawler = get_crawler(Books)
    crawler.spider = crawler._create_spider("books")
    return crawler


@pytest.fixture(scope="module")
def codec(crawler):
    links = LinkCollector(Scope(), Politeness(), 7, known_forever=True)
    return RequestCodec(crawler, links, Politeness(), JobInfo(7, 1, 60.0))


def restored(codec, request):
    entry = codec.entry(request, b"origin")
    return codec.request(decode_request(entry.url, entry.record))


VALUES = {
    "texts": ["a", b"\x00\xff", "\u00e9"], "numbers": [1, -2.5, True, None], "tuple": (1, ("a",)), "set": {1, 2},
    "frozen": frozenset({"x"}), "when": datetime(2026, 11, 26, 10, tzinfo=UTC), "naive": datetime(2026, 1, 1),  # noqa: DTZ001 - a value
    "day": date(2026, 1, 1), "price": Decimal("1.10"), "id": UUID(int=5), "span": timedelta(days=-1, seconds=1),
    "item": Product(name="a", parts=[Product(name="b")]), "note": Note("n"), "keys": {1: "a", None: "b"},
}  # fmt: skip


def test_a_request_is_restored_as_it_was(codec, crawler):
    request = scrapy.Request(
        URL, crawler.spider.parse_book, method="PUT", headers={"A": ["1", "2"]}, body=b"\x00b", cookies=[{"name": "c", "value": "d"}],
        meta=VALUES, encoding="latin-1", priority=-3, dont_filter=True, errback=crawler.spider.failed, flags=["f"],
        cb_kwargs={"values": VALUES},
    )  # fmt: skip
    found = restored(codec, request)
    assert found.to_dict(spider=crawler.spider) == request.to_dict(spider=crawler.spider)
    assert isinstance(found.meta["item"], Product)
    assert isinstance(found.meta["tuple"][1], tuple)


@pytest.mark.parametrize(
    "request_",
    [FormRequest(URL, formdata={"a": "1"}), JsonRequest(URL, data={"a": [1]}), scrapy.Request(URL)],
)
def test_a_request_keeps_its_class(codec, crawler, request_):
    found = restored(codec, request_)
    assert type(found) is type(request_)
    assert found.to_dict(spider=crawler.spider) == request_.to_dict(spider=crawler.spider)


@pytest.mark.parametrize(
    "callback_of",
    [
        lambda spider: spider.parse_book,
        lambda spider: spider.parse_static,
        lambda spider: Books.parse_static,
        lambda spider: spider.parse_class,
        lambda spider: spider.parse_decorated,
        lambda spider: spider.helper.parse_shared,
        lambda spider: parse_page,
        lambda spider: path_of,
    ],
)
def test_a_request_finds_its_callback_again(codec, crawler, callback_of):
    callback = callback_of(crawler.spider)
    request = scrapy.Request(URL, callback, errback=callback)
    found = restored(codec, request)
    assert (found.callback, found.errback) == (callback, callback)
    assert (request.callback, request.errback) == (callback, callback)


@pytest.mark.parametrize(
    "name", ["gone", "helper.gone", "gone.parse_shared", "Books", "pytest", "name", "sys.exit"]
)
def test_a_stored_name_leads_to_no_other_code(codec, name):
    with pytest.raises(UndecodableRecord, match=name):
        codec.request(StoredRequest(URL, callback=name))


@given(
    some.recursive(
        some.none() | some.booleans() | some.integers(-(2**63), 2**63 - 1) | some.floats(allow_nan=False) | some.text(some.characters(exclude_categories=["Cs"]))
        | some.binary() | some.dates() | some.decimals(allow_nan=False),
        lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(some.characters(exclude_categories=["Cs"])), inner, max_size=3) | some.tuples(inner, inner),
        max_leaves=10,
    )
)  # fmt: skip
def test_any_plain_value_is_restored(codec, value):
    assert restored(codec, scrapy.Request(URL, meta={"value": value})).meta == {"value": value}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"meta": {"a": [{"b": object()}]}}, r"meta\['a'\]\[0\]\['b'\] is an object"),
        ({"cb_kwargs": {"lock": asyncio.Lock}}, r"cb_kwargs\['lock'\] is a type"),
        ({"meta": {"large": 2**70}}, r"meta\['large'\] is an integer of more than 64 bits"),
        ({"callback": lambda response: None}, "'<lambda>' is neither a method of the spider"),
        ({"callback": partial(print, "a")}, "is neither a method of the spider"),
        ({"callback": msgspec.json.decode}, "decode' is neither a method of the spider"),
        (
            {"meta": {"loader": ItemLoader(item={})}},
            r"meta\['loader'\] is an ItemLoader: pass its load_item\(\)",
        ),
        ({"meta": {"page": HtmlResponse(URL)}}, r"meta\['page'\] is a HtmlResponse: pass the values"),
        ({"cb_kwargs": {"row": Selector(text="<p>")}}, r"cb_kwargs\['row'\] is a Selector: pass its .get"),
        ({"meta": {"a": {object(): 1}}}, r"a key of meta\['a'\]"),
    ],
)
def test_a_request_that_cannot_be_stored_is_refused_with_the_place_of_the_value(codec, fields, words):
    with pytest.raises(RequestError, match=f"(?i){words}"):
        codec.entry(scrapy.Request(URL, **fields), b"")
    entry = codec.entry_or_rejection(scrapy.Request(URL, **fields), b"")
    with pytest.raises(UndecodableRecord, match=r"plain values.*arguments in cb_kwargs"):
        decode_request(entry.url, entry.record)


def test_identity_is_that_of_the_fingerprinter_of_the_project(codec):
    def fingerprint(url, origin=b"", **fields):
        return codec.entry(scrapy.Request(url, **fields), origin).fingerprint

    assert fingerprint("http://h/?a=1&b=2") == fingerprint("http://h/?b=2&a=1#x", b"other")
    assert fingerprint("http://h/", body=b"1", method="POST") != fingerprint(
        "http://h/", body=b"2", method="POST"
    )
    passing = [fingerprint("http://h/", origin, dont_filter=True) for origin in (b"1", b"1", b"2")]
    assert passing[0] == passing[1] != passing[2]
    assert not codec.entry(scrapy.Request("http://h/", dont_filter=True), b"").dedup


def test_the_slot_is_the_host_or_the_one_that_the_request_names(codec):
    def slot(url, host="", **meta):
        return codec.entry(scrapy.Request(url, meta=meta), b"", host).slot

    assert slot("http://a.example:8080/") == "a.example"
    assert slot("http://a.example/", download_slot="own") == "own"
    assert slot("http://b.example/", "a.example", download_slot="a.example") == "b.example"
    assert slot("data:,x") == "(none)"
    found = codec.entry(
        scrapy.Request("http://b.example/", meta={"download_slot": "a.example"}), b"", "a.example"
    )
    assert "download_slot" not in codec.request(decode_request(found.url, found.record)).meta


@pytest.mark.parametrize(
    "packed",
    [
        {"_class": "subprocess.Popen"},
        {
            "meta": {
                "x": msgspec.msgpack.Ext(9, msgspec.msgpack.encode(["subprocess.Popen", {"args": ["true"]}]))
            }
        },
        {"meta": {"x": msgspec.msgpack.Ext(99, b"")}},
    ],
)
def test_a_stored_request_runs_no_code_of_other_classes(codec, packed):
    entry = codec.entry(scrapy.Request(URL), b"")
    stored = decode_request(entry.url, entry.record).replace(meta={"scrapy": msgspec.msgpack.encode(packed)})
    with pytest.raises(UndecodableRecord):
        codec.request(stored)


def test_a_request_of_skitter_add_is_readable(codec):
    from skitter import Request

    found = codec.request(Request(URL, callback="parse_book", meta={"a": 1}, headers={"X": "1"}))
    assert (found.url, found.callback.__name__, found.meta, found.headers[b"X"]) == (
        URL,
        "parse_book",
        {"a": 1},
        b"1",
    )


def test_no_stored_request_counts_as_damaged(codec, crawler):
    """The fingerprinter of the project has computed its fingerprint, and only it can compute it again."""
    entries = [
        codec.entry(scrapy.Request(URL, crawler.spider.parse_book), b"origin"),
        codec.entry(scrapy.Request(URL, crawler.spider.parse_book, dont_filter=True), b"origin"),
        codec.entry_or_rejection(scrapy.Request(URL, meta={"x": object()}), b"origin"),
        codec.item_entry({"name": "a"}, 3),
        codec.item_entry(object(), 4),
    ]
    for entry in entries:
        assert matches(entry.url, entry.record, entry.fingerprint, 7)
    assert not matches(entries[0].url, entries[0].record[:-3], entries[0].fingerprint, 7)


async def test_leases_of_a_crawler_are_freed_with_it():
    crawler = get_crawler(Books)
    leases = weakref.ref(leases_of(crawler))
    del crawler
    gc.collect()
    assert leases() is None
