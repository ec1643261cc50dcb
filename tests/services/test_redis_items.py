"""Items in Redis lists and streams: each committed item is pushed once, even if processes die."""

import asyncio
import contextlib
import json
import pickle
import re

import msgspec
import pytest

from services.relay import Relay
from skitter.errors import StoreError
from skitter.store.committed import CommittedRanges
from skitter.store.contract import GroupError, ItemGroup, OutputContext, StoreContext
from skitter.store.files import PartFileStore
from skitter.store.outputs import open_output


@pytest.fixture
async def shop(server, ask, tmp_path):
    """A job with a worker that writes items, and the keys of its output."""
    await ask.delete("shop:items", "shop:items:pushed", "shop:hash")
    return Shop(server.url.removesuffix("/0"), tmp_path)


class Shop:
    def __init__(self, server, folder):
        self.server = server
        self.context = OutputContext("shop", str(folder))
        self.ranges = {}
        self._folder = folder

    def output(self, options="", server=None):
        return open_output(f"{server or self.server}/0/shop:items{options}")

    async def write(self, worker, *pages, commit=True, store=None):
        """Let a worker write pages of items. ``commit`` records them."""
        store = PartFileStore() if store is None else store
        await store.open(StoreContext("shop", worker, str(self._folder)))
        for page in pages:
            groups = [ItemGroup(b"f" * 16, [n if isinstance(n, dict) else {"n": n} for n in page])]
            (mark,) = await store.write(groups)
            if commit:
                self.ranges.setdefault(mark.part, []).append((mark.start, mark.end))
        return store


async def listed(ask):
    return [json.loads(item)["n"] for item in await ask.lrange("shop:items", 0, -1)]


async def test_committed_items_are_pushed_once_by_repeated_calls(shop, ask):
    output = shop.output()
    await output.check(shop.context)
    one = await shop.write("w1", [1, 2], [3])
    for _ in range(3):
        assert await output.emit(shop.context, shop.ranges) is True
    assert await listed(ask) == [1, 2, 3]
    two = await shop.write("w2", [4])
    await shop.output().merge(shop.context, shop.ranges)  # another process: the first has died
    await output.merge(shop.context, shop.ranges)
    assert await listed(ask) == [1, 2, 3, 4]
    await one.close()
    await two.close()


async def test_a_fresh_job_removes_its_staged_items_also_if_the_key_is_a_pattern(shop, ask):
    target = f"{shop.server}/0/shop[1]*:items"
    other = "shop1:items:staged:shop/w1"  # matches the key, but belongs to another output
    await ask.hset(other, "0", "item")
    output = open_output(target)
    store = await shop.write("w1", [1], store=output.fleet_store())
    own = r"shop\[1\]\*:items:staged:*"
    assert len(await ask.keys(own)) == 1
    await output.clear(shop.context)
    assert (await ask.keys(own), await ask.exists(other)) == ([], 1)
    await ask.delete(other)
    await store.close()


async def test_a_consumer_that_takes_items_does_not_get_them_again(shop, ask):
    output = shop.output()
    store = await shop.write("w1", [1, 2, 3])
    await output.emit(shop.context, shop.ranges)
    await ask.lpop("shop:items", 3)
    await output.merge(shop.context, shop.ranges)
    assert await listed(ask) == []
    await store.close()


async def test_a_push_that_is_cancelled_ends_at_whatever_step_it_is(shop):
    """A run must not end before the task that pushes items."""
    store = await shop.write("w1", *[[number] for number in range(5)])
    finished = False
    steps = 0
    while not finished:
        pushing = asyncio.create_task(shop.output().emit(shop.context, shop.ranges))
        for _ in range(steps):
            await asyncio.sleep(0)
        finished = pushing.done()
        pushing.cancel()
        (outcome,) = await asyncio.gather(pushing, return_exceptions=True)
        assert finished or isinstance(outcome, asyncio.CancelledError), steps
        steps += 1 + steps // 10  # the answers of the server take many steps
    await store.close()


async def test_uncommitted_items_are_never_pushed(shop, ask):
    store = await shop.write("w1", [1], [2], [3])
    (part,) = shop.ranges
    shop.ranges[part].pop(1)
    await shop.output().merge(shop.context, shop.ranges)
    assert await listed(ask) == [1, 3]
    await store.close()


async def test_a_stream_and_a_bounded_list(shop, ask):
    store = await shop.write("w1", list(range(50)))
    await shop.output("?maxlen=7").merge(shop.context, shop.ranges)
    assert await listed(ask) == list(range(43, 50))
    await ask.delete("shop:items", "shop:items:pushed")
    await shop.output("?type=stream").merge(shop.context, shop.ranges)
    entries = await ask.xrange("shop:items")
    assert [json.loads(fields[b"item"])["n"] for _, fields in entries] == list(range(50))
    await store.close()


async def test_many_large_items_are_pushed_in_blocks(shop, ask, monkeypatch):
    monkeypatch.setattr("skitter.store.redis_output._PUSH_BYTES", 64)
    pages = [[n] * 10 for n in range(30)] + [["x" * 1000], [7]]
    store = await shop.write("w1", *pages)
    await shop.output().merge(shop.context, shop.ranges)
    assert await listed(ask) == [n for page in pages for n in page]
    await store.close()


async def test_a_push_whose_answer_was_lost_is_not_done_twice(shop, ask, server, monkeypatch):
    monkeypatch.setattr("skitter.store.redis_output._PUSH_BYTES", 64)
    blocks, store = CommittedRanges.blocks, await shop.write("w1", *([n] for n in range(60)))
    async with Relay(server.port) as relay:

        def losing(self, size):
            for number, block in enumerate(blocks(self, size)):
                if number in {1, 3}:
                    relay.lose_next()
                yield block

        monkeypatch.setattr(CommittedRanges, "blocks", losing)
        output = shop.output(server=relay.url.removesuffix("/0"))
        with contextlib.suppress(StoreError):  # unless the client tries again by itself
            await output.emit(shop.context, shop.ranges)
        assert relay.lost >= 1
        monkeypatch.setattr(CommittedRanges, "blocks", blocks)
        await output.emit(shop.context, shop.ranges)
    assert await listed(ask) == list(range(60))
    await store.close()


async def test_a_fresh_job_pushes_its_parts_again(shop, ask):
    output = shop.output()
    store = await shop.write("w1", [1])
    await output.merge(shop.context, shop.ranges)
    await output.clear(shop.context)
    await output.merge(shop.context, shop.ranges)
    assert await listed(ask) == [1, 1]
    await store.close()


KINDS = [
    [{"n": 1, "kind": "book"}, {"n": 2, "kind": "film"}],
    [{"n": 3, "kind": "book"}],
    [{"n": 4, "kind": 7}],
]


@pytest.fixture(params=[False, True], ids=["one machine", "fleet"])
def keyed(request, shop, ask, monkeypatch):
    """Open an output whose key contains a field of the item, with the store that its workers use."""
    monkeypatch.setattr("skitter.store.redis_output._PUSH_BYTES", 64)  # several calls for each part
    shop.context = msgspec.structs.replace(shop.context, fleet=request.param)

    def open_keyed(options="", key="shop:%(kind)s:items"):
        output = open_output(f"{shop.server}/0/{key}{options}")
        return output, output.fleet_store() if request.param else output.store()

    return open_keyed


async def test_each_item_goes_once_to_the_key_that_its_fields_name(shop, ask, keyed):
    await ask.flushdb()
    output, store = keyed("?maxlen=5")
    await output.check(shop.context)
    await shop.write("w1", *KINDS, store=store)
    for _ in range(2):
        await output.merge(shop.context, shop.ranges)
        await keyed("?maxlen=5")[0].merge(shop.context, shop.ranges)  # another process
    found = {
        kind: [json.loads(item)["n"] for item in await ask.lrange(f"shop:{kind}:items", 0, -1)]
        for kind in ("book", "film", 7)
    }
    assert found == {"book": [1, 3], "film": [2], 7: [4]}
    await store.close()


async def test_a_serializer_of_the_user_writes_the_items(shop, ask, keyed):
    await ask.flushdb()
    items = [[{"n": 1, "raw": b"\x00\n\xff"}], [{"n": 2, "raw": b""}]]
    output, store = keyed("?serializer=pickle:dumps&type=stream", key="shop:items")
    await output.check(shop.context)
    await shop.write("w1", *items, store=store)
    await output.merge(shop.context, shop.ranges)
    await output.merge(shop.context, shop.ranges)
    entries = await ask.xrange("shop:items")
    assert [pickle.loads(fields[b"item"]) for _, fields in entries] == [page[0] for page in items]
    await store.close()


async def test_an_item_without_the_field_of_its_key_fails_its_page_only(shop, ask, keyed):
    await ask.flushdb()
    output, store = keyed()
    await store.open(StoreContext("shop", "w1", shop.context.directory))
    pages = [[{"kind": "book"}], [{"kind": "book"}, {"n": 1}], [{"kind": ["a", "b"]}], []]
    good, lacking, listed_field, empty = await store.write([ItemGroup(b"f" * 16, page) for page in pages])
    assert isinstance(lacking, GroupError)
    assert lacking.error.startswith("item 2 of the page: ")
    assert isinstance(listed_field, GroupError)
    assert empty is None
    await output.merge(shop.context, {good.part: [(good.start, good.end)]})
    assert await ask.llen("shop:book:items") == 1
    await store.close()


async def test_a_key_of_another_kind_delays_all_items_of_its_step(shop, ask, keyed, monkeypatch):
    await ask.flushdb()
    monkeypatch.setattr("skitter.store.redis_output._PUSH_BYTES", 1 << 18)
    output, store = keyed()
    await ask.set("shop:film:items", "a text")
    await shop.write("w1", KINDS[0], store=store)
    with pytest.raises(StoreError, match="shop:film:items is a string"):
        await output.merge(shop.context, shop.ranges)
    assert await ask.exists("shop:book:items") == 0
    await ask.delete("shop:film:items")
    await output.merge(shop.context, shop.ranges)
    assert [await ask.llen(f"shop:{kind}:items") for kind in ("book", "film")] == [1, 1]
    await store.close()


@pytest.mark.parametrize(
    ("target", "field"),
    [
        ("redis://h/items", "output"),
        ("redis://h/0/", "output"),
        ("redis://h/0/items?type=hash", "type"),
        ("redis://h/0/items?maxlen=0", "maxlen"),
        ("redis://h/0/items?colour=red", "colour"),
    ],
)
def test_an_invalid_address_is_refused(target, field):
    with pytest.raises(StoreError, match=re.escape(repr(target))) as refusal:
        open_output(target)
    assert refusal.value.field == field
    assert refusal.value.remedy


@pytest.mark.parametrize("name", ["json:nothing", "json", "json:__doc__", "no.such.module:dumps"])
def test_a_serializer_that_does_not_exist_is_refused(name):
    with pytest.raises(StoreError) as refusal:
        open_output(f"redis://h/0/items?serializer={name}")
    assert refusal.value.remedy


async def test_the_last_push_waits_no_longer_for_a_server_than_it_may(shop, free_port):
    """``test_store_outage`` shows that it waits at all."""
    await shop.write("w1", range(3))
    output = shop.output("?outage_timeout=0", f"redis://127.0.0.1:{free_port}")
    with pytest.raises(StoreError, match=r"127\.0\.0\.1") as refusal:
        await output.merge(shop.context, shop.ranges)
    assert "same command again" in refusal.value.remedy


async def test_an_unavailable_server_and_a_key_of_another_kind_are_reported_before_the_crawl(
    shop, ask, free_port
):
    with pytest.raises(StoreError, match=f"127.0.0.1:{free_port}"):
        await open_output(f"redis://127.0.0.1:{free_port}/0/k").check(shop.context)
    await ask.hset("shop:items", "a", "b")
    with pytest.raises(StoreError, match="hash") as refusal:
        await shop.output().check(shop.context)
    assert refusal.value.field == "type"
