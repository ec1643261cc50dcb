"""Packs of requests in a SQLite frontier: each request is in the file exactly once until it is done."""

import asyncio
import contextlib
import sqlite3

import pytest
from frontier_machine import FrontierMachine
from frontier_model import key_of
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import invariant, run_state_machine_as_test

from skitter.frontier.embedded import backlog, journal, requests, scheduler
from skitter.frontier.embedded.inspection import read_slots, read_status
from skitter.frontier.embedded.packs import unpack
from skitter.frontier.embedded.repair import repair_file
from skitter.frontier.records import Entry, Outcome, Resolution
from skitter.request import Request, encode_request, fingerprint_of_url

pytestmark = pytest.mark.parametrize("backend", ["sqlite"], indirect=True)


class File:
    """The requests in a frontier file by the place where they are stored, as URL and record by number."""

    def __init__(self, path) -> None:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as file:
            self.removed = {number for (number,) in file.execute("SELECT seq FROM removed")}
            self.unpacked = {number for (number,) in file.execute("SELECT seq FROM unpacked")}
            self.packs = {
                packed[0]: {row[0]: (row[4], row[5]) for row in unpack(packed)}
                for packed in file.execute("SELECT * FROM packs")
            }
            rows = {
                table: {
                    seq: (url, record)
                    for seq, url, record in file.execute(f"SELECT seq, url, record FROM {table}")
                }
                for table in ("queue", "delayed", "dead")
            }
        packed = {seq: key for pack in self.packs.values() for seq, key in pack.items()}
        self.rows = {seq: key for seq, key in rows["queue"].items() if seq not in self.removed}
        self.packed = {
            seq: key for seq, key in packed.items() if seq not in self.removed and seq not in self.unpacked
        }
        self.delayed, self.dead = rows["delayed"], rows["dead"]
        assert self.unpacked <= set(packed), "a number has left a pack that does not exist"

    def check_places(self) -> None:
        places = [self.rows, self.packed, self.delayed, self.dead]
        numbers = [seq for place in places for seq in place]
        assert len(numbers) == len(set(numbers)), "a request is in two places"


class PackMachine(FrontierMachine):
    """Also checks the file that a killed owner would leave after each step."""

    @invariant()
    def file_and_model_agree(self):
        if not hasattr(self, "model"):
            return
        self.run(self.backend.flush_leases())
        path = self.backend.folder / "frontier.db"
        file = File(path)
        file.check_places()
        model = self.model
        present = {key_of(one.entry) for one in (*model.in_state("waiting"), *model.in_state("leased"))}
        found = [*file.rows.values(), *file.packed.values(), *file.delayed.values()]
        assert len(found) == len(present)
        assert set(found) == present
        assert sorted(file.dead.values()) == sorted(key_of(one.entry) for one in model.in_state("failed"))
        status = read_status(path)
        if status is None:  # nothing was committed yet
            return
        assert status.added == len(model.requests) - model.dropped
        assert (status.done, status.failed) == (len(model.in_state("done")), len(model.in_state("failed")))
        assert status.queued + status.leased + status.delayed == len(present)

    def finish_the_job(self):
        super().finish_the_job()
        self.run(self.job.reopen())
        file = File(self.backend.folder / "frontier.db")
        assert not (file.removed or file.unpacked or file.packs), "finished requests stay in the file"


@pytest.fixture
def small_parts(monkeypatch):
    """Keep two requests of each slot in memory, and write packs of eight."""
    monkeypatch.setattr(backlog, "MIN_HEAD_SIZE", 2)
    monkeypatch.setattr(backlog, "MAX_HEAD_SIZE", 2)
    monkeypatch.setattr(backlog, "MAX_LONG_HEAD_SIZE", 2)
    monkeypatch.setattr(requests, "MAX_PACK_SIZE", 8)


@pytest.mark.parametrize("removed_together", [1, 5, 500])
def test_each_request_is_in_the_file_once_after_any_calls(
    backend, job_kind, monkeypatch, small_parts, removed_together
):
    monkeypatch.setattr(scheduler, "LOW_HEAD", 1)
    monkeypatch.setattr(journal, "_REMOVALS", removed_together)
    run_state_machine_as_test(
        type("Machine", (PackMachine,), {"backend_kind": type(backend), "job_kind": job_kind}),
        settings=settings(
            max_examples=15,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.fixture(params=[1, 500])
async def packed(request, start, small_parts, monkeypatch):
    """A job with two packs of eight requests, 2 to 17, in one slot. Finished requests are removed immediately, or later."""
    monkeypatch.setattr(journal, "_REMOVALS", request.param)
    job = await start(max_worker_crashes=2)
    await job.add(-1, 0, 1)  # two requests in memory, and one more
    await job.add(*range(2, 18))
    await job.done(*await job.lease(3))
    return job


async def stored(backend):
    """Return the file as a killed owner would leave it."""
    await backend.flush_leases()
    file = File(backend.folder / "frontier.db")
    file.check_places()
    return file


def names(place):
    return sorted(int(url.rpartition("/")[2]) for url, _ in place.values())


def name_of(lease):
    return int(lease.url.rpartition("/")[2])


async def test_requests_are_leased_from_their_pack_and_leave_it_when_they_are_done(packed, backend):
    leases = await packed.lease(5)
    file = await stored(backend)
    assert (names(file.rows), names(file.packed)) == ([], [*range(2, 18)])
    await packed.done(*leases[:3])
    file = await stored(backend)
    assert (names(file.rows), names(file.packed)) == ([], [*range(5, 18)])
    await packed.kill()
    file = await stored(backend)
    assert (names(file.rows), names(file.packed)) == ([5, 6], [*range(7, 18)])
    again = await packed.lease()
    assert [(name_of(lease), lease.lost) for lease in again] == [
        (5, 1),
        (6, 1),
        *((n, 0) for n in range(7, 18)),
    ]


async def test_a_pack_is_removed_with_the_last_of_its_requests(packed, backend):
    leases = await packed.lease(16)
    await packed.done(*leases[7:])
    await packed.done(*leases[:6])
    await packed.reopen()
    file = await stored(backend)
    assert [len(pack) for pack in file.packs.values()] == [8]
    assert len(file.unpacked) == 7
    await packed.done(await packed.one())
    await packed.reopen()
    file = await stored(backend)
    assert not (file.packs or file.unpacked or file.removed)
    assert await packed.counts() == {"done": 19}


@pytest.mark.parametrize("after", [0.0, 5.0])
async def test_a_retry_leaves_its_pack_with_its_attempt(packed, backend, after):
    first, second, third = await packed.lease(3)
    await packed.retry(first, after=after)
    await packed.frontier.commit([Outcome(second.id, Resolution.RETRY, after=after, free=True)])
    file = await stored(backend)
    assert names(file.delayed if after else file.rows) == [2, 3]
    await packed.frontier.release([third.id])
    await packed.kill()
    await packed.clock.advance(after)
    leases = await packed.lease()
    found = {name_of(lease): (lease.attempt, lease.lost) for lease in leases}
    assert len(leases) == len(found) == 16
    assert found == {n: (1 if n == 2 else 0, 0) for n in range(2, 18)}
    await packed.done(*leases)
    await packed.reopen()
    assert await packed.counts() == {"done": 19}


async def test_a_pack_whose_requests_were_all_retried_is_removed_at_the_next_start(packed, backend):
    await packed.retry(*await packed.lease(8))
    assert len((await stored(backend)).packs) == 2
    await packed.kill()
    file = await stored(backend)
    assert [names(pack) for pack in file.packs.values()] == [[*range(10, 18)]]
    assert (names(file.rows), len(file.unpacked)) == ([*range(2, 10)], 0)
    assert len(await packed.urls_left()) == 16


async def test_a_dead_letter_of_a_pack_is_put_back_once(packed, backend):
    await packed.fail(*await packed.lease(4))
    file = await stored(backend)
    assert (names(file.dead), names(file.packed)) == ([2, 3, 4, 5], [*range(6, 18)])
    assert await packed.frontier.dead_letters.replay() == 4
    file = await stored(backend)
    assert (names(file.rows), names(file.dead)) == ([2, 3, 4, 5], [])
    await packed.kill()
    assert await packed.counts() == {"done": 3, "queued": 16}
    left = await packed.urls_left()
    assert sorted(map(int, left)) == [*range(2, 18)]


async def test_losses_of_a_packed_request_are_counted_until_it_is_a_dead_letter(packed, backend):
    for lost in range(3):
        lease = await packed.one()
        assert (name_of(lease), lease.lost) == (2, lost)
        await backend.flush_leases()
        await packed.kill()
        await packed.clock.advance(10.0)
        assert (await packed.status()).counters["leases/lost"] == lost + 1
    (letter,) = await packed.frontier.dead_letters.list()
    assert (letter.url, letter.lost) == (lease.url, 3)
    left = await packed.urls_left()
    assert left == [f"{n}" for n in range(3, 18)]


async def test_a_slot_is_dropped_with_its_packs_and_without_its_leased_requests(packed, backend):
    leases = await packed.lease(3)
    await packed.add(*range(20, 30), host="other.test")
    assert await packed.frontier.control.drop_slot("h.test") == 13
    file = await stored(backend)
    assert (names(file.rows), len(file.unpacked)) == ([2, 3, 4, 20, 21, 22], 0)
    await packed.done(leases[0])
    await packed.retry(leases[1])
    await packed.kill()
    found = {name_of(lease): (lease.attempt, lease.lost) for lease in await packed.lease()}
    assert found == {3: (1, 0), 4: (0, 1), **dict.fromkeys(range(20, 30), (0, 0))}


async def test_a_task_is_dropped_from_packs_of_which_some_requests_are_done_or_leased(packed, backend):
    of_task = encode_request(Request("", cb_kwargs={"task": "red"}))
    await packed.add(*range(20, 36), record=of_task, priority=1)
    assert [names(pack) for pack in (await stored(backend)).packs.values()][2:] == [
        [*range(24, 32)],
        [*range(32, 36)],
    ]
    leases = await packed.lease(9)
    await packed.done(*leases[:6])
    await packed.fail(leases[6])
    assert await packed.frontier.control.drop_task("red") == 7
    file = await stored(backend)
    assert (names(file.rows), names(file.dead), names(file.packed)) == ([27, 28], [26], [*range(2, 18)])
    await packed.frontier.release([leases[7].id])
    await packed.done(leases[8])
    await packed.kill()
    assert sorted(map(int, await packed.urls_left())) == [*range(2, 18), 27]


async def test_heads_are_complete_although_most_requests_have_left_their_packs(start, backend, small_parts):
    """One of eight requests is left, in more packs than two requests usually need."""
    job = await start()
    await job.add(0, 1, 2)
    await job.add(*range(3, 403))
    leases = await job.lease()
    await job.done(*[lease for lease in leases if name_of(lease) % 8])
    await job.frontier.release([lease.id for lease in leases if name_of(lease) % 8 == 0])
    await job.kill()
    file = await stored(backend)
    assert len(file.packs) == 50
    assert await job.urls_left() == [f"{n}" for n in range(0, 403, 8)]


async def test_the_file_of_a_killed_owner_shows_the_requests_left_in_packs(packed, backend):
    leases = await packed.lease(6)
    await packed.done(*leases[:4])
    await backend.flush_leases()
    status, slots = await packed.status(), await packed.frontier.reports.slots(5)
    path = backend.folder / "frontier.db"
    read = await asyncio.to_thread(read_status, path)
    assert (read.added, read.queued, read.leased, read.done) == (19, 10, 2, 7)
    assert (read.added, read.queued, read.leased, read.done) == (
        status.added, status.queued, status.leased, status.done,
    )  # fmt: skip
    assert [(slot.key, slot.queued) for slot in await asyncio.to_thread(read_slots, path, 5)] == [
        ("h.test", 12)
    ]
    assert [(slot.key, slot.queued) for slot in slots] == [("h.test", 10)]


@pytest.mark.parametrize("together", [1, 500])
@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_repair_brings_no_request_back_that_has_left_its_pack(
    start, backend, small_parts, monkeypatch, together, is_lost
):
    """Without the record of requests that have left their packs, finished requests return, but none is stored twice."""
    monkeypatch.setattr(journal, "_REMOVALS", together)
    job = await start()
    seed = backend.owner._job.fingerprint_seed
    record = encode_request(Request("", callback="parse_page"))
    urls = [f"http://h.test/folder/{number}" for number in range(40)]
    await job.add(*[Entry(fingerprint_of_url(url, seed), "h.test", url, record) for url in urls])
    leases = await job.lease(20)
    await job.done(*leases[:10])
    await job.fail(*leases[10:12])
    await job.retry(*leases[12:14], after=100.0)
    await job.retry(*leases[14:16])
    await backend.flush_leases()
    await backend.kill()
    path = backend.folder / "frontier.db"
    with contextlib.closing(sqlite3.connect(path)) as file:
        file.execute("UPDATE packs SET record = record || 'x' WHERE seq = (SELECT max(seq) FROM packs)")
        if is_lost:
            file.execute("DELETE FROM unpacked")
            file.execute("DELETE FROM removed")
        file.commit()
    repair = await asyncio.to_thread(repair_file, path)
    assert len(repair.altered) == 5
    await job.open()
    (await stored(backend)).check_places()
    counts = await job.counts()
    assert (counts["failed"], counts["delayed"], counts["done"]) == (2, 2, 10)
    left = await job.urls_left()
    assert len(left) == len(set(left))
    if not is_lost:
        assert sorted(map(int, left)) == [*range(14, 35)]


@pytest.mark.parametrize("end", ["done", "fail", "retry"])
async def test_a_request_that_ends_behind_the_head_of_its_slot_does_not_come_back_from_its_pack(packed, end):
    """After requests with a higher priority were added, the head no longer reaches the leased requests."""
    early = await packed.lease(2)
    await packed.add(*range(20, 24), priority=5)
    await packed.lease(2)
    await getattr(packed, end)(*early)
    leases = []
    while more := await packed.lease(1):
        leases += more
    found = {name_of(lease): lease.attempt for lease in leases}
    assert len(found) == len(leases)
    retried = dict.fromkeys([2, 3], 1) if end == "retry" else {}
    assert found == {**dict.fromkeys([*range(4, 18), 22, 23], 0), **retried}
