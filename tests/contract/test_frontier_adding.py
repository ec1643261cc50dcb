"""Adding requests: duplicates, known URLs and the order of leases."""

import asyncio
import random
from collections import Counter

import pytest

from skitter.frontier.records import AddResult, Entry, JobState
from skitter.politeness import HostLimits


async def test_each_fingerprint_is_added_once(job):
    assert await job.frontier.add(job.entries("a", "b", "a")) == AddResult(added=2, known=1)
    assert await job.frontier.add(job.entries("b", "c")) == AddResult(added=1, known=1)
    assert await job.counts() == {"queued": 3}


async def test_known_links_are_counted(job):
    await job.add("a", "a", "b")
    lease = await job.one()
    await job.done(lease, entries=job.entries("a", "b", "c"))
    assert (await job.status()).counters["refused/duplicate"] == 3


async def test_a_batch_adds_the_same_as_its_requests_one_by_one(job):
    await job.add("a", "known", "7", "8")
    rng = random.Random(3)
    names = [str(rng.randrange(40)) for _ in range(60)]
    hosts = [rng.choice(["h.test", "h.test", "i.test", "j.test"]) for _ in names]
    priorities = [rng.choice([0, 0, 0, -1, -2]) for _ in names]
    entries = [
        job.entry(*place, priority=priority, record=b"\x01x")
        for *place, priority in zip(names, hosts, priorities, strict=True)
    ]
    lease = await job.one()
    batches = [job.batch(entries[:50]), job.batch(entries[50:])]
    assert await job.done(lease, entries=job.entries("known", "b"), batches=batches) == [True]
    expected = {}
    for entry in entries:
        expected.setdefault(entry.fingerprint, entry)
    known = [expected.pop(entry.fingerprint, None) for entry in job.entries("7", "8")]
    assert any(known)
    counters = (await job.status()).counters
    assert counters["refused/duplicate"] == 1 + len(entries) - len(expected)
    assert await job.counts() == {"done": 1, "queued": len(expected) + 4}
    leases = [lease for lease in await job.lease() if lease.record == b"\x01x"]
    found = [(lease.url, lease.slot, lease.record) for lease in leases]
    assert sorted(found) == sorted((entry.url, entry.slot, entry.record) for entry in expected.values())
    for slot in set(hosts):
        urls = [lease.url for lease in leases if lease.slot == slot]
        ranked = sorted(expected.values(), key=lambda entry: -entry.priority)
        assert urls == [entry.url for entry in ranked if entry.slot == slot]


async def test_a_batch_of_a_late_outcome_or_for_a_banned_slot_adds_nothing(job):
    await job.add("a", "b")
    late = await job.one()
    await job.done(late)
    assert await job.done(late, batches=[job.batch(job.entries("x", "y"))]) == [False]
    await job.frontier.control.drop_slot("i.test", ban=True)
    lease = await job.one()
    links = [*job.entries("x", "y"), *job.entries("z", host="i.test")]
    assert await job.done(lease, batches=[job.batch(links)]) == [True]
    assert await job.counts() == {"done": 2, "queued": 2}
    assert (await job.status()).counters["refused/banned"] == 1


async def test_a_batch_may_wait_until_its_time(job):
    await job.add("a")
    await job.done(await job.one(), batches=[job.batch(job.entries("x", "y", delay=5.0))])
    assert await job.counts() == {"done": 1, "delayed": 2}
    await job.clock.advance(5)
    assert len(await job.lease()) == 2


async def test_adding_at_once_adds_each_request_once(job):
    entries = job.entries(*range(50))
    results = await asyncio.gather(*(job.frontier.add(entries) for _ in range(5)))
    assert sum(result.added for result in results) == 50
    assert await job.counts() == {"queued": 50}


async def test_a_request_stays_known_in_every_state(job):
    await job.add("a")
    for step in (job.retry, job.fail):
        assert await job.add("a") == 0
        lease = await job.one()
        assert await job.add("a") == 0
        await step(lease)
    assert await job.add("a") == 0
    assert await job.counts() == {"failed": 1}


async def test_unknown_returns_the_new_fingerprints(job):
    await job.add("a")
    prints = [entry.fingerprint for entry in job.entries("a", "b", "c")]
    assert await job.frontier.unknown(prints) == [False, True, True]
    assert await job.frontier.unknown([]) == []


async def test_a_look_up_does_not_make_a_fingerprint_known(job):
    await job.frontier.unknown([job.entry("a").fingerprint])
    assert await job.add("a") == 1


async def test_a_request_without_dedup_is_always_added_and_never_becomes_known(job):
    assert await job.add("a", "a", dedup=False) == 2
    assert await job.add("a") == 1
    assert await job.add("a", dedup=False) == 1
    leases = await job.lease()
    assert len({lease.id for lease in leases}) == 4
    await job.done(*leases)
    assert await job.counts() == {"done": 4}


async def test_empty_calls_do_nothing(job):
    assert await job.frontier.add([]) == AddResult(0, 0)
    assert await job.frontier.commit([]) == []
    assert await job.frontier.renew("w", []) == []
    await job.frontier.release([])
    assert await job.frontier.abandon("nobody") == 0
    assert (await job.ask(0)).leases == []
    assert await job.frontier.dead_letters.replay([]) == 0
    assert await job.frontier.dead_letters.drop([]) == 0
    assert await job.frontier.dead_letters.list() == []
    assert await job.frontier.reports.outputs() == {}


async def test_ten_thousand_requests_are_leased_once_each(job):
    hosts = [f"h{number}.test" for number in range(10)]
    entries = [job.entry(number, hosts[number % 10]) for number in range(10_000)]
    assert (await job.frontier.add(entries)).added == 10_000
    leases = []
    while more := await job.lease(4_000):
        leases += more
    assert Counter(lease.url for lease in leases) == Counter(entry.url for entry in entries)
    assert await job.done(*leases) == [True] * 10_000
    assert await job.counts() == {"done": 10_000}


async def test_a_lease_carries_the_whole_request(job):
    record = bytes(range(256)) * 4096
    entry = Entry(b"\0" * 16, "pool of hosts", "http://bücher.test/ä?q=\u2603", record, priority=3)
    await job.frontier.add([entry])
    lease = await job.one()
    assert (lease.fingerprint, lease.slot, lease.url) == (entry.fingerprint, entry.slot, entry.url)
    assert lease.record == record
    assert (lease.attempt, lease.lost) == (0, 0)


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63)])
async def test_a_priority_may_be_any_64_bit_integer(job, value):
    await job.add("default")
    await job.add("extreme", priority=value)
    await job.add("one", priority=1)
    await job.add("minus", priority=-1)
    middle = ["one", "default", "minus"]
    assert await job.urls_left() == (["extreme", *middle] if value > 0 else [*middle, "extreme"])


async def test_higher_priorities_first_then_first_come(job):
    generator = random.Random(1)
    entries = [job.entry(f"{n}", priority=generator.randint(-3, 3)) for n in range(600)]
    for start in range(0, 600, 50):
        await job.frontier.add(entries[start : start + 50])
    by_priority = sorted(range(600), key=lambda n: (-entries[n].priority, n))
    assert await job.urls_left() == [f"{n}" for n in by_priority]


@pytest.mark.parametrize("order", ["fifo", "lifo"])
async def test_fifo_and_lifo_look_at_no_priority(start, order):
    job = await start(queue_order=order)
    names = [f"{n}" for n in range(600)]
    for n in range(0, 600, 50):
        await job.frontier.add([job.entry(name, priority=int(name) % 7) for name in names[n : n + 50]])
    assert await job.urls_left() == (names if order == "fifo" else names[::-1])


async def test_random_order_is_neither_fifo_nor_lifo(start):
    job = await start(queue_order="random")
    names = [f"{n}" for n in range(600)]
    await job.add(*names)
    left = await job.urls_left()
    assert sorted(left) == sorted(names)
    # In a shuffle, the sum of |place - number| is about n*n/3. In FIFO and LIFO order it would be 0 and n*n/2.
    assert 90_000 < sum(abs(place - int(name)) for place, name in enumerate(left)) < 150_000


async def test_a_later_request_with_a_higher_priority_is_leased_first(job):
    await job.add(*range(600))
    await job.one()
    await job.add("urgent", priority=1)
    assert (await job.one()).url.endswith("urgent")


async def test_requests_wait_until_their_time(job):
    await job.add("absolute", not_before=job.clock() + 20.0)
    await job.add("relative", delay=10.0)
    await job.add("later of both", not_before=job.clock() + 5.0, delay=30.0)
    await job.add("long past", not_before=1.0)
    assert await job.counts() == {"queued": 1, "delayed": 3}
    assert (await job.one()).url.endswith("long past")
    for name in ("relative", "absolute", "later of both"):
        await job.clock.advance(9.998)
        assert await job.lease() == []
        await job.clock.advance(0.002)
        assert (await job.one()).url.endswith(name)  # due at 10, 20 and 30 seconds


async def test_a_request_that_was_delayed_keeps_its_priority(job):
    await job.add("low", priority=-1)
    await job.add("middle")
    await job.add("high", priority=1, delay=5.0)
    await job.clock.advance(5.0)
    assert await job.urls_left() == ["high", "middle", "low"]


async def test_many_delayed_requests_become_due_together(job):
    await job.add(*range(3_000), delay=5.0)
    await job.clock.advance(5.0)
    assert len(await job.lease()) == 3_000


async def test_ask_again_is_no_later_than_the_next_request(start):
    job = await start(HostLimits(delay=2.0, concurrency_per_slot=10))
    await job.add("a", "b")
    await job.one()
    await job.add("c", host="other.test", delay=0.03125)
    answer = await job.ask()
    assert (answer.leases, answer.state) == ([], JobState.RUNNING)
    assert 0 < answer.ask_again <= 0.03125
    await job.clock.advance(0.03125)
    assert [lease.slot for lease in await job.lease()] == ["other.test"]


async def test_ask_again_never_lets_a_worker_spin(start):
    """Each answer without work has a wait of at least some milliseconds."""
    job = await start(HostLimits(delay=100.0, concurrency_per_slot=10))
    assert (await job.ask()).ask_again > 0.001  # seeds are still loading
    await job.add("a", "b")
    assert (await job.ask()).ask_again > 0.001  # the host has to wait for its delay
    await job.frontier.control.set_state(JobState.PAUSED)
    await job.add("c", host="other.test")
    assert (await job.ask()).ask_again > 0.001  # paused, with a request to fetch


async def test_visited_pages_are_known_forever_by_default(job):
    await job.add("a")
    await job.done(await job.one())
    await job.clock.advance(1e9)
    assert await job.add("a") == 0


async def test_a_visit_is_known_for_its_ttl(start):
    job = await start(visited_ttl=100.0)
    await job.add("a")
    await job.clock.advance(1000.0)
    await job.done(await job.one())
    await job.clock.advance(99.0)
    assert await job.add("a") == 0
    await job.clock.advance(1.0)
    assert await job.frontier.unknown([job.entry("a").fingerprint]) == [True]
    assert await job.add("a") == 1
    assert await job.counts() == {"queued": 1, "done": 1}


async def test_a_ttl_of_zero_lets_a_page_be_added_again_as_soon_as_it_is_done(start):
    job = await start(visited_ttl=0.0)
    await job.add("a")
    await job.done(await job.one(), entries=job.entries("a"))
    assert await job.counts() == {"queued": 1, "done": 1}
    assert await job.add("a") == 0


@pytest.mark.parametrize("ttl", [0.0, 10.0])
async def test_pending_fingerprints_never_expire(start, ttl):
    job = await start(visited_ttl=ttl, lease_seconds=1e6)
    await job.add("queued", "leased")
    await job.add("delayed", delay=1e5)
    await job.lease(1)
    await job.clock.advance(1e4)
    assert await job.add("queued", "leased", "delayed") == 0


async def test_a_visit_without_dedup_is_not_remembered(start):
    job = await start(visited_ttl=100.0)
    await job.add("a", dedup=False)
    await job.done(await job.one())
    assert await job.add("a") == 1
