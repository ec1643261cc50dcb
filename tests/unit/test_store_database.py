"""The buffering of database stores, tested with a database that is a dict."""

import logging

import pytest

from skitter._utils import backoff
from skitter._utils.backoff import Unavailable
from skitter.errors import StoreError
from skitter.item import encode_item
from skitter.secrets import shown_url
from skitter.store.contract import GroupError, ItemGroup, StoreContext
from skitter.store.database import BufferOptions, DatabaseStore, Encoded
from skitter.store.outputs import open_output

CONTEXT = StoreContext("quotes", "w1", "/nowhere")


class DictDriver:
    name = "dict://here"

    def __init__(self, away=0):
        self.rows = {}
        self.calls = []
        self.away = away
        """Number of calls that fail because the database is away."""

    async def open(self, context):
        pass

    def encode(self, item):
        return Encoded(encode_item(item))

    async def put(self, pages):
        self.calls.append([len(page.items) for page in pages])
        assert len({page.prefix for page in pages}) == len(pages)
        if self.away:
            self.away -= 1
            raise Unavailable("connection refused")
        refusals = ["too sour" if any(b"lemon" in i.data for i in page.items) else "" for page in pages]
        for page, refusal in zip(pages, refusals, strict=True):
            for number, item in enumerate(() if refusal else page.items):
                self.rows[f"{page.prefix}{number}"] = item.data
        return refusals

    async def close(self):
        pass


def page(number, *items):
    return ItemGroup(number.to_bytes(16, "big"), items)


@pytest.fixture
def no_pauses(monkeypatch):
    monkeypatch.setattr(backoff, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(backoff, "LONGEST_PAUSE", 0.001)
    monkeypatch.setattr(logging.getLogger("skitter"), "propagate", True)


async def store_over(driver, **terms):
    store = DatabaseStore(driver, BufferOptions(**terms))
    await store.open(CONTEXT)
    return store


async def test_a_write_is_split_into_batches_between_pages():
    driver = DictDriver()
    store = await store_over(driver, buffer=5)
    pages = [page(n, *({"n": i} for i in range(count))) for n, count in enumerate((2, 2, 2, 9, 1, 0, 4))]
    assert await store.write(pages) == [None] * 7
    assert driver.calls == [[2, 2], [2], [9], [1, 0, 4]]
    assert len(driver.rows) == 20


async def test_a_batch_ends_with_its_bytes_too():
    driver = DictDriver()
    store = await store_over(driver)
    await store.write([page(n, {"text": "x" * (5 << 20)}) for n in range(3)])
    assert driver.calls == [[1], [1], [1]]


async def test_a_page_that_comes_twice_in_one_write_is_written_twice_in_its_order():
    driver = DictDriver()
    store = await store_over(driver)
    await store.write([page(1, {"n": 1}), page(2, {"n": 2}), page(1, {"n": 3})])
    assert driver.rows[f"quotes:{1:032x}:0"] == b'{"n":3}'


async def test_a_rejected_page_keeps_its_error_and_the_others_are_written():
    driver = DictDriver()
    store = await store_over(driver)
    odd = page(3, {"n": 1}, {"n": object()})
    good, sour, bad, fine = await store.write(
        [page(1, {"n": 1}), page(2, {"n": "lemon"}), odd, page(4, {"n": 4})]
    )
    assert (good, fine) == (None, None)
    assert sour == GroupError("dict://here rejects the page's items: too sour")
    assert "item 2 of the page" in bad.error
    assert sorted(driver.rows) == [f"quotes:{n:032x}:0" for n in (1, 4)]


async def test_a_store_waits_for_an_unavailable_server_and_reports_it_once(no_pauses, caplog):
    driver = DictDriver(away=20)
    store = await store_over(driver)
    assert await store.write([page(1, {"n": 1})]) == [None]
    assert len(driver.calls) == 21
    away, back = [record.getMessage() for record in caplog.records]
    assert all(part in away for part in ("dict://here", "connection refused", "600 s"))
    assert back.startswith("dict://here is back after ")


async def test_an_outage_timeout_is_an_error_with_a_remedy(no_pauses):
    store = await store_over(DictDriver(away=10**9), outage_timeout=0.05)
    with pytest.raises(
        StoreError, match=r"dict://here has been unavailable for 0.05 s: connection refused"
    ) as caught:
        await store.write([page(1, {"n": 1})])
    assert "run the same command again" in caught.value.remedy


async def test_pages_are_buffered_only_with_a_flush_time():
    assert (await store_over(DictDriver())).buffering is None
    gathering = (await store_over(DictDriver(), buffer=7, flush=2.5)).buffering
    assert (gathering.items, gathering.seconds) == (7, 2.5)


@pytest.mark.parametrize(
    "target",
    [
        "mongodb://db", "mongodb://db/shop", "mongodb:///shop/items", "mongodb://db/a.b/items", "mongodb://db/shop/$x",
        "mongodb://db/shop/system.users", "mongodb://db/shop/{", "mongodb://db/shop/items?buffer=0",
        "mongodb://db/shop/items?buffer=many", "mongodb://db/shop/items?flush=-1", "mongodb://db/shop/items?outage_timeout=nan",
        "postgresql://db/shop?table=", "postgresql://db/shop?table=" + 64 * "x", "postgresql://db/shop?layout=rows",
        "mysql://db/shop?table=", "mysql://db/shop?table=a/b", "mysql://db", "mysql://db:x/shop", "mysql://db/shop?layout=jsonb",
        "mariadb://db/shop?colour=red", "mysql://db/shop?sslmode=perhaps", "mysql://db/shop?buffer=0",
        "items.csv?parts=redis://db/items", "items.csv?parts=db", "items.csv?parts=redis://db/0/",
        "s3://bucket/items", "s3://bucket/items.docx", "s3://bucket/items.csv?buffer=0",
    ],
)  # fmt: skip
def test_an_invalid_location_is_refused_with_a_remedy(target):
    with pytest.raises(StoreError) as caught:
        open_output(target)
    assert caught.value.remedy
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("mongodb://me:secret@db:27017/shop/items?w=1", "mongodb://me:***@db:27017/shop/items?w=1"),
        ("postgresql://me:secret@db/shop?table=items", "postgresql://me:***@db/shop?table=items"),
        ("mariadb://me:secret@db/shop?table=items", "mariadb://me:***@db/shop?table=items"),
        ("redis://:secret@db/0/items", "redis://:***@db/0/items"),
        ("s3://b/items.csv?key=me&secret=hush&endpoint_url=http://e", "s3://b/items.csv?key=***&secret=***&endpoint_url=http://e"),
        ("items.jsonl", "items.jsonl"),
        ("items.csv?parts=redis://me:secret@db/0/shop", "items.csv?parts=redis://me:***@db/0/shop"),
        ("-", "-"),
    ],
)  # fmt: skip
def test_the_displayed_name_of_an_output_has_no_password(target, name):
    assert shown_url(target) == name
    assert "secret@" not in open_output(target).target
    assert "hush" not in open_output(target).target
