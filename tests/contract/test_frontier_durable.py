"""The state of a job after a restart, following an orderly end and SIGKILL."""

import asyncio

import pytest

from skitter.errors import FrontierError
from skitter.frontier.options import FrontierSettings
from skitter.frontier.records import JobState, Outcome, Resolution, SeedProgress
from skitter.item import OutputRange

pytestmark = pytest.mark.parametrize("backend", ["sqlite", "socket"], indirect=True)


@pytest.fixture(params=["reopen", "kill"])
def ending(request):
    """How the first run ends: the name of a method of the job."""
    return request.param


async def restart(job, how: str) -> None:
    await getattr(job, how)()


async def test_requests_in_every_state_survive_a_restart(job, ending):
    await job.add("done", "failed", priority=1)
    await job.add(*range(5))
    await job.add("delayed", delay=50.0)
    done, failed = await job.lease(2)
    await job.done(done)
    await job.fail(failed)
    before = await job.counts()
    await restart(job, ending)
    assert await job.counts() == before == {"queued": 5, "delayed": 1, "done": 1, "failed": 1}
    assert await job.add("done", "failed", "delayed", *range(5)) == 0
    await job.clock.advance(50.0)
    assert await job.urls_left() == ["0", "1", "2", "3", "4", "delayed"]


async def test_a_request_is_unchanged_after_a_restart(job, ending):
    await job.add("a", priority=-5, record=bytes(range(256)))
    lease = await job.one()
    await job.retry(lease, after=10.0, record=b"\x01changed")
    await restart(job, ending)
    assert await job.lease() == []
    await job.clock.advance(10.0)
    again = await job.one()
    assert (again.url, again.fingerprint, again.slot) == (lease.url, lease.fingerprint, lease.slot)
    assert (again.record, again.attempt, again.lost) == (b"\x01changed", 1, 0)


@pytest.mark.parametrize("order", ["priority", "fifo", "lifo"])
async def test_the_order_is_kept_after_a_restart(start, order, ending):
    job = await start(queue_order=order)
    for priority in (0, 3, -3, 2**62):
        await job.add(f"{priority}a", f"{priority}b", priority=priority)
    await restart(job, ending)
    await job.add("new", priority=1)
    middle = ["0a", "0b", "3a", "3b", "-3a", "-3b", f"{2**62}a", f"{2**62}b"]
    assert (
        await job.urls_left()
        == {
            "priority": [*middle[6:], *middle[2:4], "new", *middle[:2], *middle[4:6]],
            "fifo": [*middle, "new"],
            "lifo": ["new", *middle[::-1]],
        }[order]
    )


async def test_leases_of_a_killed_owner_count_a_loss_and_return(job):
    await job.add("a", "b", "c")
    leases = await job.lease(2)
    await job.end_fetch(leases[0])
    await job.backend.flush_leases()
    await job.kill()
    assert await job.counts() == {"queued": 3}
    again = await job.lease()
    assert [(lease.url, lease.lost) for lease in again] == [
        ("http://h.test/a", 1), ("http://h.test/b", 1), ("http://h.test/c", 0),
    ]  # fmt: skip
    assert (await job.status()).counters["leases/lost"] == 2


async def test_leases_of_a_closed_job_return_without_a_loss(job):
    await job.add("a", "b")
    await job.lease()
    await job.reopen()
    assert [lease.lost for lease in await job.lease()] == [0, 0]


async def test_only_requests_in_progress_count_a_loss(job):
    """A request that was leased together with them, but was released, retried or replayed since, counts none."""
    await job.add("in hand", "released", "retried", "free", "replayed")
    _, released, retried, free, replayed = await job.lease()
    await job.frontier.release([released.id])
    await job.retry(retried)
    await job.retry(free, free=True)
    await job.fail(replayed)
    await job.frontier.dead_letters.replay()
    await job.kill()
    again = await job.lease()
    assert {lease.url.rpartition("/")[2]: lease.lost for lease in again} == {
        "in hand": 1, "released": 0, "retried": 0, "free": 0, "replayed": 0,
    }  # fmt: skip


async def test_a_lease_from_before_a_restart_is_invalid(job, ending):
    await job.add("a")
    old = await job.one()
    await restart(job, ending)
    new = await job.one()
    assert new.id != old.id
    assert await job.done(old, entries=job.entries("child"), counters={"pages": 1}) == [False]
    assert await job.frontier.renew("w", [old.id]) == [old.id]
    assert await job.counts() == {"leased": 1}


async def test_a_request_that_kills_owners_becomes_a_dead_letter(start):
    job = await start(max_worker_crashes=2)
    await job.add("killer")
    for lost in range(3):
        _, lease = await job.wait_for_one()
        assert lease.lost == lost
        if lost == 0:  # owners that follow a killed one write each lease before they return it
            await job.backend.flush_leases()
        await job.kill()
    assert await job.counts() == {"failed": 1}
    (letter,) = await job.frontier.dead_letters.list()
    assert (letter.lost, letter.error[:6]) == (3, "lost: ")
    assert (await job.status()).counters["failed/lost"] == 1


async def test_ids_are_never_used_again_after_a_kill(start):
    """Even if the expiry of a lease was the last event."""
    job = await start(max_worker_crashes=0, lease_seconds=10.0)
    ids = set()
    for life in range(4):
        await job.add(f"a{life}", f"b{life}")
        ids |= {lease.id for lease in await job.lease()}
        await job.clock.advance(10.0)
        await job.lease()
        assert len(await job.frontier.dead_letters.list()) == 2 * (life + 1)
        await job.kill()
    assert len(ids) == 8
    await job.add("c")
    await job.fail(await job.one())
    assert len({letter.id for letter in await job.frontier.dead_letters.list()}) == 9


async def test_a_letter_never_gets_the_id_of_an_older_one(start):
    """Also if nothing was committed after many leases expired."""
    job = await start(max_worker_crashes=0, lease_seconds=10.0)
    await job.add(*range(9))
    await job.lease(8)
    await job.clock.advance(10.0)
    assert await job.counts() == {"queued": 1, "failed": 8}
    assert len(await job.frontier.dead_letters.list()) == 8
    await job.kill()
    await job.fail(await job.one())
    ids = [letter.id for letter in await job.frontier.dead_letters.list()]
    assert len(set(ids)) == 9
    assert ids == sorted(ids)


async def test_concurrent_changes_leave_each_request_in_one_state(start):
    job = await start(max_worker_crashes=1, lease_seconds=10.0)
    await job.add(*range(4))
    await job.lease()
    await job.frontier.abandon("w")
    leases = await job.lease()
    outcomes = [Outcome(lease.id, Resolution.RETRY, error="http/500") for lease in leases]
    await asyncio.gather(job.frontier.commit(outcomes), job.ask(2, "dying"), job.frontier.abandon("dying"))
    before = await job.counts()
    await job.kill()
    assert await job.counts() == before == {"queued": 2, "failed": 2}


@pytest.mark.parametrize(
    ("asked", "afterwards"),
    [
        (JobState.RUNNING, JobState.RUNNING),
        (JobState.PAUSED, JobState.PAUSED),
        (JobState.STOPPING, JobState.RUNNING),
    ],
)
async def test_a_pause_is_kept_and_a_stop_ends_with_the_run(job, asked, afterwards, ending):
    await job.add("a")
    await job.frontier.control.set_state(asked)
    await restart(job, ending)
    assert (await job.status()).state is afterwards


async def test_a_finished_job_stays_finished(job, ending):
    await job.add("a")
    await job.seeds_done()
    await job.done(await job.one())
    await restart(job, ending)
    assert (await job.ask()).state is JobState.FINISHED
    assert await job.frontier.claim_seeds("w") is None


async def test_the_next_loader_continues_with_the_seeds(job, ending):
    claim = await job.frontier.claim_seeds("w")
    await job.frontier.add(job.entries("a", "b"), SeedProgress(claim.token, 2))
    await restart(job, ending)
    again = await job.frontier.claim_seeds("w")
    assert again.position == 2
    await job.frontier.add([], SeedProgress(again.token, 2, done=True))
    await restart(job, ending)
    assert await job.frontier.claim_seeds("w") is None


async def test_notes_counters_and_outputs_are_kept(job, ending):
    await job.add("a", "b", "c")
    await job.frontier.notes.put("robots:h.test", b"\x00rules", 100.0)
    marks = [(0, 10), (20, 30), (10, 15)]
    for lease, (begin, end) in zip(await job.lease(), marks, strict=True):
        await job.done(lease, counters={"pages": 1}, outputs=[OutputRange("part", begin, end)])
    await restart(job, ending)
    assert (await job.frontier.reports.outputs())["part"] == [(0, 10), (10, 15), (20, 30)]
    assert (await job.status()).counters["pages"] == 3
    assert await job.frontier.notes.get("robots:h.test") == b"\x00rules"
    await job.clock.advance(100.0)
    assert await job.frontier.notes.get("robots:h.test") is None


async def test_ranges_are_joined_across_restarts(job, ending):
    for begin in range(0, 40, 10):
        await job.add(f"{begin}")
        await job.done(await job.one(), outputs=[OutputRange("part", begin, begin + 10)])
        await restart(job, ending)
    assert await job.frontier.reports.outputs() == {"part": [(0, 40)]}


async def test_dead_letters_are_kept_and_can_be_replayed(job, ending):
    await job.add("a", "b")
    for lease in await job.lease():
        await job.fail(lease, error=f"http/404 {lease.url}")
    before = await job.frontier.dead_letters.list()
    await restart(job, ending)
    assert await job.frontier.dead_letters.list() == before
    assert await job.frontier.dead_letters.replay([before[0].id]) == 1
    assert await job.frontier.dead_letters.drop() == 1
    await restart(job, ending)
    assert await job.counts() == {"queued": 1}
    assert (await job.one()).url == before[0].url


async def test_a_visited_ttl_continues_after_a_restart(start, ending):
    job = await start(visited_ttl=100.0)
    await job.add("a", "pending")
    await job.done(*await job.lease(1))
    await job.clock.advance(60.0)
    await restart(job, ending)
    assert await job.add("a") == 0
    await job.clock.advance(40.0)
    assert await job.add("a", "pending") == 1


async def test_failed_urls_may_be_added_again_after_a_restart(start, ending):
    job = await start(refetch_failed=True)
    await job.add("a", "b")
    await job.fail(*await job.lease())
    await job.add("b")
    await restart(job, ending)
    assert await job.add("a", "b") == 1


async def test_a_long_queue_comes_back_in_order_from_the_file(job, ending):
    await job.add(*range(2_000))
    await job.add(*range(500), host="other.test")
    await restart(job, ending)
    await job.add("last")
    leases = await job.lease()
    own = [lease.url.rpartition("/")[2] for lease in leases if lease.slot == "h.test"]
    assert own == [*map(str, range(2_000)), "last"]
    assert len(leases) == 2_501


async def test_a_fingerprint_seed_belongs_to_the_job(job, backend, ending):
    seed = backend.info.fingerprint_seed
    await job.add("a")
    await restart(job, ending)
    assert backend.info.fingerprint_seed == seed


@pytest.mark.parametrize("bound", [10, 100])
async def test_a_seen_set_that_outgrows_memory_stays_exact(start, bound, ending):
    job = await start(seen_memory_limit=bound)
    for begin in range(0, 300, 20):
        assert await job.add(*range(begin, begin + 20)) == 20
        assert await job.add(*range(begin + 5)) == 0
        await restart(job, ending)
    prints = [job.entry(number).fingerprint for number in range(310)]
    assert await job.frontier.unknown(prints) == [False] * 300 + [True] * 10


async def test_a_job_may_have_other_options_in_its_next_run(job):
    await job.add("a", priority=1)
    await job.add("b")
    job.options = FrontierSettings(queue_order="fifo", lease_seconds=5.0)
    await job.reopen()
    await job.add("c", priority=9)
    leases = await job.lease()
    assert leases[0].deadline == pytest.approx(job.clock() + 5.0)
    assert len(leases) == 3


async def test_a_second_owner_is_refused_with_a_remedy(job, backend):
    from skitter.frontier.embedded.frontier import EmbeddedFrontier

    second = EmbeddedFrontier(path=backend.folder / "frontier.db")
    with pytest.raises(FrontierError, match="being run by process") as refusal:
        await second.open()
    assert refusal.value.remedy


async def test_an_old_claim_of_the_seeds_is_void_after_a_restart(job, ending):
    old = await job.frontier.claim_seeds("one")
    await restart(job, ending)
    new = await job.frontier.claim_seeds("other")
    assert new.token != old.token
    assert (await job.frontier.add(job.entries("a"), SeedProgress(old.token, 1))).added == 0
