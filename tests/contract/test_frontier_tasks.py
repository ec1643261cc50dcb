"""Dropping the waiting requests of a task, on every backend."""

import asyncio

import pytest

from skitter.frontier.embedded import requests
from skitter.frontier.records import Outcome, Resolution
from skitter.politeness import HostLimits
from skitter.request import Request, encode_request


def of_task(task, **words):
    """Return the stored form of a request of a task."""
    return encode_request(Request("", cb_kwargs={**words, "task": task}, meta={"task": task}))


async def test_closing_a_task_drops_its_waiting_requests_at_every_host(job):
    for host in ("one.test", "two.test"):
        await job.add(*range(600), host=host, record=of_task("red", data={"page": 1}))
        await job.add("a", "b", host=host, record=of_task("redder", data={"task": "red"}))
        await job.add("first", host=host, record=of_task("red"), priority=7)
        await job.add("later", host=host, record=of_task("red"), delay=60.0)
        await job.add("c", host=host, record=of_task("blue"), delay=60.0)
    held = await job.one()
    assert await job.frontier.control.drop_task("red") == 1203
    assert await job.counts() == {"queued": 4, "delayed": 2, "leased": 1}
    assert (await job.status()).counters["refused/dropped"] == 1203
    assert await job.done(held) == [True]
    await job.clock.advance(100)
    assert sorted(await job.urls_left()) == ["a", "a", "b", "b", "c", "c"]
    await job.seeds_done()
    assert await job.is_finished()


async def test_a_task_whose_host_is_slow_does_not_keep_the_job_from_its_end(start):
    job = await start(HostLimits(delay=3600.0))
    await job.seeds_done()
    await job.add(*range(50), host="slow.test", record=of_task("slow"))
    await job.done(await job.one())
    assert await job.frontier.control.drop_task("slow") == 49
    assert await job.is_finished()


async def test_dropped_requests_of_a_task_stay_known_and_new_ones_are_accepted(job):
    await job.add("a", "b", record=of_task("red"))
    assert await job.frontier.control.drop_task("red") == 2
    assert await job.add("a", "c", record=of_task("red")) == 1
    assert await job.frontier.control.drop_task("never") == 0
    assert await job.urls_left() == ["c"]


@pytest.mark.parametrize("task", ["rot/grün 7", "http://h.test/", "x" * 300, "", "\U0001f577"])
async def test_a_task_may_be_called_anything(job, task):
    await job.add("a", record=of_task(task, links=["http://h.test/x"]))
    await job.add("b", record=of_task("other"))
    await job.add("c", record=b"\x01no request")
    assert await job.frontier.control.drop_task(task) == 1
    assert await job.counts() == {"queued": 2}


async def test_a_task_is_dropped_from_a_queue_that_other_tasks_fill_and_empty(job, monkeypatch):
    """No request of another task is lost, and each is leased once, while requests are added and finished."""
    monkeypatch.setattr(requests, "SEARCH_BATCH_SIZE", 50)
    red, blue = of_task("red"), of_task("blue")
    for start_at in range(0, 2000, 100):
        await job.add(*range(start_at, start_at + 50), record=red)
        await job.add(*range(start_at + 50, start_at + 100), record=blue)
    frontier = job.frontier.unchecked
    done = []

    async def work(worker):
        for turn in range(15):
            leases = (await frontier.lease(worker, 20)).leases
            back, ready = (leases[:5], leases[5:]) if turn % 3 == 0 else ([], leases)
            await frontier.release([lease.id for lease in back])
            new = [job.entry(f"{worker}-{turn}-{n}", record=blue, priority=n % 3 - 1) for n in range(10)]
            await frontier.add(new)
            await frontier.commit([Outcome(lease.id, Resolution.DONE) for lease in ready])
            done.extend(ready)

    dropped, *_ = await asyncio.gather(frontier.control.drop_task("red"), work("ann"), work("ben"))
    again = await job.frontier.control.drop_task("red")
    assert dropped > 0
    left = []
    while leases := await job.lease(100):
        await job.done(*leases)
        left += leases
    assert all(lease.record == blue for lease in left)
    reds = [lease for lease in done if lease.record == red]
    assert len(reds) + dropped + again == 1000
    blues = [lease.url for lease in [*done, *left] if lease.record == blue]
    assert (len(blues), len(set(blues))) == (1300, 1300)


async def test_dropped_requests_stay_removed_after_a_kill(start, backend):
    if not backend.durable:
        return  # a job in memory has no restart, and a server's job does not end with a process
    job = await start()
    await job.add(*range(700), record=of_task("red"))
    await job.add("late", record=of_task("red"), delay=50.0)
    await job.add("stays", record=of_task("blue"))
    assert await job.frontier.control.drop_task("red") == 701
    await job.kill()
    assert await job.counts() == {"queued": 1}
    assert await job.urls_left() == ["stays"]
