"""Capacity for new requests (``max_queued``), which workers receive with their leases."""

import pytest


async def test_without_a_limit_there_is_always_room(job):
    await job.add(*range(100))
    assert (await job.ask(10)).capacity is None


async def test_the_capacity_is_the_limit_less_all_queued_and_leased_requests(start):
    job = await start(max_queued=10)
    assert (await job.ask(1)).capacity == 10
    await job.add("a", "b", "c")
    await job.add("later", delay=60.0)
    assert (await job.ask(1)).capacity == 6
    one = await job.one()
    assert (await job.ask(0)).capacity == 6
    await job.done(one)
    assert (await job.ask(0)).capacity == 7


async def test_above_the_limit_the_capacity_is_zero_while_requests_are_queued(start):
    job = await start(max_queued=3)
    await job.add("a", "b", "c", "d", "e")
    assert (await job.ask(4)).capacity == 0
    assert (await job.ask(1)).capacity == 1, "else the links of those five could never be added"


async def test_there_is_room_where_the_limit_of_pages_keeps_the_rest_from_being_leased(start):
    job = await start(max_queued=3, max_pages=2)
    await job.add("a", "b", "c", "d", "e")
    assert (await job.ask(1)).capacity == 0
    assert (await job.ask(1)).capacity == 1


@pytest.mark.parametrize("count", [1, 50])
async def test_requests_sent_beyond_the_capacity_are_accepted(start, count):
    job = await start(max_queued=1)
    await job.add("a", "b")
    lease = await job.one()
    assert await job.done(lease, entries=job.entries(*(f"new{n}" for n in range(count)))) == [True]
    assert await job.counts() == {"queued": 1 + count, "done": 1}
