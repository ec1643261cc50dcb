"""The storage of the service: one contract for the key-value store and for keyed logs, on every kind of store."""

import asyncio
import uuid

import msgspec
import pytest

from services.redis_cluster import running_cluster
from services.redis_servers import running
from skitter.errors import FrontierError, SkitterError
from skitter.service.config import ServiceConfig
from skitter.service.items import read_items
from skitter.service.models import FORMAT, JobRecord, Records

STORES = {
    "sqlite": lambda: "sqlite:",
    "valkey": lambda: running("valkey").url.replace("/0", "/8"),
    "redis": lambda: running("redis").url.replace("/0", "/8"),
    "valkey-cluster": lambda: running_cluster("valkey").url,
}


@pytest.fixture(params=STORES)
def config(request, tmp_path):
    return ServiceConfig(tmp_path, STORES[request.param]())


@pytest.fixture
async def store(config):
    store = config.key_value_store()
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def kind():
    return f"kind-{uuid.uuid4().hex}"


@pytest.fixture
async def items(config):
    log = config.items(f"job.{uuid.uuid4().hex}")
    yield log
    await log.erase()
    await log.close()


# --- the key-value store -------------------------------------------------------------------------------------


async def test_a_record_changes_only_if_it_is_as_it_was_read(store, kind):
    swap = store.compare_and_swap
    assert await store.get(kind, "a") is None
    assert await swap(kind, "a", None, b"1")
    assert not await swap(kind, "a", None, b"2")
    assert not await swap(kind, "a", b"0", b"2")
    assert await swap(kind, "a", b"1", b"2\0\xff")
    assert await store.get(kind, "a") == b"2\0\xff"
    assert await swap(kind, "b", None, b"")
    assert await store.all(kind) == {"a": b"2\0\xff", "b": b""}
    assert not await swap(kind, "a", b"1", None)
    assert await swap(kind, "a", b"2\0\xff", None)
    assert await swap(kind, "b", b"", None)
    assert await store.all(kind) == {}


async def test_the_size_of_a_record_is_its_length(store, kind):
    assert await store.size(kind, "a") == 0
    await store.compare_and_swap(kind, "a", None, b"1\0" * 5000)
    assert await store.size(kind, "a") == 10_000
    assert await store.size(kind, "b") == 0


async def test_a_repeated_change_succeeds_again(store, kind):
    for _ in range(2):
        assert await store.compare_and_swap(kind, "a", None, b"1")
    for _ in range(2):
        assert await store.compare_and_swap(kind, "a", b"1", None)


async def test_one_of_many_concurrent_changes_wins(store, kind):
    results = await asyncio.gather(
        *(store.compare_and_swap(kind, "a", None, b"%d" % number) for number in range(20))
    )
    assert sum(results) == 1


async def test_a_lease_belongs_to_one_owner_until_it_expires(store, kind):
    assert await store.acquire_lease(kind, "one", 3600.0)
    assert not await store.acquire_lease(kind, "two", 60)
    assert await store.acquire_lease(kind, "one", 0.5)
    async with asyncio.timeout(20):
        while not await store.acquire_lease(kind, "two", 0.01):
            await asyncio.sleep(0.05)


async def test_the_status_of_a_node_expires_and_can_be_removed(store, kind):
    async def announced():
        return {name: status for name, status in (await store.nodes()).items() if name.startswith(kind)}

    await store.announce(f"{kind}-b", b"old", 60)
    await store.announce(f"{kind}-b", b"new", 60)
    await store.announce(f"{kind}-a", b"brief", 0.1)
    async with asyncio.timeout(20):
        while await announced() != {f"{kind}-b": b"new"}:
            await asyncio.sleep(0.05)
    await store.announce(f"{kind}-b", b"", 0)
    assert await announced() == {}


async def test_a_record_of_another_format_is_refused(store):
    name = uuid.uuid4().hex
    for version in (FORMAT - 1, FORMAT + 1):
        data = msgspec.json.encode(JobRecord(name=name, format=version))
        await store.compare_and_swap("jobs", name, None, data)
        with pytest.raises(FrontierError) as caught:
            await Records(store).job(name)
        assert (caught.value.field, bool(caught.value.remedy)) == ("format", True)
        await store.compare_and_swap("jobs", name, data, None)


# --- keyed logs ----------------------------------------------------------------------------------------------


async def test_a_known_key_keeps_its_position_and_an_empty_entry_removes_it(items):
    await items.put([("a", b"1"), ("b", b"2"), ("c", b"3")])
    await items.put([("a", b"1 again"), ("b", b"")])
    await items.put([("never", b"")])
    (first, _), (third, _) = rows = await items.read(0, 10)
    assert [data for _, data in rows] == [b"1 again", b"3"]
    assert third > first
    assert await items.read(first, 1) == [(third, b"3")], "a gap does not end the log"
    await items.put([("b", b"2 later")])
    assert [data for _, data in await items.read(0, 10)] == [b"1 again", b"3", b"2 later"]


async def test_a_group_is_a_part_of_the_log_with_the_same_positions(items):
    await items.put([("a", b"1"), ("b", b"2")])
    await items.put([("b", b"2"), ("c", b"3"), ("d", b"4")], "own")
    await items.put([("e", b"5")], "other")
    await items.put([("c", b"")])
    rows = await items.read(0, 10)
    assert [data for _, data in rows] == [b"1", b"2", b"4", b"5"]
    assert await items.read(0, 10, "own") == rows[1:3]
    assert await items.read(0, 1, "own") == rows[1:2]
    assert await items.read(rows[1][0], 1, "own") == rows[2:3]
    assert await items.read(0, 10, "none") == []
    await items.erase()
    for group in ("", "own", "other"):
        assert await items.read(0, 10, group) == []


async def test_entries_beyond_many_gaps_are_found(items):
    await items.put([(str(number), b"x") for number in range(1500)])
    await items.put([(str(number), b"") for number in range(1400)])
    assert len(await items.read(0, 50)) == 50
    assert len(await items.read(0, 1000)) == 100


async def test_items_are_read_page_by_page_from_any_position(items):
    lines = [b'"%d"' % number for number in range(700)]
    await items.put([(str(at), b"\n".join(lines[at : at + 3])) for at in range(0, 700, 3)])
    found, after = [], (0, 0)
    while True:
        page = await read_items(items, after, 7)
        found += [bytes(item) for item in page.items]
        if page.next is None:
            break
        number, _, index = page.next.partition(".")
        after = (int(number), int(index))
    assert found == lines


async def test_a_file_of_another_kind_is_an_error_of_skitter(tmp_path):
    config = ServiceConfig(tmp_path)
    path = tmp_path / "runs" / "job.x" / "items.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no database" * 1000)
    items = config.items("job.x")
    for call in (items.open(), items.put([("a", b"1")]), items.read(0, 1)):
        with pytest.raises(SkitterError):
            await call
    await items.close()
