"""Data of named queues that a Redis frontier keeps on its server."""

import uuid

import pytest

from services.redis_servers import running
from skitter.frontier.options import FrontierContext, SettingsChanges
from skitter.frontier.records import Entry, Outcome, Resolution
from skitter.frontier.redis.frontier import RedisFrontier
from skitter.politeness import HostLimits, LimitRule, Politeness

QUEUES = {"detail": HostLimits(delay=4.0), "list": HostLimits(concurrency_per_slot=1)}
NOW = 1_700_000_000.0


@pytest.fixture
async def job():
    """Open a job: ``frontier, ask = await job(queues)``; ``ask`` sends the server a command about one of its keys."""
    server = running("valkey")
    opened = []

    async def begin(queues=QUEUES, name=None, rules=()):
        name = name or f"job{uuid.uuid4().hex}"
        politeness = Politeness(HostLimits(delay=0.0, concurrency_per_slot=3), rules, queues=queues)
        context = FrontierContext(name, politeness=politeness)
        frontier = RedisFrontier(server.url, context, clock=lambda: clock[0])
        await frontier.open()
        opened.append(frontier)
        return frontier, lambda command, key, *more: server.ask(command, f"skitter:{{{name}}}:{key}", *more)

    clock = [NOW]
    begin.clock = clock
    yield begin
    for frontier in opened:
        await frontier.close()
    for frontier in opened[:1]:
        await frontier.erase()


def entry(slot, name="x", **fields):
    host = slot.rpartition("|")[2]
    return Entry(f"{slot} {name}".encode().ljust(16)[:16], slot, f"http://{host}/{name}", b"\x01", **fields)


async def finish(frontier, shares=None):
    leases = (await frontier.lease("w", 100, (), shares)).leases
    await frontier.commit([Outcome(one.id, Resolution.DONE) for one in leases])
    return leases


async def test_a_job_without_queues_has_nothing_on_the_server_for_them(job):
    frontier, ask = await job({})
    await frontier.add([entry("a.test"), entry("b.test")])
    await finish(frontier)
    assert ask("EXISTS", "ready_by_queue") == 0
    assert ask("HEXISTS", "job", "queues") == 0


async def test_a_host_of_a_queue_with_limits_of_its_own_is_forgotten_when_it_is_idle(job):
    frontier, ask = await job()
    await frontier.add([entry("detail|a.test"), entry("list|a.test"), entry("a.test")])
    assert len(await finish(frontier)) == 3
    assert ask("HLEN", "slots") == 3
    job.clock[0] += 100.0
    await frontier.renew("w", [])
    assert ask("HLEN", "slots") == 0
    assert ask("ZCARD", "ready_by_queue") == 0


@pytest.mark.parametrize("slot", ["a.test", "detail|a.test"])
async def test_a_slot_that_is_ready_at_this_very_moment_is_stranded_without_a_message(job, slot):
    state, _ = await job({})
    await state.add([entry(slot, name, priority=-(2**63)) for name in "ab"])
    assert await state.overdue_slots(0.0) == [(slot, 2)]
    result = (await state.lease_slots("w", [slot], 1, ())).result
    assert len(result.leases) == 1
    assert await state.overdue_slots(0.0) == [(slot, 1)], "its next one may be fetched now, too"
    assert await state.overdue_slots(0.001) == []


async def test_a_delayed_request_obeys_the_limits_of_its_queue_after_its_slot_was_evicted(job):
    frontier, ask = await job()
    await frontier.add([entry("detail|a.test", name, delay=1000.0) for name in "ab"])
    await frontier.renew("w", [])
    assert ask("HLEN", "slots") == 0
    job.clock[0] += 1000.0
    (first,) = await finish(frontier)
    assert first.start_within is not None
    assert await finish(frontier) == []


async def test_a_queued_url_is_stored_without_its_origin_and_restored(job):
    frontier, ask = await job()
    await frontier.add([entry("detail|a.test", "page")])
    (kept,) = ask("ZRANGE", "queue", 0, -1)
    assert b"http" not in kept
    (lease,) = await finish(frontier)
    assert (lease.url, lease.slot) == ("http://a.test/page", "detail|a.test")


async def test_a_process_without_the_spider_reads_the_limits_of_queues(job):
    frontier, _ = await job(rules=[LimitRule(domain_glob="slow.test", delay=60.0)])
    other = RedisFrontier(running("valkey").url, FrontierContext(frontier.job.name, attach=True))
    await other.open()
    assert other.politeness.queues == QUEUES
    assert other.politeness.limits_of("detail|slow.test").delay == 60.0
    await other.close()


async def test_other_limits_of_a_queue_hold_for_the_hosts_that_are_there_when_the_job_continues(job):
    frontier, _ = await job()
    await frontier.add([entry("detail|a.test", name) for name in "abc"])
    await finish(frontier)
    assert await finish(frontier) == []
    again, _ = await job({"detail": HostLimits(delay=0.0)}, frontier.job.name)
    assert len(await finish(again)) == 2


async def test_a_change_for_the_whole_job_does_not_override_the_limits_of_a_queue(job):
    frontier, _ = await job()
    await frontier.control.change_settings(SettingsChanges({"delay": 2.0}))
    await frontier.add([entry(slot, name) for slot in ("detail|a.test", "list|a.test") for name in "ab"])
    first = await finish(frontier)
    assert sorted(one.slot for one in first) == ["detail|a.test", "list|a.test"]
    job.clock[0] += 2.5
    assert [one.slot for one in await finish(frontier)] == ["list|a.test"]
    job.clock[0] += 2.0
    assert [one.slot for one in await finish(frontier)] == ["detail|a.test"]
