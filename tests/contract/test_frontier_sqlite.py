"""Faults that only a frontier can have that keeps the heads of its queues in memory and all other requests in a file."""

import asyncio
import contextlib
import shutil
import sqlite3
import time

import pytest

from skitter.errors import FrontierError
from skitter.frontier.embedded import backlog, journal, requests, seen
from skitter.frontier.embedded.damage import find_damage
from skitter.frontier.embedded.inspection import read_slots, read_stats, read_status
from skitter.frontier.embedded.repair import repair_file
from skitter.frontier.embedded.tables import SqliteTables
from skitter.frontier.records import Entry
from skitter.frontier.stats import StatsDimension
from skitter.politeness import HostLimits
from skitter.request import Request, encode_request, fingerprint_of_url

pytestmark = pytest.mark.parametrize("backend", ["sqlite"], indirect=True)


@pytest.fixture
def written_late(monkeypatch):
    """Changes that no caller waits for are written with the next change, however late it is."""
    monkeypatch.setattr(journal, "FLUSH_DELAY", 3600.0)


async def while_reading(job, backend, act):
    """Lease from the file, and call ``act`` after the read and before the answer."""
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
    """Lease a request that is later sorted behind the part of its slot that is in memory."""
    await job.add("early")
    early = await job.one()
    await job.add(*range(3), priority=5)
    await job.lease(2)
    return early


async def test_a_large_log_is_merged_into_the_file(start, backend, monkeypatch):
    monkeypatch.setattr(journal, "CHECKPOINT_BYTES", 100_000)
    job = await start()
    path = backend.owner._journal.path
    log = path.with_name(f"{path.name}-wal")
    largest = 0
    for batch in range(200):
        await job.add(*range(batch * 50, batch * 50 + 50))
        largest = max(largest, log.stat().st_size)
    # Up to 32 groups are written between two checks of the size. Together they are several times as large.
    assert 100_000 < largest < 2_000_000
    assert path.stat().st_size > 500_000
    assert (await job.frontier.status()).queued == 10_000


async def test_few_requests_with_long_urls_are_in_memory(start, backend, monkeypatch):
    monkeypatch.setattr(backlog, "MAX_LONG_HEAD_SIZE", 20)
    job = await start()
    await job.add(*range(100))
    slots = backend.owner._slots
    assert slots.in_memory == 100
    await job.add(*(f"{'x' * 300}{n}" for n in range(100)), host="long.test")
    assert 100 < slots.in_memory <= 140
    await job.add("short", host="long.test")
    assert (await job.frontier.status()).queued == 201
    await job.done(*await job.lease(201))
    assert await job.counts() == {"done": 201}


async def test_slots_share_the_memory_and_are_not_read_one_request_at_a_time(start, backend, monkeypatch):
    monkeypatch.setattr(backlog, "MAX_REQUESTS_IN_MEMORY", 100)
    job = await start()
    for host in range(10):
        await job.add(*range(100), host=f"{host}.test")
    await job.kill()
    slots, tables, reads, largest = backend.owner._slots, backend.owner._journal._tables, [], 0
    read_heads = tables.read_heads

    def counted(starts, limit):
        reads.append(limit)
        return read_heads(starts, limit)

    tables.read_heads = counted
    while leases := await job.lease(7):
        largest = max(largest, slots.in_memory)
        await job.done(*leases)
    assert await job.counts() == {"done": 1_000}
    assert largest <= 150
    assert sum(limit == 1 for limit in reads) < len(reads) / 10
    assert len(reads) < 300


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


async def test_a_request_released_or_added_while_its_slot_is_read_waits_once(start, backend, small_heads):
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
async def test_a_write_that_runs_out_of_memory_fails_all_waiting_calls(job, backend, monkeypatch, error):
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
    monkeypatch.setattr(seen, "FOUND_KEYS", 4)
    monkeypatch.setattr(seen, "MIN_MEMORY", 10)
    job = await start(seen_memory_limit=5)
    await job.add(*range(10))
    for first in range(0, 60, 3):
        assert await job.add(*range(first, first + 13)) == 3


async def test_a_seen_set_in_runs_stays_exact_over_kills(start, backend, monkeypatch):
    monkeypatch.setattr(seen, "FOUND_KEYS", 4)
    monkeypatch.setattr(seen, "MIN_MEMORY", 10)
    job = await start(seen_memory_limit=5)
    for first in range(0, 300, 7):
        assert await job.add(*range(first, first + 7)) == 7
        assert await job.add(*range(first + 7)) == 0
        if first % 5 == 0:
            await job.kill()
    with contextlib.closing(sqlite3.connect(backend.folder / "frontier.db")) as file:
        assert file.execute("SELECT count(*) FROM seen_runs").fetchone()[0] > 0


async def until(true):
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0.001)


def lease_notes(backend):
    """Return how many batches of leases a killed owner would leave behind at this moment."""
    with contextlib.closing(sqlite3.connect(backend.folder / "frontier.db")) as file:
        return file.execute("SELECT count(*) FROM leases WHERE id > 0").fetchone()[0]


async def test_a_lease_is_written_soon_without_another_call(job, backend):
    await job.add("a")
    await job.one()
    await until(lambda: lease_notes(backend) == 1)


async def test_leases_that_are_written_together_are_one_row_without_those_that_have_ended(
    job, backend, written_late
):
    await job.add("a", "b", "c")
    first = await job.one()
    await job.one()
    await job.one()
    await job.done(first)
    assert lease_notes(backend) == 1
    await job.kill()
    assert (await job.status()).counters["leases/lost"] == 2


async def test_a_lease_that_ends_before_it_was_written_leaves_no_row(job, backend, written_late):
    await job.add("a")
    await job.done(await job.one())
    assert lease_notes(backend) == 0


async def test_a_lease_with_a_fixed_delay_is_written_before_it_is_returned(start, backend):
    job = await start(HostLimits(delay=30.0))
    await job.add("a")
    await job.one()
    assert lease_notes(backend) == 1


async def test_after_a_kill_each_lease_is_written_before_it_is_returned(job, backend):
    await job.add("a", "b")
    await job.kill()
    await job.lease(1)
    assert lease_notes(backend) == 1
    await job.lease(1)
    assert lease_notes(backend) == 2


async def test_a_closed_file_does_not_say_that_its_owner_was_killed(job, backend):
    await job.add("a", "b")
    await job.lease(1)
    await job.reopen()
    assert not backend.owner._is_careful
    await job.kill()
    assert backend.owner._is_careful


async def test_an_owner_that_is_killed_while_it_opens_a_killed_job_leaves_it_killed(job, backend):
    def open_and_die():
        with contextlib.closing(
            sqlite3.connect(backend.folder / "frontier.db", isolation_level=None)
        ) as file:
            return SqliteTables(file).restore(job.options, job.clock())

    await job.add("a", "b")
    await job.lease(1)
    await backend.flush_leases()
    await backend.kill()
    assert (await asyncio.to_thread(open_and_die)).killed
    await job.open()
    assert backend.owner._is_careful
    await job.lease(1)
    assert lease_notes(backend) == 1


async def test_an_owner_that_only_adds_requests_to_a_killed_job_leaves_it_killed(job, backend):
    await job.add("a", "b")
    await job.lease(1)
    await job.kill()
    await job.add("c")
    await job.reopen()
    assert backend.owner._is_careful
    await job.lease(1)
    assert lease_notes(backend) == 1
    await job.reopen()
    assert not backend.owner._is_careful


HOURS_BACK = 3 * 3600.0


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_a_clock_that_is_set_back_prolongs_no_wait_and_shortens_none(start, backend, end):
    job = await start(HostLimits(delay=0.0, concurrency_per_slot=100, rates=("2/100s",)))
    begun = job.clock.now
    await job.add("retried", host="retried.test")
    await job.retry(await job.one(), after=60.0)
    await job.add("delayed", host="delayed.test", delay=60.0)
    await job.add("dated", host="dated.test", not_before=begun + 60.0)
    await job.add("paused", host="paused.test")
    await job.frontier.control.pause_slot("paused.test", 60.0)
    await job.add("first", "second", "third", host="rated.test")
    await job.done(*await job.lease())
    await job.frontier.notes.put("note", b"kept", 60.0)
    await job.clock.advance(20.0)
    await job.add("last")

    await getattr(backend, end)()
    job.clock.now -= HOURS_BACK
    await job.open()
    assert (await job.status()).next_due == 40.0
    assert await hosts_within(job, 39.0) == {"h.test"}
    assert await job.frontier.notes.get("note") == b"kept"
    assert await hosts_within(job, 1.0) == {"retried.test", "delayed.test", "paused.test"}
    assert await job.frontier.notes.get("note") is None
    assert await hosts_within(job, 39.0) == set()
    assert await hosts_within(job, 3.0) == {"rated.test"}
    assert await hosts_within(job, begun + 59.0 - job.clock.now) == set()
    assert await hosts_within(job, 1.0) == {"dated.test"}


async def test_a_clock_that_is_set_back_is_followed_once(job, backend):
    await job.add("a", delay=60.0)
    await backend.stop()
    job.clock.now -= HOURS_BACK
    for _ in range(2):
        await job.open()
        await backend.kill()
    await job.open()
    assert (await job.status()).next_due == 60.0


async def test_a_clock_that_drifts_moves_no_stored_time(job, backend):
    await job.add("a", delay=60.0)
    await backend.stop()
    job.clock.now -= 0.5
    await job.open()
    assert (await job.status()).next_due == 60.5


async def test_the_status_of_an_idle_job_shows_what_the_next_run_waits_for(job, backend, monkeypatch):
    await job.add("a", delay=60.0)
    await backend.stop()
    monkeypatch.setattr(time, "time", lambda: job.clock.now - HOURS_BACK)
    status = await asyncio.to_thread(read_status, backend.folder / "frontier.db")
    assert status.next_due == 60.0


async def hosts_within(job, seconds):
    """Fetch what can be leased after some seconds. Return the hosts."""
    await job.clock.advance(seconds)
    leases = await job.lease()
    await job.done(*leases)
    return {lease.url.split("/")[2] for lease in leases}


async def test_a_page_that_is_added_while_a_new_crawl_begins_is_added_once(job):
    await job.add("old")
    await job.seeds_done()
    await job.done(await job.one())
    restarted, added = await asyncio.gather(job.frontier.control.recrawl(), job.add("new"))
    assert (restarted, added) == (True, 1)
    assert await job.add("new") == 0


async def test_a_dead_letter_that_is_put_back_is_never_missing_from_the_file(
    job, backend, monkeypatch, tmp_path
):
    await job.add("a")
    await job.fail(await job.one())
    owner = backend.owner
    keys = owner._requests.seen.keys
    prepare = keys.prepare

    async def flush_first(fingerprints):
        await owner._journal.flush()  # as for the commit of a worker
        await asyncio.to_thread(shutil.copytree, backend.folder, copy)
        return await prepare(fingerprints)

    copy = tmp_path / "killed"
    monkeypatch.setattr(keys, "prepare", flush_first)
    assert await job.frontier.dead_letters.replay() == 1
    status = await asyncio.to_thread(read_status, copy / "frontier.db")
    assert (status.failed, status.queued) in {(1, 0), (0, 1)}


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


async def test_a_change_that_another_program_prevents_is_an_error_of_every_later_call(job, backend):
    """A failed call of the status leaves the error to the workers, so their calls must fail, too."""
    await job.add("a")
    await job.retry(await job.one(), after=5.0)
    owned = backend.owner._journal._tables.file
    owned.execute("PRAGMA busy_timeout = 0")
    with contextlib.closing(sqlite3.connect(backend.owner._journal.path)) as other:
        other.execute("BEGIN IMMEDIATE")
        await job.clock.advance(6)
        with pytest.raises(FrontierError, match="locked"):
            await backend.owner.status()
    with pytest.raises(FrontierError, match="locked"):
        await job.one()
    await job.kill()
    assert [lease.attempt for lease in await job.lease()] == [1]


async def counters_in_file(backend):
    status = await asyncio.to_thread(read_status, backend.owner._journal.path)
    return status.counters


@pytest.mark.parametrize("losses", [1, 2])
async def test_a_request_of_a_banned_slot_that_was_leased_at_a_kill_is_dropped(job, backend, losses):
    await job.add("a", "b")
    for _ in range(losses - 1):
        await job.one()
        await backend.flush_leases()
        await job.kill()
    lease = await job.one()
    await job.add("c", host="other.test")
    assert await job.frontier.control.drop_slot("h.test", ban=True) == 1
    await backend.flush_leases()
    await job.kill()
    status = await job.status()
    assert (status.added, status.queued, status.delayed) == (1, 1, 0)
    assert status.counters["refused/banned"] == 1
    assert await job.frontier.control.unban("h.test")
    await job.clock.advance(100.0)
    assert await job.urls_left() == ["c"]
    assert await job.add(lease.url.rpartition("/")[2]) == 0


async def test_counters_in_the_row_of_the_job_and_in_rows_of_their_own_survive_a_kill(job, backend):
    await job.add("a", "b")
    first, _ = await job.lease(2)
    await job.done(first, counters={"pages": 1, "values/color/red": 2, "user/ä": 2**62})
    before = (await job.status()).counters
    assert before == {"pages": 1, "values/color/red": 2, "user/ä": 2**62}
    assert await counters_in_file(backend) == before
    await job.kill()
    after = (await job.status()).counters
    assert after == await counters_in_file(backend) == {**before, "leases/lost": 1}
    (again,) = await job.lease(2)
    await job.done(again, counters={"pages": 1, "values/color/red": 1})
    assert (await job.status()).counters == {**after, "pages": 2, "values/color/red": 3}


@pytest.mark.parametrize("together", [1, 3, 500])
async def test_requests_that_return_after_their_rows_count_as_removed_are_kept(
    start, backend, monkeypatch, together
):
    """Rows are removed from the queue together, some time after their pages are done, failed or delayed."""
    monkeypatch.setattr(journal, "_REMOVALS", together)
    job = await start()
    await job.add(*range(12))
    leases = await job.lease(12)
    await job.done(*leases[:4])
    for lease in leases[4:8]:
        await job.fail(lease)
    for lease in leases[8:]:
        await job.retry(lease, after=10.0)
    assert await job.counts() == {"done": 4, "failed": 4, "delayed": 4}
    assert await job.frontier.dead_letters.replay() == 4
    assert await job.counts() == {"done": 4, "queued": 4, "delayed": 4}
    await job.kill()
    assert await job.counts() == {"done": 4, "queued": 4, "delayed": 4}
    again = await job.lease(4)
    await job.fail(again[0])
    assert await job.frontier.dead_letters.replay() == 1
    await job.done(*again[1:])
    await job.clock.advance(10.0)
    assert len(await job.lease()) == 5
    await backend.flush_leases()
    await backend.kill()
    status = await asyncio.to_thread(read_status, backend.folder / "frontier.db")
    assert (status.added, status.done, status.queued, status.leased, status.delayed) == (12, 7, 0, 5, 0)
    await job.open()
    assert len(await job.urls_left()) == 5
    await job.reopen()
    assert await job.counts() == {"done": 12}


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


async def test_the_file_of_a_closed_frontier_contains_the_wait_of_the_first_delayed_request(start, backend):
    job = await start()
    job.clock.now = time.time()
    await job.add("page")
    await job.retry(await job.one(), after=1000.0)
    await backend.stop()
    status = await asyncio.to_thread(read_status, backend.folder / "frontier.db")
    assert status.delayed == 1
    assert 500 < status.next_due <= 1000


WAITING_ROWS = "SELECT count(*) FROM queue WHERE seq NOT IN (SELECT seq FROM removed)"


def packs_of(backend):
    """Return the sizes of the packs in the file, and the number of its other rows."""
    with contextlib.closing(sqlite3.connect(backend.folder / "frontier.db")) as file:
        amounts = [amount for (amount,) in file.execute("SELECT amount FROM packs ORDER BY seq")]
        return amounts, file.execute(WAITING_ROWS).fetchone()[0]


async def test_links_behind_the_head_of_a_slot_wait_in_packs_that_survive_a_kill(
    start, backend, small_heads, monkeypatch
):
    monkeypatch.setattr(requests, "MAX_PACK_SIZE", 8)
    job = await start()
    await job.add(*range(30))
    await job.add(*range(30, 33), host="other.test")
    amounts, rows = packs_of(backend)
    assert amounts == [8, 8, 8]
    assert rows == 9
    status = await job.status()
    await job.kill()
    read = await asyncio.to_thread(read_status, backend.folder / "frontier.db")
    assert (read.added, read.queued, read.slots) == (33, 33, 2) == (status.added, status.queued, status.slots)
    assert [(slot.key, slot.queued) for slot in read.busiest] == [("h.test", 30), ("other.test", 3)]
    assert await job.counts() == {"queued": 33}
    assert await job.add(*range(31)) == 1
    left = await job.urls_left()
    assert [name for name in left if int(name) < 30] == [f"{n}" for n in range(30)]
    assert len(left) == 34
    await job.reopen()
    assert packs_of(backend) == ([], 0)


async def test_packed_links_keep_the_order_of_their_priorities_and_their_records(start, backend, small_heads):
    job = await start()
    await job.add(*range(3))
    mixed = [job.entry(f"{n}", priority=-(n % 3)) for n in range(10, 40)]
    await job.add(*mixed, *job.entries(*range(40, 45), record=b"\x01other"), *job.entries(*range(45, 50)))
    assert packs_of(backend)[0] == [5, 5]
    ranked = sorted(range(10, 40), key=lambda n: n % 3)
    expected = [*range(3), *[n for n in ranked if n % 3 == 0], *range(40, 50), *[n for n in ranked if n % 3]]
    leases = []
    while more := await job.lease(7):
        leases += more
        await job.done(*more)
    assert [int(lease.url.rpartition("/")[2]) for lease in leases] == expected
    assert {lease.record for lease in leases if lease.url.endswith(("/42", "/44"))} == {b"\x01other"}
    assert {lease.record for lease in leases if lease.url.endswith(("/15", "/47"))} == {b"\x01"}


async def test_a_batch_is_packed_by_slot_and_priority_and_survives_a_kill(
    start, backend, small_heads, monkeypatch
):
    monkeypatch.setattr(requests, "MAX_PACK_SIZE", 8)
    job = await start()
    await job.add("page", *range(3), priority=1)
    links = job.entries(*range(3, 30))
    links[10:10] = job.entries(*range(4), host="other.test")
    links += job.entries(*range(30, 36), priority=-1)
    await job.done(await job.one(), batches=[job.batch(links)])
    amounts, rows = packs_of(backend)
    assert amounts == [8, 8, 8, 6]
    assert rows == 3 + 27 - 24 + 4
    await job.kill()
    assert await job.counts() == {"done": 1, "queued": 40}
    left = await job.urls_left()
    assert sorted(left, key=int) == sorted([*map(str, range(36)), *map(str, range(4))], key=int)
    await job.add("page again")
    await job.done(await job.one(), batches=[job.batch(links)])
    assert await job.counts() == {"done": 42}


async def test_packed_links_are_dropped_with_their_slot_and_with_their_task(start, backend, small_heads):
    job = await start()
    of_task = encode_request(Request("", cb_kwargs={"task": "red"}))
    await job.add(*range(20))
    await job.add(*range(20, 50), record=of_task)
    await job.add(*range(20), host="other.test")
    assert await job.frontier.control.drop_task("red") == 30
    assert await job.frontier.control.drop_slot("other.test") == 20
    assert await job.counts() == {"queued": 20}
    await job.kill()
    assert await job.urls_left() == [f"{n}" for n in range(20)]


async def test_a_changed_byte_in_a_pack_is_found_and_costs_only_its_request(start, backend, small_heads):
    job = await start()
    seed = backend.owner._job.fingerprint_seed
    record = encode_request(Request("", callback="parse_page"))
    urls = [f"http://h.test/folder/page-{number}.html" for number in range(40)]
    await job.add(*[Entry(fingerprint_of_url(url, seed), "h.test", url, record) for url in urls])
    await backend.stop()
    path = backend.folder / "frontier.db"
    data = path.read_bytes()
    assert data.count(b"31.html") == 1
    path.write_bytes(data.replace(b"31.html", b"91.html"))
    damage = await asyncio.to_thread(find_damage, path)
    assert [line for line in damage if "page-91.html" in line] == damage != []
    repair = await asyncio.to_thread(repair_file, path)
    assert (repair.altered, repair.lost) == (["http://h.test/folder/page-91.html"], 1)
    await job.open()
    assert await job.counts() == {"queued": 39}
    assert len(await job.urls_left()) == 39


async def test_a_repair_brings_no_finished_request_back(start, backend):
    """Their rows may still be in the queue, and count as removed."""
    job = await start()
    seed = backend.owner._job.fingerprint_seed
    record = encode_request(Request("", callback="parse_page"))
    urls = [f"http://h.test/page-{number}.html" for number in range(30)]
    await job.add(*[Entry(fingerprint_of_url(url, seed), "h.test", url, record) for url in urls])
    await job.done(*await job.lease(20))
    await backend.kill()
    path = backend.folder / "frontier.db"
    with contextlib.closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT count(*) FROM removed").fetchone() == (20,)
        file.execute("UPDATE queue SET url = url || 'x' WHERE seq = (SELECT max(seq) FROM queue)")
        file.commit()
    repair = await asyncio.to_thread(repair_file, path)
    assert (len(repair.altered), repair.lost) == (1, 1)
    await job.open()
    assert await job.counts() == {"queued": 9, "done": 20}
    assert len(await job.urls_left()) == 9


async def test_new_hosts_are_accepted_after_a_repair_that_lost_a_host(start, backend):
    job = await start()
    fingerprint_seed = backend.owner._job.fingerprint_seed
    record = encode_request(Request("", callback="parse_page"))

    def entry_of(host):
        url = f"http://{host}/{host}"
        return Entry(fingerprint_of_url(url, fingerprint_seed), host, url, record)

    assert await job.add(*map(entry_of, ["a.test", "b.test"])) == 2
    await job.done(*await job.lease(1))
    await backend.stop()
    path = backend.folder / "frontier.db"
    with contextlib.closing(sqlite3.connect(path)) as file:
        file.execute("DELETE FROM slots WHERE key = 'a.test'")
        file.execute("INSERT INTO dead SELECT 9, *, '', 0 FROM queue")
        file.execute("UPDATE dead SET url = url || 'x'")
        file.commit()
    assert (await asyncio.to_thread(repair_file, path)).damage
    await job.open()
    assert await job.add(entry_of("c.test")) == 1
    assert sorted(await job.urls_left()) == ["b.test", "c.test"]


async def test_a_repair_keeps_the_known_urls_of_all_runs(start, backend, monkeypatch):
    monkeypatch.setattr(seen, "MIN_MEMORY", 10)
    job = await start(seen_memory_limit=5)
    fingerprint_seed = backend.owner._job.fingerprint_seed
    record = encode_request(Request("", callback="parse_page"))
    urls = [f"http://h.test/page-{number}.html" for number in range(100)]
    entries = [Entry(fingerprint_of_url(url, fingerprint_seed), "h.test", url, record) for url in urls]
    for first in range(0, 90, 9):
        assert await job.add(*entries[first : first + 9]) == 9
    await backend.stop()
    path = backend.folder / "frontier.db"
    with contextlib.closing(sqlite3.connect(path)) as file:
        (last,) = file.execute("SELECT max(run) FROM seen_runs").fetchone()
        forgotten = entries[
            95
        ].fingerprint  # in a block that is left of a run that was merged or not finished
        file.execute("INSERT INTO seen_blocks VALUES (?, ?, NULL)", ((last + 1) << 32, forgotten))
        file.execute("UPDATE queue SET url = url || 'x' WHERE seq = (SELECT max(seq) FROM queue)")
        file.commit()
    repair = await asyncio.to_thread(repair_file, path)
    assert len(repair.altered) == 1
    await job.open()
    known = await job.frontier.unknown([entry.fingerprint for entry in entries])
    assert known == [False] * 90 + [True] * 10


async def test_a_file_that_a_frontier_refuses_is_closed_at_once(backend, monkeypatch):
    opened = []

    def connect(*arguments, **options):
        opened.append(original(*arguments, **options))
        return opened[-1]

    def leave_another_database():
        with contextlib.closing(original(path)) as file:
            file.execute("CREATE TABLE songs (title TEXT)")

    original = sqlite3.connect
    path = backend.folder / "songs.db"
    await asyncio.to_thread(leave_another_database)
    monkeypatch.setattr(sqlite3, "connect", connect)
    with pytest.raises(FrontierError, match="not a frontier"):
        await journal.SqliteJournal(path, "process").open()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        await asyncio.to_thread(opened[-1].execute, "SELECT 1")
