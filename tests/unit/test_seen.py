"""Seen sets: exact, whatever their kind."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skitter.frontier.embedded import seen as seen_sets
from skitter.frontier.embedded.journal import SqliteJournal
from skitter.frontier.embedded.seen import FOREVER, DiskSeen, MemorySeen, TimedSeen, move_to_disk

NOW = 1_000.0


def key(number: int) -> bytes:
    return hashlib.blake2b(str(number).encode(), digest_size=16).digest()


def all_keys(seen) -> list[tuple[bytes, float]]:
    return [pair for shard in seen.sorted_shards() for pair in shard]


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


async def test_keys_moved_to_disk_keep_their_times(journal):
    seen = TimedSeen()
    seen.add(key(1))
    seen.visited(key(2), NOW + 5)
    on_disk = await move_to_disk(seen, journal)
    assert await known(on_disk, 1, 2, 3) == [True, True, False]
    assert await known(on_disk, 1, 2, 3, now=NOW + 5) == [True, False, False]
    assert len(on_disk) == 2


async def test_keys_on_disk_are_known_after_opening_again(journal):
    seen = await DiskSeen.open(journal)
    seen.add(key(1))
    seen.add(key(2))
    seen.forget(key(2))
    again = await DiskSeen.open(journal)
    assert await known(again, 1, 2, 3) == [True, False, False]


async def test_a_key_added_in_a_batch_is_known_in_the_rest_of_it(journal):
    seen = await DiskSeen.open(journal)
    await seen.prepare([key(1)])
    seen.add(key(1))
    assert seen.known(key(1), NOW)
    seen.forget(key(1))
    assert not seen.known(key(1), NOW)


async def test_keys_that_leave_memory_while_a_batch_is_looked_up_stay_known(journal, monkeypatch):
    monkeypatch.setattr(seen_sets, "RECENT_KEYS", 3)
    seen = await DiskSeen.open(journal)
    for number in range(6):
        seen.add(key(number))
    batch = [*range(6), *range(10, 20)]
    await seen.prepare([key(number) for number in batch])
    for number in range(10, 20):
        assert not seen.known(key(number), NOW)
        seen.add(key(number))
    assert all(seen.known(key(number), NOW) for number in batch)


async def test_a_full_filter_is_rebuilt(journal, monkeypatch):
    monkeypatch.setattr(seen_sets, "MIN_FILTER_CAPACITY", 10)
    seen = await DiskSeen.open(journal)
    for number in range(500):
        assert await known(seen, number) == [False]
        seen.add(key(number))
    assert all(await known(seen, *range(500)))
    assert seen._capacity >= 500


numbers = st.integers(0, 40)
changes = st.lists(
    st.tuples(st.sampled_from(["add", "visited", "forget", "look"]), st.lists(numbers, max_size=8)),
    max_size=25,
)


@settings(max_examples=40, deadline=None)
@given(changes)
async def test_a_seen_set_on_disk_answers_like_one_in_memory(tmp_path_factory, changes):
    journal = SqliteJournal(tmp_path_factory.mktemp("seen") / "frontier.db", "process")
    await journal.open()
    recent, seen_sets.RECENT_KEYS = seen_sets.RECENT_KEYS, 5
    try:
        memory, disk = TimedSeen(), await DiskSeen.open(journal)
        for change, touched in changes:
            await disk.prepare([key(number) for number in touched])
            for number in touched:
                assert disk.known(key(number), NOW) == memory.known(key(number), NOW)
                for seen in (memory, disk):
                    if change == "visited":
                        seen.add(key(number))
                        seen.visited(key(number), NOW + number - 20)
                    elif change != "look":
                        getattr(seen, change)(key(number))
        everything = range(41)
        assert await known(disk, *everything) == [memory.known(key(number), NOW) for number in everything]
    finally:
        seen_sets.RECENT_KEYS = recent
        await journal.close()
