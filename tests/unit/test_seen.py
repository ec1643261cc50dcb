"""Seen sets of all kinds: exact answers."""

import asyncio
import hashlib
import sqlite3

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skitter.errors import FrontierError
from skitter.frontier.embedded import runs as runs_module
from skitter.frontier.embedded import seen as seen_sets
from skitter.frontier.embedded.journal import SqliteJournal
from skitter.frontier.embedded.runs import FOREVER, SortedKeys, merge_keys
from skitter.frontier.embedded.seen import SHARDS, DiskSeen, MemorySeen
from skitter.frontier.options import FrontierSettings

NOW = 1_000.0


def key(number: int) -> bytes:
    return hashlib.blake2b(str(number).encode(), digest_size=16).digest()


def test_a_key_is_known_from_its_addition_until_it_is_forgotten():
    seen = MemorySeen()
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


def test_without_a_ttl_a_visit_changes_nothing(tmp_path):
    journal = SqliteJournal(tmp_path / "frontier.db", "process")
    seen = seen_sets.SeenSet(journal, journal, FrontierSettings())
    seen.keys.add(key(1))
    seen.visit(key(1), NOW)
    assert seen.keys.known(key(1), 1e18)


def test_a_visit_is_known_until_its_time_and_no_longer():
    seen = MemorySeen()
    seen.add(key(1))
    seen.visited(key(1), NOW)
    assert seen.known(key(1), NOW - 0.001)
    assert not seen.known(key(1), NOW)
    seen.add(key(1))
    assert seen.known(key(1), NOW)


def test_keys_can_be_loaded_again():
    keys = [key(number) for number in range(1_000)]
    seen = MemorySeen()
    seen.load(b"".join(keys))
    assert len(seen) == 1_000
    assert not any(seen.unknown(keys, NOW))
    assert seen.unknown([key(1_000)], NOW) == [True]
    assert len(seen.shards) == SHARDS
    assert all(seen.shards[one[0]].until(one) == FOREVER for one in keys)


def test_keys_that_expired_are_new_again():
    seen = MemorySeen()
    seen.visited(key(1), NOW)
    seen.visited(key(2), NOW + 1)
    keys = [key(1), key(2), key(3)]
    assert seen.unknown(keys, NOW) == [True, False, True]
    assert seen.add_new(keys, NOW) == [0, 2]
    assert [seen.shards[one[0]].until(one) for one in keys] == [FOREVER, NOW + 1, FOREVER]


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


async def opened(journal, *, ttl=None) -> DiskSeen:
    """Open the keys in the file, as a job does after its seen set has outgrown memory."""
    seen = seen_sets.SeenSet(journal, journal, FrontierSettings(visited_ttl=ttl))
    await seen.restore()
    if not isinstance(seen.keys, DiskSeen):
        return DiskSeen(journal, [], 0, seen.keys.shards)
    return seen.keys


def add(journal, seen, *numbers) -> None:
    for number in numbers:
        seen.add(key(number))
        journal.append("log_seen", ("+", NOW, key(number)))


def forget(journal, seen, number) -> None:
    seen.forget(key(number))
    journal.append("log_seen", ("-", NOW, key(number)))


async def moved(seen) -> None:
    """Move all keys in memory to runs."""
    seen._limit = seen._most = 0
    await seen.write_if_large()
    if seen._mover is not None:
        await seen._mover


def runs_of(seen):
    return [run for shard in seen._shards for run in shard.runs]


@pytest.fixture
def short_steps(monkeypatch):
    monkeypatch.setattr(seen_sets, "MIN_MEMORY", 10)
    monkeypatch.setattr(seen_sets, "KEYS_PER_STEP", 4)
    monkeypatch.setattr(runs_module, "KEYS_PER_STEP", 4)
    monkeypatch.setattr(runs_module, "KEYS_PER_BLOCK", 2)


@pytest.fixture(params=["compiled", "python"])
def each_implementation(request, monkeypatch):
    """Run a test with the compiled functions, if there are any, and with those in Python."""
    if request.param == "python":
        monkeypatch.setattr(runs_module, "merge", runs_module.python_merge)
        monkeypatch.setattr(runs_module, "split", runs_module.python_split)
        monkeypatch.setattr(runs_module, "KeyFilter", runs_module.PythonKeyFilter)
        monkeypatch.setattr(seen_sets, "possible_keys", runs_module.python_possible_keys)


@pytest.mark.usefixtures("each_implementation")
async def test_keys_keep_their_times_in_runs(journal):
    keys = MemorySeen()
    keys.add(key(1))
    keys.visited(key(2), NOW + 5)
    seen = DiskSeen(journal, [], 0, keys.shards)
    assert await known(seen, 1, 2, 3) == [True, True, False]
    await moved(seen)
    assert await known(seen, 1, 2, 3) == [True, True, False]
    assert await known(seen, 1, 2, 3, now=NOW + 5) == [True, False, False]
    assert len(seen) == 2


@pytest.mark.usefixtures("each_implementation")
async def test_runs_are_known_after_opening_again(journal):
    seen = await opened(journal)
    add(journal, seen, 1, 2)
    await moved(seen)
    forget(journal, seen, 2)
    await moved(seen)
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
    add(journal, seen, 1)
    await moved(seen)
    assert await known(seen, 1) == [True]
    await seen.prepare([key(1)])
    forget(journal, seen, 1)
    await moved(seen)
    assert await known(seen, 1) == [False]


async def test_a_key_of_the_older_generation_of_found_keys_is_forgotten(journal, monkeypatch):
    monkeypatch.setattr(seen_sets, "FOUND_KEYS", 2)
    seen = await opened(journal)
    add(journal, seen, 1, 2, 3)
    await moved(seen)
    for number in (1, 2, 3):
        assert await known(seen, number) == [True]
    forget(journal, seen, 3)  # the only key of the younger generation
    forget(journal, seen, 1)
    add(journal, seen, 4)
    await moved(seen)
    assert await known(seen, 4) == [True]  # so that there is a younger generation again
    assert await known(seen, 1, 2, 3) == [False, True, False]


async def test_keys_that_leave_memory_while_a_batch_is_looked_up_stay_known(journal, monkeypatch):
    monkeypatch.setattr(seen_sets, "FOUND_KEYS", 3)
    seen = await opened(journal)
    add(journal, seen, *range(6))
    await moved(seen)
    batch = [*range(6), *range(10, 20)]
    await seen.prepare([key(number) for number in batch])
    for number in range(10, 20):
        assert not seen.known(key(number), NOW)
        seen.add(key(number))
    assert all(seen.known(key(number), NOW) for number in batch)


@pytest.mark.usefixtures("each_implementation")
async def test_runs_stay_few_and_lose_nothing(journal, short_steps):
    seen = await opened(journal)
    for number in range(8_000):
        if number % 100 == 0:
            assert await known(seen, number) == [False]
        add(journal, seen, number)
        if number % 5 == 0:
            await seen.write_if_large()
            if seen._mover is not None and number % 3:
                await asyncio.sleep(0)
    await moved(seen)
    assert all(await known(seen, *range(8_000)))
    assert max(len(shard.runs) for shard in seen._shards) in range(2, 8)
    assert sum(run.amount for run in runs_of(seen)) == len(seen) == 8_000
    blocks = await journal.read(
        lambda tables: tables.file.execute("SELECT DISTINCT id >> 32 FROM seen_blocks").fetchall()
    )
    assert {number for (number,) in blocks} == {run.number for run in runs_of(seen)}
    rows = await journal.read(lambda tables: list(tables.seen_log()))
    assert [kind for _, kind, *_ in rows] == ["m"], "no keys are in both the log and the runs"
    assert all(await known(await opened(journal), *range(8_000)))


async def test_new_keys_wait_for_runs_that_are_far_behind(journal, short_steps):
    seen = await opened(journal)
    for number in range(2_000):
        seen.add(key(number))
        await seen.write_if_large()
        assert sum(shard.in_memory for shard in seen._shards) <= 60
    assert all(await known(seen, *range(2_000)))
    await seen.stop()


async def test_too_many_keys_of_an_earlier_run_are_moved_before_new_ones_are_added(journal, short_steps):
    journal.append("log_seen", ("+", NOW, b"".join(map(key, range(2_000)))))
    seen = await opened(journal)
    async with asyncio.timeout(30):
        await seen.write_if_large()
    assert sum(shard.in_memory for shard in seen._shards) <= 60
    assert all(await known(seen, *range(2_000)))
    await seen.stop()


async def test_no_more_is_written_at_once_than_was_added(journal, short_steps):
    """A page must not pay for all keys that are in memory."""
    keys = MemorySeen()
    keys.load(b"".join(map(key, range(50_000))))
    seen = DiskSeen(journal, [], 10_000, keys.shards)
    await seen.write_if_large()
    for added in range(1, 40):
        add(journal, seen, 50_000 + added)
        await seen.write_if_large()
        for _ in range(20):
            await journal.peek(lambda tables: None)
        written = sum(run.amount for run in runs_of(seen))
        assert written <= added * seen_sets.WRITES_PER_KEY + max(len(shard) for shard in seen._shards)
    assert written > 0
    await seen.stop()


@pytest.mark.usefixtures("each_implementation")
async def test_a_shard_whose_move_was_not_finished_is_in_the_log_and_the_others_in_runs(journal, short_steps):
    seen = await opened(journal)
    add(journal, seen, *range(3_000))
    seen._most = 0
    writing = asyncio.ensure_future(seen.write_if_large())
    while len(runs_of(seen)) < 20:
        await asyncio.sleep(0)
    await seen.stop()
    await writing
    finished = len(runs_of(seen))
    assert 20 <= finished < SHARDS
    again = await opened(journal)
    assert len(runs_of(again)) == finished
    assert len(again) == 3_000, "each key is in memory or in a run"
    assert sum(shard.in_memory for shard in again._shards) == 3_000 - sum(
        run.amount for run in runs_of(again)
    )
    blocks = await journal.read(
        lambda tables: tables.file.execute("SELECT DISTINCT id >> 32 FROM seen_blocks").fetchall()
    )
    assert {number for (number,) in blocks} == {run.number for run in runs_of(again)}
    await moved(again)
    assert all(await known(again, *range(3_000)))
    assert len(runs_of(again)) == SHARDS, "no shard was written twice"


async def test_keys_of_a_run_that_cannot_be_written_stay_known(journal, monkeypatch):
    seen = await opened(journal)
    add(journal, seen, 1)

    def fail(*_):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(seen_sets.RunWriter, "step", fail)
    await moved(seen)
    add(journal, seen, 2)
    assert await known(seen, 1, 2, 3) == [True, True, False]
    monkeypatch.undo()
    await moved(seen)
    assert len(runs_of(seen)) == 2
    assert await known(await opened(journal), 1, 2, 3) == [True, True, False]


def test_later_sources_of_a_merge_prevail():
    keys = sorted(map(key, range(4)))
    older = SortedKeys(b"".join(keys[:3]), {keys[0]: 5.0, keys[1]: 6.0})
    newer = SortedKeys(b"".join(keys[1:]), {keys[2]: 0.0})
    assert merge_keys([older, newer]) == (b"".join(keys), {keys[0]: 5.0, keys[2]: 0.0})


numbers = st.integers(0, 40)
changes = st.lists(
    st.tuples(
        st.sampled_from(["add", "visited", "forget", "look", "move", "reopen"]), st.lists(numbers, max_size=8)
    ),
    max_size=25,
)


@pytest.mark.usefixtures("each_implementation")
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(changes)
async def test_a_seen_set_on_disk_answers_like_one_in_memory(tmp_path_factory, changes):
    journal = SqliteJournal(tmp_path_factory.mktemp("seen") / "frontier.db", "process")
    await journal.open()
    found, seen_sets.FOUND_KEYS = seen_sets.FOUND_KEYS, 5
    try:
        memory, disk = MemorySeen(), await opened(journal, ttl=50.0)
        for change, touched in changes:
            if change == "move" and disk._mover is None:
                disk._limit = 0
                await disk.write_if_large()
            elif change == "reopen":
                await disk.stop()
                disk = await opened(journal, ttl=50.0)
            await disk.prepare([key(number) for number in touched])
            for number in touched:
                assert disk.known(key(number), NOW) == memory.known(key(number), NOW)
                for seen in (memory, disk):
                    if change == "visited":
                        seen.add(key(number))
                        seen.visited(key(number), NOW + number - 20)
                    elif change in ("add", "forget"):
                        getattr(seen, change)(key(number))
                if change == "visited":
                    journal.append("log_seen", ("u", NOW + number - 20, key(number)))
                elif change in ("add", "forget"):
                    journal.append("log_seen", ("+" if change == "add" else "-", NOW, key(number)))
        everything = range(41)
        assert await known(disk, *everything) == [memory.known(key(number), NOW) for number in everything]
        await disk.stop()
    finally:
        seen_sets.FOUND_KEYS = found
        await journal.close()


async def test_a_key_that_only_seemed_to_be_in_a_run_is_looked_up_once(journal, monkeypatch):
    looked_up = []
    find_keys = seen_sets.find_keys

    def find(file, unsure):
        looked_up.extend(one for one, _ in unsure)
        return find_keys(file, unsure)

    monkeypatch.setattr(seen_sets, "find_keys", find)
    seen = await opened(journal)
    add(journal, seen, *range(300))
    await moved(seen)
    similar = key(1)[:7] + b"different"
    for _ in range(2):
        await seen.prepare([similar])
        assert seen.unknown([similar], NOW) == [True]
    assert looked_up == [similar]
    seen.add(similar)
    journal.append("log_seen", ("+", NOW, similar))
    await moved(seen)
    await seen.prepare([similar])
    assert seen.known(similar, NOW)


async def test_a_run_with_a_damaged_filter_is_explained(journal):
    seen = await opened(journal)
    add(journal, seen, 1)
    await moved(seen)
    await journal.peek(lambda tables: tables.file.execute("UPDATE seen_runs SET filter = x'00'"))
    with pytest.raises(FrontierError, match="damaged"):
        await opened(journal)


def test_a_key_is_found_only_at_its_place_in_a_block():
    first, second = b"ab" * 8, b"ba" * 8
    block = first + second
    assert runs_module._index_of(second, block) == 1
    assert runs_module._index_of(b"ba" * 8, first + first) is None
    assert runs_module._index_of(first, block) == 0
    assert runs_module._index_of(b"x" * 16, block) is None
