"""What only a frontier that keeps its queue heads in memory and the rest in a file can get wrong."""

import asyncio
import contextlib
import sqlite3

import pytest

from skitter.errors import FrontierError
from skitter.frontier.embedded import backlog, seen
from skitter.frontier.embedded.inspection import read_slots, read_stats
from skitter.frontier.stats import StatsDimension
from skitter.politeness import HostLimits

pytestmark = pytest.mark.parametrize("backend", ["sqlite"], indirect=True)


@pytest.fixture
def small_heads(monkeypatch):
    """Heads of two requests, so that nearly all wait in the file."""
    monkeypatch.setattr(backlog, "MIN_HEAD_SIZE", 2)
    monkeypatch.setattr(backlog, "MAX_HEAD_SIZE", 2)
    monkeypatch.setattr(backlog.Backlog, "read_ahead", lambda *_: None)


async def while_reading(job, backend, act):
    """Lease from the file, and let ``act`` happen between its reading and its answer."""
    journal = backend.owner._journal
    read = journal.read

    async def slow_read(query):
        answer = await read(query)
        if query.__qualname__.startswith("Backlog._read"):
            journal.read = read
            await act()
        return answer

    journal.read = slow_read
    return await job.lease(1)


async def leased_from_behind_the_head(job):
    """Lease a request whose place is, later, behind what its slot keeps in memory."""
    await job.add("early")
    early = await job.one()
    await job.add(*range(3), priority=5)
    await job.lease(2)
    return early


async def test_heads_come_from_the_file_in_order(start, small_heads):
    job = await start()
    await job.add(*range(50))
    assert await job.urls_left() == [f"{n}" for n in range(50)]


async def test_a_request_done_while_its_slot_is_read_does_not_come_back(start, backend, small_heads):
    job = await start()
    early = await leased_from_behind_the_head(job)
    leases = await while_reading(job, backend, lambda: job.done(early))
    while more := await job.lease():
        leases += more
    assert "early" not in {lease.url.rpartition("/")[2] for lease in leases}
    assert await job.counts() == {"leased": 3, "done": 1}


async def test_a_request_retried_while_its_slot_is_read_keeps_its_attempt(start, backend, small_heads):
    job = await start()
    early = await leased_from_behind_the_head(job)
    leases = await while_reading(job, backend, lambda: job.retry(early))
    while more := await job.lease():
        leases += more
    assert [lease.attempt for lease in leases if lease.url == early.url] == [1]
    assert await job.counts() == {"leased": 4}


async def test_what_is_released_or_added_while_a_slot_is_read_waits_once(start, backend, small_heads):
    job = await start()
    early = await leased_from_behind_the_head(job)

    async def act():
        await job.frontier.release([early.id])
        await job.add(*range(10, 16), priority=5)
        await job.add("top", "tip", priority=9)
        await job.add("low", priority=-9)

    leases = await while_reading(job, backend, act)
    while more := await job.lease():
        leases += more
    assert len({lease.url for lease in leases}) == len(leases) == 11


async def test_many_workers_at_once_get_each_request_once(start, small_heads):
    job = await start()
    hosts = [f"h{n}.test" for n in range(5)]
    for host in hosts:
        await job.add(*range(40), host=host)

    async def work(name):
        while leases := await job.lease(3, name):
            *finished, last = leases
            await job.frontier.release([last.id])
            await job.done(*finished, *await job.lease(1, name))

    await asyncio.gather(*(work(f"w{n}") for n in range(4)))
    assert await job.counts() == {"done": 200}


async def test_a_value_that_no_file_can_hold_is_an_error_and_not_an_endless_wait(job, backend):
    await job.add("kept")
    with pytest.raises(FrontierError, match="cannot store a value"):
        await backend.owner.add(job.entries("bad", priority=2**64))
    await job.kill()
    assert await job.counts() == {"queued": 1}


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")])
async def test_a_write_without_memory_is_an_error_for_all_who_wait_and_not_an_endless_wait(
    job, backend, monkeypatch, error
):
    await job.add("kept")

    def fail(*_):
        raise error

    monkeypatch.setattr(backend.owner._journal, "_write", fail)
    results = await asyncio.gather(
        *(backend.owner.add(job.entries(name)) for name in ("a", "b")), return_exceptions=True
    )
    assert [type(result) for result in results] == [FrontierError, FrontierError]
    assert "cannot be written" in str(results[0])
    await job.kill()
    assert await job.counts() == {"queued": 1}


async def test_a_seen_set_on_disk_stays_exact_while_its_recent_keys_change(start, monkeypatch):
    monkeypatch.setattr(seen, "RECENT_KEYS", 4)
    job = await start(seen_memory_limit=5)
    await job.add(*range(10))
    for first in range(0, 60, 3):
        assert await job.add(*range(first, first + 13)) == 3


async def until(true):
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0.001)


def lease_notes(backend):
    """Return how many batches of leases a killed owner would leave behind at this moment."""
    with contextlib.closing(sqlite3.connect(backend.folder / "frontier.db")) as file:
        return file.execute("SELECT count(*) FROM leases WHERE id > 0").fetchone()[0]


async def test_a_lease_is_noted_soon_without_anybody_asking(job, backend):
    await job.add("a")
    await job.one()
    await until(lambda: lease_notes(backend) == 1)


async def test_a_promised_distance_is_noted_before_the_lease_is_given(start, backend):
    job = await start(HostLimits(delay=30.0))
    await job.add("a")
    await job.one()
    assert lease_notes(backend) == 1


async def test_after_a_kill_each_lease_is_noted_before_it_is_given(job, backend):
    await job.add("a", "b")
    await job.kill()
    await job.lease(1)
    assert lease_notes(backend) == 1
    await job.lease(1)
    assert lease_notes(backend) == 2


async def test_after_an_orderly_end_nothing_says_that_the_owner_was_killed(job, backend):
    await job.add("a", "b")
    await job.lease(1)
    await job.reopen()
    assert not backend.owner._is_careful
    await job.kill()
    assert backend.owner._is_careful


async def test_a_note_that_cannot_be_written_is_an_error_of_the_next_call(job, backend, monkeypatch):
    def fail(_):
        raise FrontierError("disk full", remedy="make room")

    await job.add("a", "b")
    monkeypatch.setattr(backend.owner._journal, "_write", fail)
    lease = await job.one()
    await until(lambda: backend.owner._journal._failure is not None)
    with pytest.raises(FrontierError, match="disk full"):
        await job.done(lease)
    await job.kill()


async def test_the_file_of_a_closed_frontier_lists_the_same_slots_and_counts(start, backend):
    job = await start()
    await job.add(*range(3), host="full.test")
    await job.add("page", host="small.test")
    await job.add("page", host="done.test", priority=9)
    await job.done(await job.one(), counters={"pages": 1, "time/fetch/us": 2_000_000})
    slots, stats = await job.frontier.reports.slots(10), await job.frontier.reports.stats(StatsDimension.HOST)
    await backend.stop()
    path = backend.folder / "frontier.db"
    read = await asyncio.to_thread(read_slots, path, 10)
    assert {slot.key: slot.queued for slot in read} == {slot.key: slot.queued for slot in slots}
    assert [slot.key for slot in await asyncio.to_thread(read_slots, path, 1)] == ["full.test"]
    assert await asyncio.to_thread(read_stats, path, StatsDimension.HOST, 10) == stats
    assert [row.fetch_time for row in stats] == [2.0]
