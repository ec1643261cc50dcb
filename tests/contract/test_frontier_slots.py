"""Politeness towards hosts, over all workers together."""

from itertools import pairwise

import pytest

from skitter.frontier.records import FetchReport
from skitter.politeness import HostLimits, LimitRule, Rate

STEP = 0.0625


async def test_a_host_never_has_more_leases_in_flight_than_its_parallelism(start):
    job = await start(HostLimits(delay=0.0, concurrency_per_slot=2))
    await job.add(*range(5))
    await job.add(*range(5), host="other.test")
    assert sorted(lease.slot for lease in await job.lease()) == ["h.test"] * 2 + ["other.test"] * 2
    assert await job.lease(worker="second") == []


async def test_the_end_of_a_fetch_frees_the_place_while_the_lease_continues(start):
    job = await start(HostLimits(delay=0.0, concurrency_per_slot=1))
    await job.add("a", "b")
    first = await job.one()
    (second,) = await job.lease(reports=[FetchReport(first.id, 0.1)])
    assert await job.counts() == {"leased": 2}
    assert await job.done(first, second) == [True, True]


async def test_a_second_report_of_a_fetch_frees_no_second_place(start):
    job = await start(HostLimits(delay=0.0, concurrency_per_slot=1))
    await job.add("a", "b", "c")
    first = await job.one()
    twice = [FetchReport(first.id, 0.1), FetchReport(first.id, 0.1)]
    assert len(await job.lease(reports=twice)) == 1
    assert await job.lease(reports=twice) == []
    await job.done(first)
    assert await job.lease() == []


async def test_fetch_reports_of_unknown_or_ended_leases_are_harmless(start):
    job = await start(HostLimits(delay=0.0, concurrency_per_slot=1))
    await job.add("a", "b", "c")
    first = await job.one()
    await job.done(first)
    (second,) = await job.lease(reports=[FetchReport(first.id, 0.1), FetchReport(10**15, 0.1)])
    assert await job.lease(reports=[FetchReport(first.id, 0.1)]) == []
    await job.done(second)
    assert len(await job.lease()) == 1


@pytest.mark.parametrize(
    "limits", [HostLimits(delay=10.0), HostLimits(rates=("2/10s",)), HostLimits(delay=10.0, jitter=5.0)]
)
async def test_a_time_slot_without_a_sent_request_is_used_by_another(start, limits):
    job = await start(limits)
    await job.add("a", "b", "c", "d")
    if limits.rates:
        await job.one()
    unsent = await job.one()
    assert await job.lease() == []
    (_,) = await job.lease(reports=[FetchReport(unsent.id, sent=False)])
    assert await job.lease() == []


async def test_an_unsent_request_returns_the_time_slot_only_if_it_was_leased_last(start):
    job = await start(HostLimits(delay=1.0, concurrency_per_slot=3))
    await job.add("a", "b", "c")
    first = await job.one()
    await job.wait_for_one()
    assert await job.lease(reports=[FetchReport(first.id, sent=False)]) == []


@pytest.mark.parametrize("end", ["done", "retry", "fail", "release", "abandon", "expire"])
async def test_the_end_of_a_lease_whose_fetch_was_not_reported_frees_its_place(start, end):
    job = await start(HostLimits(delay=0.0, concurrency_per_slot=1), lease_seconds=10.0)
    await job.add("a", "b")
    lease = await job.one()
    assert await job.lease() == []
    if end == "release":
        await job.frontier.release([lease.id])
    elif end == "abandon":
        await job.frontier.abandon("w")
    elif end == "expire":
        await job.clock.advance(10.0)
    else:
        await getattr(job, end)(lease)
    assert len(await job.lease()) == 1


async def test_grants_are_spaced_by_delay_and_grace(start):
    job = await start(HostLimits(delay=2.0, concurrency_per_slot=100))
    await job.add(*range(3))
    first = await job.one()
    assert 0 < first.start_within < 2.0
    await job.clock.advance(2.0 + first.start_within - 0.001)
    assert await job.lease(worker="other") == []
    await job.clock.advance(0.002)
    assert len(await job.lease(worker="other")) == 1


async def test_once_all_fetches_have_ended_the_delay_alone_is_waited_for(start):
    job = await start(HostLimits(delay=2.0, concurrency_per_slot=100))
    await job.add(*range(4))
    await job.end_fetch(await job.one())
    await job.clock.advance(1.999)
    assert await job.lease() == []
    await job.clock.advance(0.002)
    (second,) = await job.lease()
    _, third = await job.wait_for_one()
    await job.end_fetch(third)
    await job.clock.advance(2.001)
    assert await job.lease() == [], "the second may not have been sent yet"
    await job.end_fetch(second)


async def test_a_grant_without_a_fetch_report_keeps_its_grace_period(start):
    job = await start(HostLimits(delay=2.0, concurrency_per_slot=100))
    await job.add(*range(2))
    lease = await job.one()
    await job.frontier.abandon("w")
    await job.clock.advance(2.0 + lease.start_within - 0.001)
    assert await job.lease() == []
    await job.clock.advance(0.002)
    assert len(await job.lease()) == 1


async def test_a_connection_that_takes_long_widens_the_grace_of_its_host_alone(start):
    job = await start(HostLimits(delay=2.0, concurrency_per_slot=100))
    await job.add(*range(3))
    await job.add(*range(3), host="near.test")
    for lease in await job.lease():
        await job.end_fetch(lease, None, connecting=0.5 if lease.slot == "h.test" else 0.0)
    await job.clock.advance(2.25)
    graces = {lease.slot: lease.start_within for lease in await job.lease()}
    assert graces == pytest.approx({"h.test": 1.0, "near.test": 0.2})
    await job.clock.advance(2.3)
    assert [lease.slot for lease in await job.lease()] == ["near.test"]
    await job.clock.advance(0.6)
    assert await job.lease() == []
    await job.clock.advance(0.2)
    assert [lease.slot for lease in await job.lease()] == ["h.test"]


async def test_the_delay_counts_from_the_grant_even_if_it_is_not_used(start):
    job = await start(HostLimits(delay=2.0, concurrency_per_slot=1))
    await job.add("a", "b")
    lease = await job.one()
    await job.done(lease)
    await job.clock.advance(1.9)
    assert await job.lease() == []
    await job.clock.advance(0.4)
    assert len(await job.lease()) == 1


async def test_a_lease_without_a_delay_has_no_start_deadline(start):
    job = await start(HostLimits(delay=0.0, concurrency_per_slot=2))
    await job.add("a")
    assert (await job.one()).start_within is None


async def test_an_adapted_delay_promises_no_distance(start):
    job = await start(HostLimits())
    await job.add("a", "b")
    await job.end_fetch(await job.one(), latency=4.0)
    _, lease = await job.wait_for_one()
    assert lease.start_within is None


async def test_jitter_makes_waits_differ_within_its_bound(start):
    job = await start(HostLimits(delay=1.0, jitter=1.0, concurrency_per_slot=100))
    await job.add(*range(40))
    await job.one()
    waits = [(await job.wait_for_one())[0] for _ in range(30)]
    assert min(waits) >= 1.0
    assert max(waits) <= 2.0 + 0.1 + STEP
    assert max(waits) - min(waits) > 0.25


async def test_all_layered_rates_hold_wherever_a_fetch_begins_in_its_grace(start):
    rates = ("2/1s", "5/10s")
    job = await start(HostLimits(delay=0.0, concurrency_per_slot=100, rates=rates))
    await job.add(*range(100))
    grants = []
    while job.clock.now < 1_700_000_060.0:
        grants += [(job.clock.now, lease.start_within) for lease in await job.lease()]
        await job.clock.advance(0.125)
    for rate in map(Rate.parse, rates):
        for (early, within), (late, _) in zip(grants, grants[rate.count :], strict=False):
            assert late - (early + within) >= rate.per - 1e-6
    assert 25 <= len(grants) <= 30  # and not too slow: 5 in each 10 s and a grace


async def test_hosts_take_turns(start):
    job = await start(HostLimits(delay=1.0, concurrency_per_slot=1))
    for host in ("a.test", "b.test", "c.test"):
        await job.add(*range(3), host=host)
    turns = []
    for _ in range(9):
        _, lease = await job.wait_for_one(step=0.25)
        turns.append(lease.slot)
        await job.end_fetch(lease)
    assert [sorted(turns[n : n + 3]) for n in (0, 3, 6)] == [["a.test", "b.test", "c.test"]] * 3
    assert turns[0:3] == turns[3:6] == turns[6:9]


async def test_a_slow_host_does_not_hold_up_the_others(start):
    slow = LimitRule(domain_glob="slow.test", delay=1000.0)
    job = await start(HostLimits(delay=0.0, concurrency_per_slot=4), [slow])
    await job.add(*range(3), host="slow.test")
    await job.add(*range(3), host="fast.test")
    assert sorted(lease.slot for lease in await job.lease()) == ["fast.test"] * 3 + ["slow.test"]


async def test_hosts_that_may_not_exist_do_not_hold_up_one_that_has_answered(start):
    job = await start(HostLimits(delay=0.0, concurrency_per_slot=100))
    await job.add(*range(20), host="good.test")
    lease = await job.one()
    await job.end_fetch(lease)
    for number in range(200):
        await job.add("page", host=f"h{number}.test")
    leased = [lease.slot for lease in await job.lease(80)]
    assert leased.count("good.test") >= 10
    assert len(set(leased)) > 10  # the others are tried as well


async def test_all_leases_go_to_new_hosts_while_no_other_is_ready(start):
    job = await start(HostLimits(delay=1000.0, concurrency_per_slot=1))
    await job.add(1, 2, host="good.test")
    lease = await job.one()
    await job.end_fetch(lease)
    for number in range(20):
        await job.add("page", host=f"h{number}.test")
    assert len({lease.slot for lease in await job.lease(20)} - {"good.test"}) == 20


async def test_a_rule_pools_all_its_hosts_in_one_slot(start):
    rule = LimitRule(domain_glob="*.shop.test", concurrency_per_slot=1, unit="rule")
    job = await start(HostLimits(delay=0.0, concurrency_per_slot=4), [rule])
    for host in ("a.shop.test", "b.shop.test"):
        entry = job.entry("page", host)
        slotted = type(entry)(entry.fingerprint, job.politeness.slot_of(host), entry.url, entry.record)
        await job.frontier.add([slotted])
    assert len(await job.lease()) == 1


async def test_a_paused_slot_grants_no_lease_until_its_time(job):
    await job.add("a", "b")
    await job.add("a", host="other.test")
    await job.frontier.control.pause_slot("h.test", 5.0)
    await job.frontier.control.pause_slot("h.test", 1.0)
    assert [lease.slot for lease in await job.lease()] == ["other.test"]
    await job.clock.advance(4.999)
    assert await job.lease() == []
    held = next(slot for slot in (await job.status()).busiest if slot.key == "h.test")
    assert 0 < held.paused_for <= 0.01
    await job.clock.advance(0.002)
    assert len(await job.lease()) == 2


async def test_a_slot_can_be_held_before_it_has_any_request(job):
    await job.frontier.control.pause_slot("h.test", 5.0)
    await job.add("a")
    assert await job.lease() == []


async def test_a_crawl_delay_counts_from_the_robots_txt_that_was_just_read(job):
    await job.add("a", "b")
    await job.clock.advance(100.0)
    await job.frontier.control.set_delay("h.test", 3.0)
    await job.clock.advance(2.999)
    assert await job.lease() == []
    waited, lease = await job.wait_for_one()
    assert lease.start_within is not None
    waited, _ = await job.wait_for_one()
    assert 3.0 + lease.start_within <= waited <= 3.0 + lease.start_within + STEP


@pytest.mark.parametrize(("own", "crawl_delay", "holds"), [(5.0, 1.0, 5.0), (1.0, 5.0, 5.0)])
async def test_the_longer_of_own_delay_and_crawl_delay_holds(start, own, crawl_delay, holds):
    job = await start(HostLimits(delay=own, concurrency_per_slot=10))
    await job.frontier.control.set_delay("h.test", crawl_delay)
    await job.add("a", "b", "c")
    assert (await job.status()).busiest[0].delay == holds
    await job.wait_for_one()
    waited, _ = await job.wait_for_one()
    assert holds <= waited <= holds + 0.1 * holds + STEP


async def test_a_crawl_delay_can_be_lowered_again(job):
    await job.frontier.control.set_delay("h.test", 100.0)
    await job.add(*range(3))
    await job.wait_for_one()
    await job.frontier.control.set_delay("h.test", 0.0)
    assert (await job.status()).busiest[0].delay == 0.0


async def test_retry_after_holds_the_whole_slot(start):
    job = await start(HostLimits(delay=0.0, concurrency_per_slot=10))
    await job.add(*range(5))
    first = await job.one()
    await job.add("a", host="other.test")
    await job.end_fetch(first, refused=True, retry_after=30.0)
    assert [lease.slot for lease in await job.lease()] == ["other.test"]
    await job.clock.advance(29.999)
    assert await job.lease() == []
    await job.clock.advance(0.002)
    assert len(await job.lease()) == 4


async def refuse(job, lease=None, **fields) -> float:
    """Report that the server refused a fetch. Return the seconds until the next lease."""
    await job.end_fetch(lease or await job.one(), refused=True, **fields)
    waited, following = await job.wait_for_one(precision=1 / 32)
    await job.frontier.release([following.id])
    return waited


async def test_refusals_in_a_row_hold_the_slot_longer_and_longer_up_to_a_bound(start):
    job = await start(HostLimits(delay=0.0, concurrency_per_slot=1), lease_seconds=1e6)
    await job.add(*range(20))
    waits = [await refuse(job) for _ in range(12)]
    assert 0 < waits[0] <= 5.0
    assert all(late == pytest.approx(2 * early, rel=0.1) for early, late in pairwise(waits[:6]))
    assert waits[-1] == waits[-2] <= 600.0


async def test_retry_after_zero_does_not_switch_the_back_off_off(start):
    job = await start(HostLimits(delay=0.0, concurrency_per_slot=1))
    await job.add(*range(5))
    waits = [await refuse(job, retry_after=0.0) for _ in range(3)]
    assert 0 < waits[0] < waits[1] < waits[2]


async def test_eight_concurrent_refusals_count_as_one(start):
    job = await start(HostLimits(delay=0.0, concurrency_per_slot=8), lease_seconds=1e6)
    await job.add("a", "b", host="single.test")
    alone = await refuse(job, await job.one())
    await job.done(*await job.lease())
    await job.add(*range(20))
    for lease in await job.lease(8):
        await job.clock.advance(0.001)
        await job.end_fetch(lease, refused=True)
    together, _ = await job.wait_for_one()
    assert together == pytest.approx(alone, abs=2 * STEP)


async def test_a_success_shrinks_the_back_off_and_one_from_before_does_not(start):
    job = await start(HostLimits(delay=0.0, concurrency_per_slot=4), lease_seconds=1e6)
    await job.add(*range(20))
    early, *refused = await job.lease(2)
    waits = [await refuse(job, refused[0])] + [await refuse(job) for _ in range(3)]
    await job.end_fetch(early, latency=0.1)
    after_old_success = await refuse(job)
    assert after_old_success == pytest.approx(2 * waits[-1], rel=0.1)
    await job.end_fetch(await job.one(), latency=0.1)
    assert await refuse(job) == pytest.approx(after_old_success, rel=0.1)


async def test_without_an_own_delay_a_host_is_fetched_as_fast_as_it_answers(start):
    job = await start(HostLimits())
    waits = {}
    for host, latency in (("quick.test", 0.25), ("slow.test", 8.0)):
        await job.add(*range(30), host=host)
        for _ in range(8):
            _, lease = await job.wait_for_one()
            await job.end_fetch(lease, latency=latency)
        waits[host], lease = await job.wait_for_one()
        await job.done(lease)
        await job.frontier.control.pause_slot(host, 1e6)
    assert waits["quick.test"] < waits["slow.test"]
    assert 1.0 < waits["slow.test"] <= 8.0


@pytest.mark.parametrize(("limits", "is_put_off"), [(HostLimits(), False), (HostLimits(delay=2.0), True)])
async def test_only_a_promised_delay_counts_from_a_late_grant(start, limits, is_put_off):
    job = await start(limits)
    await job.add(*range(4))
    await job.end_fetch(await job.one(), latency=4.0)
    _, lease = await job.wait_for_one()
    await job.end_fetch(lease, latency=4.0)
    job.clock.now += 3.0  # the worker asks a second later than it could
    await job.end_fetch(await job.one(), latency=4.0)
    waited, _ = await job.wait_for_one()
    assert (waited > 1.5) == is_put_off


async def test_an_own_delay_does_not_adapt(start):
    job = await start(HostLimits(delay=1.0, concurrency_per_slot=4))
    await job.add(*range(5))
    await job.end_fetch(await job.one(), latency=50.0)
    waited, _ = await job.wait_for_one()
    assert waited <= 1.25 + STEP
