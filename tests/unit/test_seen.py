"""Seen sets: exact, whatever their kind."""

import asyncio
import hashlib
import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skitter.frontier.embedded import seen as seen_sets
from skitter.frontier.embedded.journal import SqliteJournal
from skitter.frontier.embedded.seen import FOREVER, SHARDS, DiskSeen, MemorySeen, TimedSeen, load_runs

NOW = 1_000.0


def key(number: int) -> bytes:
    return hashlib.blake2b(str(number).encode(), digest_size=16).digest()


def all_keys(seen) -> list[tuple[bytes, float]]:
    return [pair for number in range(SHARDS) for pair in seen.sorted_shard(number)]


def test_a_key_is_known_from_its_addition_until_it_is_forgotten():
    for seen in (MemorySeen(), TimedSeen()):
        assert not seen.known(key(1), NOW)
        seen.add(key(1))
        seen.add(key(1))
        assert seen.known(key(1), 1e18)
        assert not seen.known(key(2), NOW)
        assert len(seen) == 1
        seen.forget(key(1))
        seen.forget(key(2))
        assert not seen.known(key(1), NOW)
        assert len(seen) == 0


def test_without_a_ttl_a_visit_changes_nothing():
    seen = MemorySeen()
    seen.add(key(1))
    seen.visited(key(1), NOW)
    assert seen.known(key(1), NOW + 1)


def test_a_visit_is_known_until_its_time_and_no_longer():
    seen = TimedSeen()
    seen.add(key(1))
    seen.visited(key(1), NOW)
    assert seen.known(key(1), NOW - 0.001)
    assert not seen.known(key(1), NOW)
    seen.add(key(1))
    assert seen.known(key(1), NOW)


@pytest.mark.parametrize("kind", [MemorySeen, TimedSeen])
def test_keys_come_sorted_and_can_be_loaded_again(kind):
    seen = kind()
    for number in range(1_000):
        seen.add(key(number))
    keys = [found for found, until in all_keys(seen)]
    assert keys == sorted(key(number) for number in range(1_000))
    again = kind()
    again.load(b"".join(keys))
    assert len(again) == 1_000
    assert all(again.known(key(number), NOW) for number in range(1_000))
    assert not again.known(key(1_000), NOW)


def test_timed_keys_keep_their_times():
    seen = TimedSeen()
    seen.load(key(1) + key(2), until=5.0)
    seen.add(key(3))
    assert dict(all_keys(seen)) == {key(1): 5.0, key(2): 5.0, key(3): FOREVER}


@pytest.fixture
async def journal(tmp_path):
    journal = SqliteJournal(tmp_path / "frontier.db", "process")
    await journal.open()
    yield journal
    await journal.close()


async def known(seen, *numbers, now=NOW) -> list[bool]:
    keys = [key(number) for number in numbers]
    await seen.prepare(keys)
    return [seen.known(one, now) for one in keys]


async def opened(journal, limit=1_000_000) -> DiskSeen:
    return DiskSeen(journal, await journal.read(lambda tables: load_runs(tables.file)), limit)


async def written(seen) -> None:
    """Write all keys in memory as a run."""
    keys, seen._fresh = seen._fresh, TimedSeen()
    seen.write(keys)
    await seen._writer


@pytest.fixture
def small_runs(monkeypatch):
    """Make every tenth change start a run."""
    monkeypatch.setattr(seen_sets, "MIN_RUN_SIZE", 10)
    monkeypatch.setattr(seen_sets, "KEYS_PER_STEP", 4)


async def test_keys_moved_to_disk_keep_their_times(journal):
    seen = TimedSeen()
    seen.add(key(1))
    seen.visited(key(2), NOW + 5)
    on_disk = await opened(journal)
    on_disk.write(seen)
    assert await known(on_disk, 1, 2, 3) == [True, True, False]
    await on_disk._writer
    assert await known(on_disk, 1, 2, 3) == [True, True, False]
    assert await known(on_disk, 1, 2, 3, now=NOW + 5) == [True, False, False]
    assert len(on_disk) == 2


async def test_runs_are_known_after_opening_again(journal):
    seen = await opened(journal)
    for number in (1, 2):
        seen.add(key(number))
    await written(seen)
    seen.forget(key(2))
    await written(seen)
    again = await opened(journal)
    assert await known(again, 1, 2, 3) == [True, False, False]


async def test_a_key_added_in_a_batch_is_known_in_the_rest_of_it(journal):
    seen = await opened(journal)
    await seen.prepare([key(1)])
    seen.add(key(1))
    assert seen.known(key(1), NOW)
    seen.forget(key(1))
    assert not seen.known(key(1), NOW)


async def test_a_key_that_was_found_in_the_file_can_be_forgotten(journal):
    seen = await opened(journal)
    seen.add(key(1))
    await written(seen)
    assert await known(seen, 1) == [True]
    await seen.prepare([key(1)])
    seen.forget(key(1))
    await written(seen)
    assert await known(seen, 1) == [False]


async def test_keys_that_leave_memory_while_a_batch_is_looked_up_stay_known(journal, monkeypatch):
    monkeypatch.setattr(seen_sets, "FOUND_KEYS", 3)
    seen = await opened(journal)
    for number in range(6):
        seen.add(key(number))
    await written(seen)
    batch = [*range(6), *range(10, 20)]
    await seen.prepare([key(number) for number in batch])
    for number in range(10, 20):
        assert not seen.known(key(number), NOW)
        seen.add(key(number))
    assert all(seen.known(key(number), NOW) for number in batch)


async def test_runs_stay_few_and_lose_nothing(journal, small_runs):
    seen = await opened(journal, 10)
    for number in range(600):
        assert await known(seen, number) == [False]
        seen.add(key(number))
        await seen.write_if_large()
        if seen._writer is not None and number % 3:
            await seen._writer
    if seen._writer is not None:
        await seen._writer
    assert all(await known(seen, *range(600)))
    assert 1 < len(seen._runs) < 8
    assert sum(run.amount for run in seen._runs) + len(seen._fresh) == 600
    blocks = await journal.read(
        lambda tables: tables.file.execute("SELECT DISTINCT id >> 32 FROM seen_blocks").fetchall()
    )
    assert {number for (number,) in blocks} == {run.number for run in seen._runs}


async def test_new_keys_wait_for_a_run_that_is_far_behind(journal, small_runs):
    seen = await opened(journal, 10)
    for number in range(1_000):
        seen.add(key(number))
        await seen.write_if_large()
        assert len(seen._fresh) <= 20
    assert all(await known(seen, *range(1_000)))
    await seen.stop()


async def test_a_run_that_was_not_finished_is_removed_and_its_keys_are_in_the_log(journal, small_runs):
    seen = await opened(journal)
    for number in range(50):
        seen.add(key(number))
    keys, seen._fresh = seen._fresh, TimedSeen()
    seen.write(keys)
    stopping = asyncio.ensure_future(seen.stop())
    await stopping
    assert await opened(journal) is not None
    count = await journal.read(lambda tables: (tables.count("seen_blocks"), tables.count("seen_runs")))
    assert count == (0, 0)


async def test_keys_of_a_run_that_cannot_be_written_stay_known(journal, monkeypatch):
    seen = await opened(journal)
    seen.add(key(1))

    def fail(*_):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(seen_sets.RunWriter, "step", fail)
    await written(seen)
    seen.add(key(2))
    assert await known(seen, 1, 2, 3) == [True, True, False]
    monkeypatch.undo()
    await written(seen)
    assert await known(await opened(journal), 1, 2, 3) == [True, True, False]


numbers = st.integers(0, 40)
changes = st.lists(
    st.tuples(st.sampled_from(["add", "visited", "forget", "look", "write"]), st.lists(numbers, max_size=8)),
    max_size=25,
)


@settings(max_examples=40, deadline=None)
@given(changes)
async def test_a_seen_set_on_disk_answers_like_one_in_memory(tmp_path_factory, changes):
    journal = SqliteJournal(tmp_path_factory.mktemp("seen") / "frontier.db", "process")
    await journal.open()
    found, seen_sets.FOUND_KEYS = seen_sets.FOUND_KEYS, 5
    try:
        memory, disk = TimedSeen(), await opened(journal)
        for change, touched in changes:
            if change == "write" and disk._writer is None:
                keys, disk._fresh = disk._fresh, TimedSeen()
                disk.write(keys)
            await disk.prepare([key(number) for number in touched])
            for number in touched:
                assert disk.known(key(number), NOW) == memory.known(key(number), NOW)
                for seen in (memory, disk):
                    if change == "visited":
                        seen.add(key(number))
                        seen.visited(key(number), NOW + number - 20)
                    elif change in ("add", "forget"):
                        getattr(seen, change)(key(number))
        everything = range(41)
        assert await known(disk, *everything) == [memory.known(key(number), NOW) for number in everything]
        await disk.stop()
    finally:
        seen_sets.FOUND_KEYS = found
        await journal.close()


def test_a_key_is_found_only_at_its_place_in_a_block():
    first, second = b"ab" * 8, b"ba" * 8
    block = first + second
    assert seen_sets._index_of(second, block) == 1
    assert seen_sets._index_of(b"ba" * 8, first + first) is None
    assert seen_sets._index_of(first, block) == 0
    assert seen_sets._index_of(b"x" * 16, block) is None
