"""Budgets of a slot: ``max_pages_per_slot``, ``max_bytes_per_slot`` and ``max_queued_per_slot``."""

import random

import pytest

PAGE = {"counters": {"pages": 1, "bytes": 100}}


async def refused(job, name) -> int:
    return (await job.status()).counters.get(f"refused/{name}", 0)


async def test_no_more_pages_are_leased_than_the_budget_allows(start):
    job = await start(max_pages_per_slot=3)
    await job.add(*range(10))
    await job.add("x", "y", host="other.test")
    leases = [lease for lease in await job.lease(10) if lease.slot == "h.test"]
    assert len(leases) == 3
    await job.done(leases[0], **PAGE)
    assert await job.lease(10) == []
    await job.done(leases[1])  # no page, for example a redirect
    (fourth,) = await job.lease(10)
    assert fourth.slot == "h.test"


async def test_a_lease_without_a_page_releases_its_memory(start):
    job = await start(max_pages_per_slot=1)
    await job.add("a", "b", "c")
    (lease,) = await job.lease()
    await job.end_fetch(lease)
    await job.retry(lease, after=60.0)
    (lease,) = await job.lease()
    await job.fail(lease)
    (lease,) = await job.lease()
    await job.frontier.release([lease.id])
    assert len(await job.lease()) == 1


@pytest.mark.parametrize(
    ("budget", "reason"),
    [({"max_pages_per_slot": 2}, "slot_pages"), ({"max_bytes_per_slot": 150}, "slot_bytes")],
)
async def test_a_slot_that_is_used_up_refuses_everything_else_and_the_job_ends(start, budget, reason):
    job = await start(**budget)
    await job.seeds_done()
    await job.add(*range(700))
    await job.add("late", delay=3600.0)
    for _ in range(2):
        await job.done(await job.one(), **PAGE)
    assert await job.lease() == []
    await job.clock.advance(3601)
    assert await job.lease() == []
    assert await job.counts() == {"done": 2}
    assert await refused(job, reason) == 699
    assert await job.is_finished()
    await job.add("more")
    assert await job.counts() == {"done": 2}
    assert await refused(job, reason) == 700
    await job.add("x", host="other.test")
    assert (await job.one()).slot == "other.test"


async def test_leased_requests_of_a_used_up_slot_are_finished_but_not_retried(start):
    job = await start(max_bytes_per_slot=100)
    await job.add("a", "b", "c")
    first, second, third = await job.lease()
    await job.done(first, **PAGE)
    assert await job.done(second, **PAGE) == [True]
    await job.retry(third)
    assert await job.counts() == {"done": 2}
    assert await refused(job, "slot_bytes") == 1


async def test_links_beyond_the_queued_ones_are_refused_but_not_remembered(start):
    job = await start(max_queued_per_slot=5)
    await job.add("seed", "late")
    await job.add("later", delay=60.0)
    lease = await job.one()
    links = job.entries(*range(10))
    assert await job.done(lease, entries=links) == [True]
    assert await job.counts() == {"queued": 4, "delayed": 1, "done": 1}
    assert await refused(job, "slot_queued") == 7
    second = await job.one()
    await job.done(second, entries=job.entries("x", host="other.test") + links)
    assert await job.counts() == {"queued": 5, "delayed": 1, "done": 2}
    assert await refused(job, "slot_queued") == 13
    assert await refused(job, "duplicate") == 3
    assert await job.add(*range(50, 70)) == 20, "explicit additions are queued however many wait"


async def test_delayed_requests_that_are_dropped_or_due_make_room(start):
    job = await start(max_queued_per_slot=2)
    await job.add("a", "b", delay=60.0)
    await job.clock.advance(61)
    for lease in await job.lease():
        await job.done(lease)
    await job.add("c", delay=60.0)
    assert await job.frontier.control.drop_slot("h.test") == 1
    await job.add("seed")
    await job.done(await job.one(), entries=job.entries(*range(5)))
    assert await job.counts() == {"queued": 2, "done": 3}


@pytest.mark.parametrize("backend", ["sqlite", "socket"], indirect=True)
async def test_the_budget_holds_when_workers_die_and_the_job_is_reopened(start):
    job = await start(max_pages_per_slot=20)
    await job.seeds_done()
    await job.add(*range(60))
    draw = random.Random(7)
    pages = 0
    while not await job.is_finished():
        leases = await job.lease(draw.randint(1, 6))
        assert pages + len(leases) <= 20
        for lease in leases[: draw.randint(0, len(leases))]:
            await job.done(lease, **PAGE)
            pages += 1
        if draw.random() < 0.5:
            await job.kill()
        await job.frontier.abandon("w")
        await job.clock.advance(100)
    assert pages == 20
    status = await job.status()
    assert status.done == status.added == 20


@pytest.mark.parametrize("backend", ["sqlite", "socket"], indirect=True)
async def test_a_lowered_budget_applies_to_queued_requests(start, job_kind):
    job = await start()
    await job.seeds_done()
    await job.add(*range(30))
    for _ in range(3):
        await job.done(await job.one(), **PAGE)
    job.options = type(job.options)(max_pages_per_slot=2)
    await job.reopen()
    assert await job.lease() == []
    assert await job.counts() == {"done": 3}
    assert await job.is_finished()


async def test_a_batch_counts_against_the_budget_of_each_slot(start):
    job = await start(max_queued_per_slot=3)
    await job.add("page")
    links = [*job.entries(*range(5)), *job.entries("x", host="other.test")]
    await job.done(await job.one(), **PAGE, batches=[job.batch(links)])
    assert await job.counts() == {"done": 1, "queued": 4}
    assert await refused(job, "slot_queued") == 2
