"""The log of a run on every store of the service: ordered, bounded, without duplicates, and removed when it is erased."""

import asyncio
import shutil
import sqlite3
import uuid
from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.redis_cluster import running_cluster
from services.redis_servers import RedisServer, running
from skitter.errors import SkitterError, StoreError
from skitter.service.config import ServiceConfig
from skitter.service.storage import ENTRY_OVERHEAD
from skitter.service.storage.sqlite import SqliteAppendLog

STORES = {
    "sqlite": lambda: "sqlite:",
    "valkey": lambda: running("valkey").url,
    "redis": lambda: running("redis").url,
    "valkey-cluster": lambda: running_cluster("valkey").url,
}
SHARED = [name for name in STORES if name != "sqlite"]  # a file is deleted with its folder


@pytest.fixture(params=STORES)
def config(request, tmp_path):
    return ServiceConfig(tmp_path, STORES[request.param](), log_size=1000)


@pytest.fixture
async def open_log(config):
    """Open the log of a run as a node does: ``log = open_log(node)``."""
    opened, run = [], f"job.{uuid.uuid4().hex}"

    def start(node="one", **changes):
        changed = ServiceConfig(config.folder, config.store, **{"log_size": config.log_size, **changes})
        opened.append(changed.log(run, node))
        return opened[-1]

    yield start
    await opened[0].erase()
    for log in opened:
        await log.close()


async def all_of(log, after=0, limit=3):
    found = []
    while rows := await log.read(after, limit):
        found += rows
        after = rows[-1][0]
    return found


async def test_lines_are_read_in_order_page_by_page(open_log):
    log = open_log()
    assert await log.read(0, 10) == []
    await log.append([b"a", b"b", b"c"], 1)
    await log.append([b"d"], 2)
    other = open_log("two")
    assert await other.read(0, 10) == [(1, b"a"), (2, b"b"), (3, b"c"), (4, b"d")]
    assert await other.read(2, 1) == [(3, b"c")]
    assert await other.read(4, 10) == []
    assert await other.read(2**53 - 1, 10) == []
    await other.append([b"e"], 1)
    assert await all_of(log, limit=2) == [(1, b"a"), (2, b"b"), (3, b"c"), (4, b"d"), (5, b"e")]


async def test_the_oldest_lines_are_removed_with_their_numbers(open_log):
    log = open_log()
    for number in range(1, 101):
        await log.append([b"%04d" % number], number)
    kept = await all_of(log)
    most = 1000 // (4 + ENTRY_OVERHEAD)
    assert kept == [(number, b"%04d" % number) for number in range(101 - most, 101)]
    assert await log.read(5, 1) == kept[:1]
    log = open_log("after a restart")
    await log.append([b"later"], 101)
    assert (await all_of(log))[-1] == (101, b"later")
    assert sum(len(line) + ENTRY_OVERHEAD for _, line in await all_of(log)) <= 1000


async def test_a_line_larger_than_the_limit_is_kept_alone(open_log):
    log = open_log()
    await log.append([b"a", b"b" * 5000], 1)
    assert await all_of(log) == [(2, b"b" * 5000)]
    await log.append([b"c"], 2)
    assert await all_of(log) == [(3, b"c")]


async def test_lines_with_any_bytes_are_kept(open_log):
    log = open_log()
    lines = [b"", b"\0\xff\n", "ü".encode(), b"x" * 300]
    await log.append(lines, 1)
    assert [line for _, line in await all_of(log)] == lines


async def test_nodes_that_write_at_once_lose_nothing_of_each_other(open_log):
    logs = [open_log(name, log_size=100_000) for name in ("one", "two", "three")]

    async def write(log, name):
        for number in range(1, 41):
            await log.append([f"{name}{number}.{part}".encode() for part in range(3)], number)

    await asyncio.gather(*(write(log, name) for log, name in zip(logs, "abc", strict=True)))
    kept = await all_of(logs[0], limit=50)
    assert [number for number, _ in kept] == list(range(1, 361))
    for name in "abc":
        own = [line.decode() for _, line in kept if line.startswith(name.encode())]
        assert own == [f"{name}{number}.{part}" for number in range(1, 41) for part in range(3)]


@pytest.mark.parametrize("config", SHARED, indirect=True)
async def test_a_call_whose_answer_was_lost_is_repeated_without_doubling(open_log):
    log = open_log()
    await log.append([b"a"], 7)
    await log.append([b"a"], 7)
    await open_log("two").append([b"b"], 7)
    assert [line for _, line in await all_of(log)] == [b"a", b"b"]


@pytest.mark.parametrize("config", SHARED, indirect=True)
async def test_erased_records_are_removed_and_erasing_may_be_repeated(open_log):
    log = open_log()
    await log.append([b"a"] * 50, 1)
    for _ in range(2):
        await log.erase()
        assert await log.read(0, 10) == []
    await log.append([b"anew"], 1)
    assert await log.read(0, 10) == [(1, b"anew")]


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(calls=st.lists(st.lists(st.binary(max_size=400), min_size=1, max_size=6), max_size=12))
async def test_any_calls_keep_the_same_items_as_a_plain_list(config, calls):
    log = config.log(f"job.{uuid.uuid4().hex}", "one")
    kept, number = [], 0
    for call, lines in enumerate(calls, 1):
        await log.append(lines, call)
        for line in lines:
            number += 1
            kept.append((number, line))
        while len(kept) > 1 and sum(len(line) + ENTRY_OVERHEAD for _, line in kept) > config.log_size:
            kept.pop(0)
    assert await all_of(log) == kept
    await log.erase()
    await log.close()


# --- full and unavailable stores -----------------------------------------------------------------------------


async def test_a_full_disk_raises_a_skitter_error_until_there_is_space(tmp_path):
    log = ServiceConfig(tmp_path, log_size=10**6).log("job.full")
    await log.append([b"first"], 1)
    log._file._db.execute("PRAGMA max_page_count = 4")
    with pytest.raises(SkitterError, match="database or disk is full"):
        for number in range(2, 50):
            await log.append([b"x" * 1000], number)
    rows = await log.read(0, 100)
    assert rows[0] == (1, b"first")
    await log.append([b"again"], 60)  # the file was opened again, without the bound
    assert await log.read(rows[-1][0], 10) == [(rows[-1][0] + 1, b"again")]
    await log.close()


async def test_an_unwritable_folder_raises_an_error_until_it_is_writable(tmp_path):
    config = ServiceConfig(tmp_path)
    config.logs.write_text("a file where a folder should be")
    log = config.log("job.refused")
    with pytest.raises(StoreError):
        await log.append([b"x"], 1)
    config.logs.unlink()
    await log.append([b"x"], 2)
    assert await log.read(0, 10) == [(1, b"x")]
    await log.close()


async def test_a_foreign_file_raises_a_skitter_error(tmp_path):
    config = ServiceConfig(tmp_path)
    config.logs.mkdir()
    (config.logs / "job.x.log").write_bytes(b"no database" * 1000)
    log = config.log("job.x")
    for call in (log.append([b"x"], 1), log.read(0, 1)):
        with pytest.raises(SkitterError):
            await call
    await log.close()


async def test_a_reader_beside_a_writer_reads_only_whole_calls(tmp_path):
    log = ServiceConfig(tmp_path).log("job.x")
    await log.append([b"a"], 1)
    writing = sqlite3.connect(tmp_path / "logs" / "job.x.log", isolation_level=None)
    writing.execute("BEGIN IMMEDIATE")
    writing.execute("INSERT INTO entries (data) VALUES ('b')")
    assert await log.read(0, 10) == [(1, b"a")]
    writing.execute("ROLLBACK")
    writing.close()
    await log.close()


@pytest.mark.parametrize("kind", ["valkey"])
async def test_a_full_or_unavailable_server_refuses_at_once_and_takes_lines_again(kind, tmp_path):
    server = RedisServer(kind).start()
    try:
        log = ServiceConfig(tmp_path, server.url).log("job.x", "one")
        await log.append([b"a"], 1)
        server.ask("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(SkitterError):
            await log.append([b"b"], 2)
        server.ask("CONFIG", "SET", "maxmemory", "0")
        await log.append([b"b"], 2)
        assert await log.read(0, 10) == [(1, b"a"), (2, b"b")]
        server.kill()
        with pytest.raises(SkitterError):
            await log.append([b"c"], 3)
        shutil.rmtree(server.folder / "appendonlydir", ignore_errors=True)
        server.start()
        await log.append([b"c"], 3)
        assert await log.read(0, 10) == [(1, b"c")]
        await log.close()
    finally:
        server.stop()


async def test_a_node_that_opens_a_new_file_waits_for_another_one(tmp_path):
    """SQLite's busy timeout does not cover the switch to a write-ahead log."""
    path = tmp_path / "items.log"
    log = SqliteAppendLog(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE other (x)")
        other.execute("BEGIN IMMEDIATE")
        writing = asyncio.create_task(log.append([b"a"], 1))
        done, _ = await asyncio.wait([writing], timeout=0.3)
        assert not done
        other.execute("COMMIT")
        await writing
    assert await all_of(log) == [(1, b"a")]
    await log.close()
