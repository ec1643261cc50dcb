"""Several workers of one job, and the keys that a job leaves on the server."""

import pytest

from services.frontier_requests import counts, done, entries
from skitter.frontier.options import FrontierContext
from skitter.frontier.redis.frontier import RedisFrontier
from skitter.frontier.redis.job import RedisJob, keys_of
from skitter.frontier.redis.server_errors import JobGone
from skitter.frontier.workers import WorkerReport
from skitter.politeness import HostLimits, LimitRule, Politeness


async def test_all_members_of_the_fleet_see_the_same_state(server, join):
    one, other = await join(server.url), await join(server.url)
    await one.add(entries(*range(6)))
    first = (await one.lease("one", 3)).leases
    second = (await other.lease("other", 9)).leases
    assert len({lease.url for lease in first + second}) == 6
    assert await other.renew("other", [first[0].id]) == [first[0].id]
    assert await one.abandon("other") == 3
    assert await other.commit(done(*second)) == [False] * 3


async def test_a_job_that_was_erased_is_gone_for_its_workers(server, join):
    frontier = await join(server.url)
    await frontier.add(entries("a"))
    other = RedisFrontier(server.url, FrontierContext(frontier.job.name))
    await other.erase()
    with pytest.raises(JobGone):
        await frontier.add(entries("b"))
    await join(server.url)
    with pytest.raises(JobGone):
        await frontier.lease("w", 1)


async def test_other_rules_hold_for_hosts_that_wait_already(server, join):
    one = await join(server.url)
    await one.add(entries(*range(5), host="slow.test"))
    await one.add(entries(*range(5), host="fast.test"))
    slow = LimitRule(domain_glob="slow.*", concurrency_per_slot=1)
    other = await join(server.url, Politeness(HostLimits(delay=0.0, concurrency_per_slot=1000), [slow]))
    hosts = [lease.slot for lease in (await other.lease("w", 100)).leases]
    assert (hosts.count("slow.test"), hosts.count("fast.test")) == (1, 5)


SLOW = LimitRule(domain_glob="slow.*", delay=30.0)
FAST = LimitRule(domain_glob="fast.*", delay=0.0)
FREE = HostLimits(delay=0.0, concurrency_per_slot=1000)


async def delay_of(frontier, host):
    (delay,) = [slot.delay for slot in await frontier.reports.slots(10) if slot.key == host]
    return delay


async def test_changed_rules_hold_though_a_process_died_while_it_put_them_into_force(
    server, join, monkeypatch
):
    one = await join(server.url, Politeness(FREE, [SLOW]))
    await one.add(entries(*range(5), host="slow.test"))

    async def die(_job, _before):
        raise ConnectionAbortedError

    with monkeypatch.context() as patched:
        patched.setattr(RedisJob, "_assign_policies", die)
        with pytest.raises(ConnectionAbortedError):
            await join(server.url, Politeness(FREE, [FAST, SLOW]))
    other = await join(server.url, Politeness(FREE, [FAST, SLOW]))
    assert await delay_of(other, "slow.test") == 30.0


async def test_changed_rules_hold_for_requests_of_a_worker_that_started_with_others(server, join):
    one = await join(server.url, Politeness(FREE, [SLOW]))
    await one.lease("w", 1)
    other = await join(server.url, Politeness(FREE, [FAST, SLOW]))
    await one.lease("w", 1)
    await one.add(entries(*range(5), host="slow.test"))
    assert await delay_of(other, "slow.test") == 30.0


@pytest.mark.parametrize("runs", [True, False])
async def test_a_machine_that_changes_the_limits_of_running_workers_says_so(server, join, caplog, runs):
    one = await join(server.url, Politeness(HostLimits(delay=2.0, concurrency_per_slot=1)))
    if runs:
        await one.reports.announce(WorkerReport("w", "host", 1, "1", 0.0, 1, 0, 0, 0, 0, 0, 0.0), 60.0)
    await join(server.url, Politeness(HostLimits(delay=2.0, concurrency_per_slot=1)))
    assert not caplog.records
    await join(server.url, Politeness(HostLimits(concurrency_per_slot=4)))
    messages = [record.getMessage() for record in caplog.records]
    expected = "(delay 2.0 -> None, concurrency_per_slot 1 -> 4), and 1 are running; start every machine with"
    assert len(messages) == runs
    assert all(expected in message for message in messages)


async def test_a_rule_applies_to_delayed_requests_of_an_evicted_host(server, join):
    slow = LimitRule(domain_glob="slow.*", concurrency_per_slot=1)
    now = [1_700_000_000.0]
    rules = Politeness(HostLimits(delay=0.0, concurrency_per_slot=1000), [slow])
    frontier = await join(server.url, rules, clock=lambda: now[0])
    await frontier.add(entries(*range(5), host="slow.test", delay=30.0))
    await frontier.renew("w", [])
    assert await counts(frontier) == {"delayed": 5}
    now[0] += 31.0
    assert await counts(frontier) == {"queued": 5}
    assert len((await frontier.lease("w", 100)).leases) == 1


async def test_idle_hosts_and_expired_notes_are_removed(server, join, ask):
    frontier = await join(server.url)
    for number in range(50):
        await frontier.add(entries("a", host=f"h{number}.test"))
    leases = (await frontier.lease("w", 100)).leases
    await frontier.commit(done(*leases))
    await frontier.notes.put("short", b"x", 0.0)
    await frontier.notes.put("long", b"x", 1000.0)
    await frontier.control.pause_slot("held.test", 1000.0)
    await frontier.renew("w", [])
    assert await ask.hkeys(f"skitter:{{{frontier.job.name}}}:slots") == [b"held.test"]
    assert await ask.hkeys(f"skitter:{{{frontier.job.name}}}:notes") == [b"long"]


async def test_a_finished_job_keeps_only_its_durable_records(server, join, ask):
    frontier = await join(server.url)
    await frontier.add(entries(*range(100)))
    await frontier.commit(done(*(await frontier.lease("w", 100)).leases))
    await frontier.renew("w", [])
    left = {key.rpartition(b":")[2] for key in await ask.keys(f"skitter:{{{frontier.job.name}}}:*")}
    assert left == {b"job", b"seen", b"answers"}


def test_all_keys_of_a_job_have_its_hash_tag():
    assert all(key.startswith("skitter:{news}:") for key in keys_of("news"))
