"""A host with a delay stays with the worker that fetched from it last, unless that worker is late."""

import random

import pytest

from skitter.frontier.records import FetchReport
from skitter.politeness import HostLimits
from skitter.queues import slot_in

DELAY, AFFINITY = 5.0, 0.5
POLITE = HostLimits(delay=DELAY, concurrency_per_slot=10)


async def fetch(job, worker):
    """Lease and fetch one request as a worker."""
    lease = await job.one(worker)
    assert await job.lease(0, worker, [FetchReport(lease.id, 0.1)]) == []
    await job.done(lease)


@pytest.fixture(params=["default", "details"])
async def polite(start, request):
    """A job with one host, in the default queue or in a named one, whose first page was fetched by the worker "a"."""
    job = await start(POLITE)
    await job.frontier.add(job.entries(*range(9), host=slot_in(request.param, "h.test")))
    await fetch(job, "a")
    return job


async def test_a_ready_host_is_kept_for_the_worker_that_got_its_last_response(polite):
    await polite.clock.advance(DELAY - 0.03125)
    if polite.backend.has_affinity:
        assert (await polite.ask(worker="b")).ask_again == pytest.approx(0.1, abs=1e-3)
        assert (await polite.ask(worker="a")).ask_again == pytest.approx(0.03125, abs=1e-3)
    await polite.clock.advance(0.03125)
    if polite.backend.has_affinity:
        other = await polite.ask(worker="b")
        assert other.leases == []
        assert other.ask_again == pytest.approx(0.1, abs=1e-3)
    await fetch(polite, "a")


async def test_a_worker_that_is_late_or_gone_loses_the_host(polite):
    await polite.frontier.abandon("a")
    await polite.clock.advance(DELAY + AFFINITY)
    await fetch(polite, "b")
    await polite.clock.advance(DELAY)
    if polite.backend.has_affinity:
        assert await polite.lease(worker="a") == [], "it is kept for the other worker now"
    await fetch(polite, "b")


async def test_a_late_worker_gets_its_host_if_it_asks_before_another_one(polite):
    await polite.clock.advance(DELAY + 2 * AFFINITY)
    assert len(await polite.lease(worker="a")) == 1, "though the host is listed twice, one request"
    assert await polite.lease(worker="a") == await polite.lease(worker="b") == []


async def test_a_host_whose_delay_is_short_is_kept_for_no_worker(start):
    job = await start(HostLimits(delay=0.1, concurrency_per_slot=10))
    await job.add(*range(2))
    await fetch(job, "a")
    await job.clock.advance(0.1)
    await fetch(job, "b")


async def test_kept_hosts_share_the_leases_of_a_call_with_new_and_other_hosts(start):
    job = await start(POLITE)
    for worker in "ab":
        for number in range(3):
            await job.add("1", "2", host=f"{worker}{number}.test")
        for _ in range(3):
            await fetch(job, worker)
    await job.clock.advance(DELAY)
    await job.add("1", host="new.test")
    leases = {worker: {lease.slot for lease in await job.lease(worker=worker)} for worker in "ba"}
    if job.backend.has_affinity:
        assert leases["b"] == {"b0.test", "b1.test", "b2.test", "new.test"}
        assert leases["a"] == {"a0.test", "a1.test", "a2.test"}
    await job.clock.advance(AFFINITY)
    late = {lease.slot for lease in await job.lease(worker="b")}
    assert late | leases["a"] | leases["b"] == {*(f"{w}{n}.test" for w in "ab" for n in range(3)), "new.test"}


async def test_workers_that_ask_at_random_keep_all_delays_and_lose_no_request(start):
    job = await start(POLITE)
    slots = [slot_in(queue, f"{number}.test") for queue in ("default", "details") for number in range(3)]
    for slot in slots:
        await job.frontier.add(job.entries(*range(4), host=slot))
    draw, leased, granted = random.Random(1), set(), {}
    began = job.clock()
    while len(leased) < 4 * len(slots):
        assert job.clock() - began < 5 * (DELAY + AFFINITY + 1.0)
        worker = draw.choice("abc")
        for lease in await job.lease(draw.randint(1, 4), worker):
            assert job.clock() - granted.get(lease.slot, 0.0) >= DELAY
            granted[lease.slot] = job.clock()
            assert lease.url not in leased
            leased.add(lease.url)
            await job.lease(0, worker, [FetchReport(lease.id, 0.1)])
            await job.done(lease)
        await job.clock.advance(0.25)
    assert await job.counts() == {"done": 24}
