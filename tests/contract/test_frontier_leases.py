"""Leases: their owner, their deadline and their end."""

import asyncio

import pytest

from skitter.frontier.records import Outcome, Resolution
from skitter.item import OutputRange

LEASE = 60.0


@pytest.fixture
async def held(job):
    """Lease a request at the current time."""
    await job.add("a")
    return await job.one()


async def test_a_request_is_leased_to_one_worker(job):
    await job.add(*range(100))
    shares = await asyncio.gather(*(job.lease(30, f"w{n}") for n in range(5)))
    leases = [lease for share in shares for lease in share]
    assert len({lease.id for lease in leases}) == len({lease.url for lease in leases}) == 100


async def test_no_more_than_the_limit_is_leased(job):
    await job.add("a", "b", "c")
    assert [len(await job.lease(limit)) for limit in (0, 2, 5)] == [0, 2, 1]


async def test_the_deadline_is_one_lease_time_away(start):
    job = await start(lease_seconds=7.0)
    await job.add("a")
    assert (await job.one()).deadline == pytest.approx(job.clock() + 7.0, abs=0.001)


async def test_an_expired_lease_goes_back_with_one_loss(job, held):
    await job.clock.advance(LEASE - 0.001)
    assert await job.lease() == []
    await job.clock.advance(0.002)
    again = await job.one("other")
    assert (again.url, again.attempt, again.lost) == (held.url, 0, 1)
    assert again.id != held.id
    assert (await job.status()).counters["leases/lost"] == 1


async def test_losses_up_to_the_bound_go_back_and_one_more_is_a_dead_letter(start):
    job = await start(max_worker_crashes=3, lease_seconds=10.0)
    await job.add("killer")
    for lost in range(4):
        _, lease = await job.wait_for_one()
        assert lease.lost == lost
        await job.clock.advance(10.0)
    assert await job.counts() == {"failed": 1}
    (letter,) = await job.frontier.dead_letters.list()
    assert letter.lost == 4
    assert letter.error.startswith("lost: ")
    assert (await job.status()).counters["failed/lost"] == 1


async def test_suspects_spread_out_in_time(job):
    """Requests that were lost twice together return at different times, so that a fatal one does not take the others along."""
    await job.add(*range(30))
    for _ in range(2):
        await job.lease()
        await job.frontier.abandon("w")
    sizes = []
    for _ in range(42):
        sizes.append(len(await job.lease()))
        await job.clock.advance(0.1)
    assert sum(sizes) == 30  # all within 2 to the power of 2 seconds
    assert max(sizes) <= 10


async def test_one_lost_lease_is_not_suspicious(job, held):
    await job.frontier.abandon("w")
    assert len(await job.lease()) == 1


async def test_renewing_extends_a_lease(job, held):
    for _ in range(5):
        await job.clock.advance(LEASE - 1)
        assert await job.frontier.renew("w", [held.id]) == []
    assert await job.done(held) == [True]


async def test_unrenewed_leases_expire_and_renewed_ones_do_not(job):
    await job.add("a", "b")
    kept, lost = await job.lease()
    await job.clock.advance(LEASE - 1)
    await job.frontier.renew("w", [kept.id])
    await job.clock.advance(2.0)
    assert await job.frontier.renew("w", [kept.id, lost.id, 10**15]) == [lost.id, 10**15]
    assert await job.counts() == {"leased": 1, "queued": 1}


async def test_another_worker_cannot_renew(job, held):
    await job.clock.advance(LEASE - 1)
    assert await job.frontier.renew("thief", [held.id]) == [held.id]
    await job.clock.advance(1.0)
    assert await job.done(held) == [False]


async def test_a_late_commit_is_refused_as_a_whole(job, held):
    await job.clock.advance(LEASE)
    for resolution in Resolution:
        outcome = Outcome(
            held.id, resolution, job.entries("child"), {"pages": 1}, [OutputRange("part", 0, 10)], "error"
        )
        assert await job.frontier.commit([outcome]) == [False]
    assert await job.counts() == {"queued": 1}
    assert "pages" not in (await job.status()).counters
    assert await job.frontier.reports.outputs() == {}
    assert await job.frontier.dead_letters.list() == []
    assert await job.add("child") == 1


async def test_a_commit_after_another_worker_got_the_request_is_refused(job, held):
    await job.clock.advance(LEASE)
    again = await job.one("other")
    assert await job.done(held) == [False]
    assert await job.done(again) == [True]


async def test_the_outcomes_of_a_batch_are_independent(job):
    await job.add("a", "b", "c")
    first, second, third = await job.lease()
    await job.frontier.release([second.id])
    assert await job.done(first, second, third, counters={"pages": 1}) == [True, False, True]
    assert (await job.status()).counters["pages"] == 2


async def test_a_second_commit_is_refused(job, held):
    assert await job.done(held, counters={"pages": 1}) == [True]
    assert await job.done(held, held, counters={"pages": 1}) == [False, False]
    assert (await job.status()).counters["pages"] == 1


async def test_the_same_lease_twice_in_one_batch_is_committed_once(job, held):
    assert await job.done(held, held, counters={"pages": 1}) == [True, False]
    assert await job.counts() == {"done": 1}


async def test_committing_at_once_commits_once(job, held):
    answers = await asyncio.gather(*(job.done(held) for _ in range(5)))
    assert sorted(answers) == [[False]] * 4 + [[True]]


async def test_a_request_that_was_never_leased_cannot_be_committed(job):
    assert await job.frontier.commit([Outcome(1, Resolution.DONE, job.entries("a"))]) == [False]
    assert await job.counts() == {}


async def test_children_are_added_with_the_commit(job, held):
    assert await job.done(held, entries=job.entries("b", "c", "a")) == [True]
    assert await job.counts() == {"queued": 2, "done": 1}


@pytest.mark.parametrize("resolution", ["retry", "failed"])
async def test_children_are_added_with_any_outcome_of_their_parent(job, held, resolution):
    """A page may yield links before its callback fails."""
    outcome = Outcome(held.id, Resolution(resolution), job.entries("child"), {"pages": 1}, error="late")
    assert await job.frontier.commit([outcome]) == [True]
    assert await job.add("child") == 0
    assert (await job.status()).counters["pages"] == 1


async def test_a_released_request_is_untouched_and_keeps_its_place(job):
    await job.add("a", "b", "c")
    first, second, _ = await job.lease()
    await job.frontier.release([second.id, first.id])
    again = await job.lease()
    assert [lease.url for lease in again] == [first.url, second.url]
    assert [(lease.attempt, lease.lost) for lease in again] == [(0, 0)] * 2
    assert len({first.id, second.id} & {lease.id for lease in again}) == 0


async def test_releasing_twice_or_an_unknown_lease_has_no_effect(job, held):
    await job.frontier.release([held.id, held.id, 10**15])
    await job.frontier.release([held.id])
    assert await job.counts() == {"queued": 1}


async def test_a_released_request_keeps_its_attempts_and_losses(job, held):
    await job.retry(held)
    await job.one()
    await job.frontier.abandon("w")
    lease = await job.one()
    await job.frontier.release([lease.id])
    lease = await job.one()
    assert (lease.attempt, lease.lost) == (1, 1)


async def test_abandon_takes_back_all_of_one_worker(job):
    await job.add("a", "b", "c")
    await job.lease(2, "dead")
    (alive,) = await job.lease(1, "alive")
    assert await job.frontier.abandon("dead") == 2
    assert await job.frontier.abandon("dead") == 0
    again = await job.lease(worker="alive")
    assert [lease.lost for lease in again] == [1, 1]
    assert await job.done(alive, *again) == [True] * 3


async def test_a_retry_counts_an_attempt_and_goes_back(job, held):
    for attempt in range(1, 4):
        await job.retry(held)
        held = await job.one()
        assert (held.attempt, held.lost) == (attempt, 0)


async def test_a_free_retry_counts_no_attempt(job, held):
    await job.retry(held, free=True)
    assert (await job.one()).attempt == 0


async def test_a_retry_waits_for_its_delay(job, held):
    await job.retry(held, after=5.0)
    assert await job.counts() == {"delayed": 1}
    await job.clock.advance(4.999)
    assert await job.lease() == []
    await job.clock.advance(0.002)
    assert (await job.one()).attempt == 1


async def test_the_status_tells_how_long_the_first_delayed_request_waits(job):
    await job.add("a", "b")
    assert (await job.status()).next_due == 0.0
    first, second = await job.lease()
    await job.retry(first, after=300.0)
    assert 299.0 < (await job.status()).next_due <= 301.0
    await job.retry(second, after=50.0)
    assert 49.0 < (await job.status()).next_due <= 51.0
    await job.clock.advance(60.0)
    status = await job.status()
    assert status.queued == 1
    assert 239.0 < status.next_due <= 241.0


async def test_a_retry_may_replace_the_stored_request(job, held):
    await job.retry(held, record=b"\x01changed", free=True)
    lease = await job.one()
    assert lease.record == b"\x01changed"
    await job.retry(lease)
    lease = await job.one()
    assert lease.record == b"\x01changed"
    assert (lease.url, lease.fingerprint) == (held.url, held.fingerprint)


async def test_a_retry_without_wait_keeps_its_place_and_priority(job):
    await job.add("first", "second")
    await job.add("low", priority=-1)
    await job.retry(*await job.lease(1))
    assert await job.urls_left() == ["first", "second", "low"]


async def test_a_retry_forgets_a_delay_that_is_over(job):
    await job.add("a", delay=50.0, not_before=job.clock() + 50.0)
    await job.clock.advance(50.0)
    lease = await job.one()
    await job.retry(lease)
    assert (await job.one()).attempt == 1


async def test_a_worker_that_dies_while_it_is_handed_a_request_loses_it_only_once(job):
    """Concurrent calls have the same effect as consecutive ones."""
    await job.add(*range(10))
    leases = await job.lease(5)
    outcomes = [Outcome(lease.id, Resolution.RETRY, error="http/500") for lease in leases]
    answers, _, _ = await asyncio.gather(
        job.frontier.commit(outcomes), job.lease(10, "dying"), job.frontier.abandon("dying")
    )
    assert answers == [True] * 5
    await job.frontier.abandon("dying")
    assert await job.counts() == {"queued": 10}
