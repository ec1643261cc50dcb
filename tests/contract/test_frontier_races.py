"""Concurrent calls while the owner has changed its memory but not yet its file, or its file but not yet its memory."""

import asyncio
import contextlib
import threading

import pytest

from skitter.request import Request, encode_request

pytestmark = pytest.mark.parametrize("backend", ["sqlite"], indirect=True)

HELD_UP = 0.3
"""Seconds for which a call runs that must wait for another one."""


def before_change(backend, act):
    """Call ``act`` before the owner's next change of the file."""
    journal = backend.owner._journal
    change = journal.change

    async def late_change(query):
        journal.change = change
        await act()
        return await change(query)

    journal.change = late_change


async def run_for_a_moment(task):
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(HELD_UP):
            await asyncio.shield(task)


def of_task(task):
    return encode_request(Request("", cb_kwargs={"task": task}))


def names_of(leases):
    return [lease.url.rpartition("/")[2] for lease in leases]


async def test_a_letter_that_is_put_back_while_its_host_is_dropped_outlives_a_kill(job, backend):
    await job.add("a", "b")
    await job.fail(await job.one())
    replaying = []

    async def replay():
        replaying.append(asyncio.create_task(job.frontier.dead_letters.replay()))
        await run_for_a_moment(replaying[0])
        await backend.owner._journal.flush()  # as for the commit of a worker

    before_change(backend, replay)
    assert await job.frontier.control.drop_slot("h.test") == 1
    assert await replaying[0] == 1
    await job.kill()
    assert await job.urls_left() == ["a"]


async def test_a_host_that_is_dropped_does_not_come_back_while_its_new_requests_are_read(
    start, backend, small_heads
):
    job = await start(queue_order="lifo")
    await job.add(*range(10))
    leasing = []

    async def add_and_lease():
        await job.add(*range(10, 14))
        leasing.append(asyncio.create_task(job.frontier.unchecked.lease("w", 100)))
        await run_for_a_moment(leasing[0])

    before_change(backend, add_and_lease)
    dropping = asyncio.create_task(job.frontier.unchecked.control.drop_slot("h.test"))
    assert await dropping == 10
    leases = (await leasing[0]).leases
    while more := await job.lease():
        leases += more
    assert sorted(names_of(leases)) == ["10", "11", "12", "13"]


async def test_a_task_is_dropped_although_its_requests_leave_the_memory_meanwhile(
    start, backend, small_heads
):
    job = await start()
    await job.add(*range(6), record=of_task("red"))

    async def add_before_them():
        await job.add("p", "q", "r", priority=5, record=of_task("blue"))
        await job.add("new", priority=9, record=of_task("red"))

    before_change(backend, add_before_them)
    assert await job.frontier.control.drop_task("red") == 6
    assert await job.urls_left() == ["new", "p", "q", "r"]


async def test_a_letter_that_was_put_back_does_not_count_as_lost_with_a_lease_that_has_ended(job, backend):
    await job.add("a", "b")
    first, _ = await job.lease(2)  # they share a row of the file
    await backend.flush_leases()
    await job.retry(first)
    await job.fail(await job.one())
    assert await job.frontier.dead_letters.replay() == 1
    await job.kill()
    assert (await job.status()).counters["leases/lost"] == 1, "only b was in progress"


async def test_delayed_requests_that_are_due_are_leased_although_the_first_caller_was_cancelled(job, backend):
    await job.add(*range(3), delay=5.0)
    await job.seeds_done()
    await job.clock.advance(10)
    tables = backend.owner._journal._tables
    take_due, has_begun, may_continue = tables.take_due, threading.Event(), threading.Event()

    def slow_take_due(*arguments):
        has_begun.set()
        may_continue.wait()
        return take_due(*arguments)

    tables.take_due = slow_take_due
    asking = asyncio.create_task(job.frontier.unchecked.status())
    try:
        await asyncio.to_thread(has_begun.wait)
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking
    finally:
        may_continue.set()
    await backend.owner._journal.read(lambda _: None)  # the move was requested earlier, so it has ended
    assert len(await job.lease()) == 3
    assert await job.counts() == {"leased": 3}


async def test_the_status_while_delayed_requests_move_to_the_queue_has_no_infinite_wait(job, backend):
    await job.add("soon", "late")
    soon, late = await job.lease()
    await job.retry(soon, after=5.0)
    await job.retry(late, after=1000.0)
    await job.clock.advance(6.0)
    found = []

    async def read_status():
        found.append(await job.frontier.unchecked.status())

    before_change(backend, read_status)
    assert names_of(await job.lease()) == ["soon"]
    assert [(status.delayed, status.next_due) for status in found] == [(2, 0.0)]
    assert 990.0 < (await job.status()).next_due <= 994.0
