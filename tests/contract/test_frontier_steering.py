"""Control of a running job, on every backend: waiting for seeds, changed settings, banned hosts, workers and counts."""

from collections import Counter

import pytest
from msgspec.structs import replace

from skitter.frontier.options import SettingsChanges
from skitter.frontier.records import JobState, Outcome, Resolution
from skitter.frontier.stats import OTHERS, StatsDimension, StatsRow
from skitter.frontier.workers import WorkerReport
from skitter.politeness import HostLimits, LimitRule


def report(name, host="here", age=5.0, **fields):
    figures = {"pid": 7, "version": "1", "concurrency": 32, "fetching": 3, "held": 5, "pages": 10, "items": 4,
               "bytes": 999, "pages_per_second": 2.5}  # fmt: skip
    return WorkerReport(name=name, host=host, age=age, **(figures | fields))


async def finish_one(job, name="a", **fields):
    await job.add(name)
    await job.done(await job.one(), **fields)


# --- waiting for seeds ----------------------------------------------------------------------------------------


async def test_a_job_that_waits_for_seeds_forever_is_never_finished(start):
    job = await start(wait_for_seeds=True)
    await job.seeds_done()
    await finish_one(job)
    for _ in range(3):
        await job.clock.advance(100_000)
        assert (await job.ask()).state is JobState.RUNNING


async def test_a_job_is_finished_after_its_idle_time(start):
    job = await start(wait_for_seeds=30.0)
    await job.seeds_done()
    await finish_one(job)
    await job.clock.advance(29)
    assert (await job.ask()).state is JobState.RUNNING
    await finish_one(job, "b")  # restarts the wait
    await job.clock.advance(29)
    assert (await job.status()).state is JobState.RUNNING
    await job.clock.advance(2)
    assert (await job.ask()).state is JobState.FINISHED


async def test_a_request_of_any_host_restarts_the_wait_for_seeds(start):
    job = await start(wait_for_seeds=30.0)
    await job.seeds_done()
    for number in range(6):  # on a cluster, each of several partitions has some of the hosts
        await job.add("a", host=f"h{number}.test")
        await job.done(await job.one())
        await job.clock.advance(20)
        assert (await job.ask()).state is JobState.RUNNING
    await job.clock.advance(9)
    assert (await job.ask()).state is JobState.RUNNING
    await job.clock.advance(2)
    assert (await job.ask()).state is JobState.FINISHED


async def test_a_job_in_progress_is_not_idle_however_long_it_takes(start):
    job = await start(wait_for_seeds=30.0, lease_seconds=1000.0)
    await job.seeds_done()
    await job.add("a")
    lease = await job.one()
    await job.clock.advance(500)
    assert (await job.status()).state is JobState.RUNNING
    await job.done(lease)
    assert (await job.status()).state is JobState.RUNNING


@pytest.mark.parametrize("wish", [JobState.STOPPING, JobState.PAUSED])
async def test_a_waiting_job_obeys_stop_and_pause(start, wish):
    job = await start(wait_for_seeds=True)
    await job.seeds_done()
    assert await job.frontier.control.set_state(wish) is wish
    assert (await job.ask()).state is wish


async def test_a_job_can_be_paused_and_ended(job):
    await job.seeds_done()
    await job.frontier.control.change_settings(SettingsChanges({"wait_for_seeds": True}))
    assert (await job.status()).state is JobState.RUNNING
    await job.frontier.control.change_settings(SettingsChanges({"wait_for_seeds": 0.0}))
    assert await job.is_finished()


# --- changed settings -----------------------------------------------------------------------------------------


async def test_a_changed_delay_holds_at_once_for_active_slots(start):
    job = await start(HostLimits(delay=0.0, concurrency_per_slot=10))
    await job.add(*range(10))
    await job.done(*await job.lease(1))
    await job.frontier.control.change_settings(SettingsChanges({"delay": 10.0}))
    waited, lease = await job.wait_for_one()
    assert waited >= 10.0
    await job.done(lease)
    await job.frontier.control.change_settings(SettingsChanges({"delay": 1.0}))
    waited, _ = await job.wait_for_one()
    assert 0.9 <= waited <= 1.5, "a shorter delay does not wait for the end of the longer one"


async def test_changed_parallelism_holds_for_active_slots(start):
    job = await start(HostLimits(delay=0.0, concurrency_per_slot=2))
    await job.add(*range(20))
    first = await job.lease()
    assert len(first) == 2
    await job.frontier.control.change_settings(SettingsChanges({"concurrency_per_slot": 5}))
    assert len(await job.lease()) == 3
    await job.frontier.control.change_settings(SettingsChanges({"concurrency_per_slot": 1}))
    await job.done(*first)
    assert await job.lease() == []


async def test_changed_rates_hold_for_active_slots(start):
    job = await start(HostLimits(delay=0.0, concurrency_per_slot=100))
    await job.add(*range(20))
    await job.frontier.control.change_settings(SettingsChanges({"rates": ("3/60s",)}))
    assert len(await job.lease()) == 3
    await job.clock.advance(30)
    assert await job.lease() == []
    await job.clock.advance(33)
    assert len(await job.lease()) == 3


async def test_values_of_a_limit_rule_are_not_changed(start):
    rule = LimitRule(domain_glob="slow.test", delay=50.0)
    job = await start(HostLimits(delay=0.0, concurrency_per_slot=10), rules=[rule])
    await job.frontier.control.change_settings(SettingsChanges({"delay": 2.0, "concurrency_per_slot": 1}))
    await job.add(1, 2, host="slow.test")
    await job.done(*await job.lease(1))
    waited, _ = await job.wait_for_one()
    assert waited >= 50.0


async def test_a_changed_limit_stops_the_job_and_a_larger_one_lets_it_continue(start):
    job = await start(max_pages=2)
    await job.add(*range(5))
    await job.done(*await job.lease(2), counters={"pages": 1})
    assert ((await job.ask()).state, (await job.status()).reason) == (JobState.STOPPING, "2 pages")
    await job.frontier.control.change_settings(SettingsChanges({"max_pages": 4}))
    await job.done(*await job.lease(10), counters={"pages": 1})
    assert (await job.ask()).reason == "4 pages"
    await job.frontier.control.change_settings(SettingsChanges({"max_pages": None}))
    assert len(await job.lease()) == 1
    assert (await job.ask()).state is JobState.RUNNING


async def test_every_worker_is_notified_of_changed_settings_and_reads_them(job):
    assert (await job.ask()).revision == 0
    assert await job.frontier.control.settings_changes() == SettingsChanges()
    await job.frontier.control.change_settings(SettingsChanges({"concurrency": 3}))
    first = (await job.ask(worker="a")).revision
    assert first > 0
    assert (await job.ask(worker="b")).revision == first
    await job.frontier.control.change_settings(SettingsChanges({"delay": None, "concurrency": 5}))
    assert (await job.ask()).revision > first
    assert await job.frontier.control.settings_changes() == SettingsChanges({"concurrency": 5, "delay": None})


async def test_changes_come_on_top_of_earlier_ones_until_they_are_reset(job):
    await job.frontier.control.change_settings(SettingsChanges({"max_pages": 5, "delay": 3.0}))
    assert await job.frontier.control.change_settings(SettingsChanges({"max_pages": 7})) == SettingsChanges(
        {"max_pages": 7, "delay": 3.0}
    )
    assert await job.frontier.control.change_settings(
        SettingsChanges({"jitter": 1.0}), reset=True
    ) == SettingsChanges({"jitter": 1.0})
    assert await job.frontier.control.change_settings(SettingsChanges(), reset=True) == SettingsChanges()
    await job.add(*range(3))
    assert len(await job.lease()) == 3


@pytest.mark.parametrize("host", ["shop.test", "www.shop.test", "detail|shop.test"])
async def test_limits_of_a_domain_hold_at_once_for_its_hosts_and_for_no_others(start, host):
    job = await start(HostLimits(delay=0.0, concurrency_per_slot=10))
    await job.add(*range(10), host="myshop.test")
    plain = [job.entry(number, host.rpartition("|")[2]) for number in range(10)]
    await job.add(*(replace(entry, slot=host) for entry in plain))  # before any limits are set
    await job.frontier.control.change_settings(
        SettingsChanges(domain_limits={"shop.test": HostLimits(delay=10.0, concurrency_per_slot=1)})
    )
    leases = await job.lease()
    assert [lease.slot for lease in leases] == 10 * ["myshop.test"]
    await job.done(*leases)
    for _ in range(2):
        waited, lease = await job.wait_for_one()
        assert (lease.slot, waited >= 10.0) == (host, True)
        await job.done(lease)
    await job.frontier.control.change_settings(
        SettingsChanges(domain_limits={"shop.test": HostLimits(rates=("3/60s",))})
    )
    await job.clock.advance(120)
    assert len(await job.lease()) == 3
    await job.frontier.control.change_settings(SettingsChanges(domain_limits={}))
    await job.clock.advance(1)
    assert len(await job.lease()) == 5


async def test_limits_of_a_domain_are_those_of_new_hosts_too_and_of_the_longest_name(start):
    job = await start(HostLimits(delay=0.0, concurrency_per_slot=10))
    limits = {"test": HostLimits(concurrency_per_slot=4), "shop.test": HostLimits(concurrency_per_slot=2)}
    await job.frontier.control.change_settings(SettingsChanges(domain_limits=limits))
    for host in ("a.test", "b.shop.test", "c.other"):
        await job.add(*range(20), host=host)
    slots = Counter(lease.slot for lease in await job.lease())
    assert slots == {"a.test": 4, "b.shop.test": 2, "c.other": 10}


async def test_a_limit_rule_is_stronger_than_limits_of_a_domain_and_they_than_changed_settings(start):
    rule = LimitRule(domain_glob="slow.test", concurrency_per_slot=3)
    job = await start(HostLimits(delay=0.0, concurrency_per_slot=10), rules=[rule])
    limits = {
        "slow.test": HostLimits(concurrency_per_slot=1),
        "shop.test": HostLimits(concurrency_per_slot=5),
    }
    await job.frontier.control.change_settings(SettingsChanges(domain_limits=limits))
    await job.frontier.control.change_settings(SettingsChanges({"concurrency_per_slot": 2}))
    for host in ("slow.test", "shop.test", "other.test"):
        await job.add(*range(20), host=host)
    slots = Counter(lease.slot for lease in await job.lease())
    assert slots == {"slow.test": 3, "shop.test": 5, "other.test": 2}


async def test_where_the_slot_is_a_registered_domain_the_strictest_limits_below_it_are_its_own(start):
    job = await start(HostLimits(delay=0.0, concurrency_per_slot=10), unit="domain")
    limits = {
        "a.shop.com:81": HostLimits(concurrency_per_slot=5, delay=0.0),
        "b.shop.com": HostLimits(concurrency_per_slot=2),
    }
    await job.frontier.control.change_settings(SettingsChanges(domain_limits=limits))
    await job.add(*range(20), host="shop.com")
    assert len(await job.lease()) == 2


# --- dropped and banned hosts ---------------------------------------------------------------------------------


async def test_dropping_a_host_removes_only_its_waiting_requests(job):
    await job.add(*range(1200), host="big.test")
    await job.add(*"abcdefghij", host="big.test", priority=-3)
    await job.add("later", "later2", host="big.test", delay=60.0)
    await job.add("x", "y", host="big.test.other")
    held = await job.one()
    assert held.slot == "big.test"
    assert await job.frontier.control.drop_slot("big.test") == 1211
    assert await job.counts() == {"queued": 2, "leased": 1}
    assert (await job.status()).counters["refused/dropped"] == 1211
    assert await job.done(held) == [True]
    await job.clock.advance(100)
    assert sorted(await job.urls_left()) == ["x", "y"]
    await job.seeds_done()
    assert await job.is_finished()


async def test_dropped_requests_stay_known_but_new_links_to_the_host_are_accepted(job):
    await job.add("a", "b")
    assert await job.frontier.control.drop_slot("h.test") == 2
    assert await job.add("a", "c") == 1
    assert await job.urls_left() == ["c"]
    assert await job.frontier.control.drop_slot("h.test") == 0
    assert await job.frontier.control.drop_slot("never.test") == 0


async def test_a_dropped_host_continues_where_its_lease_is_handed_back(job):
    await job.add(*range(5))
    held = await job.one()
    await job.frontier.control.drop_slot("h.test")
    await job.frontier.release([held.id])
    assert await job.urls_left() == ["0"]


async def test_a_banned_host_is_refused_wherever_its_requests_come_from(job):
    await job.add(*range(6))
    retried, released, lost, finished = [await job.one("lost" if n == 2 else "w") for n in range(4)]
    assert await job.frontier.control.drop_slot("h.test", ban=True) == 2
    await job.retry(retried)
    await job.frontier.release([released.id])
    await job.frontier.abandon("lost")
    child, other = job.entry("child"), job.entry("child", host="other.test")
    await job.done(finished, entries=[child, other])
    result = await job.frontier.add([job.entry("new")])
    assert (result.added, result.known, result.banned) == (0, 0, 1)
    assert await job.counts() == {"queued": 1, "done": 1}
    counters = (await job.status()).counters
    assert (counters["refused/dropped"], counters["refused/banned"]) == (2, 5)
    assert await job.frontier.control.banned() == ["h.test"]
    assert lost.slot == "h.test"


async def test_a_ban_can_be_lifted(job):
    await job.frontier.control.drop_slot("h.test", ban=True)
    assert await job.add("a") == 0
    assert await job.frontier.control.unban("h.test") is True
    assert await job.frontier.control.unban("h.test") is False
    assert await job.frontier.control.banned() == []
    assert await job.add("a") == 1, "a refused request was not made known"


async def test_workers_learn_from_the_revision_that_a_ban_was_lifted(job):
    hosts = [f"h{number}.test" for number in range(4)]
    revisions = [(await job.ask()).revision]
    for host in hosts:
        await job.frontier.control.drop_slot(host, ban=True)
    assert (await job.ask()).revision == revisions[0]
    for host in hosts:
        await job.frontier.control.unban(host)
        await job.clock.advance(1.0)
        revisions.append((await job.ask()).revision)
    assert sorted(set(revisions)) == revisions
    await job.frontier.control.unban(hosts[0])
    await job.clock.advance(1.0)
    assert (await job.ask()).revision == revisions[-1]


async def test_a_dead_letter_of_a_banned_host_is_not_replayed_into_the_queue(job):
    await job.add("a")
    await job.fail(await job.one())
    await job.frontier.control.drop_slot("h.test", ban=True)
    await job.frontier.dead_letters.replay()
    assert await job.counts() == {}


# --- workers --------------------------------------------------------------------------------------------------


async def test_workers_are_listed_with_their_reports(job):
    await job.frontier.reports.announce(report("b", host="two", age=3.0), 10.0)
    await job.frontier.reports.announce(report("a", host="one"), 10.0)
    await job.frontier.reports.announce(report("c", host="two", age=9.0), 10.0)
    await job.clock.advance(4)
    await job.frontier.reports.announce(report("a", host="one", pages=77), 10.0)
    found = await job.frontier.reports.workers()
    assert [(one.report.name, round(one.heard, 3)) for one in found] == [("a", 0.0), ("c", 4.0), ("b", 4.0)]
    assert found[0].report == report("a", host="one", pages=77)


async def test_silent_dead_and_leaving_workers_are_removed_from_the_list(job):
    for name in ("silent", "leaves", "dies", "stays"):
        await job.frontier.reports.announce(report(name), 10.0)
    await job.clock.advance(6)
    await job.frontier.reports.announce(report("stays"), 10.0)
    await job.frontier.reports.announce(report("leaves"), 0.0)
    await job.frontier.abandon("dies")
    assert {one.report.name for one in await job.frontier.reports.workers()} == {"silent", "stays"}
    await job.clock.advance(5)
    assert {one.report.name for one in await job.frontier.reports.workers()} == {"stays"}


# --- counts ---------------------------------------------------------------------------------------------------


async def test_done_pages_are_counted_per_worker_host_and_task(job):
    await job.add(*range(4), host="a.test")
    await job.add(*range(2), host="b.test")
    ann, ben = await job.lease(3, "ann"), await job.lease(3, "ben")
    counters = {"pages": 1, "items": 2, "bytes": 100, "links": 9, "time/fetch/us": 250_000}
    await job.done(*ann, counters=counters, group="books")
    await job.retry(ben[0], counters={"bytes": 50, "time/fetch/us": 0}, group="films")
    await job.retry(ben[1], free=True)
    await job.fail(ben[2])
    workers = await job.frontier.reports.stats(StatsDimension.WORKER)
    ann_row = StatsRow("ann", 3, 6, 300, responses=3, fetch_us=750_000)
    assert workers == [ann_row, StatsRow("ben", 0, 0, 50, failed=1, retried=1, responses=1)]
    assert [row.fetch_time for row in workers] == [0.25, 0.0]
    assert await job.frontier.reports.stats(StatsDimension.GROUP) == [
        StatsRow("books", 3, 6, 300, responses=3, fetch_us=750_000),
        StatsRow("films", 0, 0, 50, 0, 1, responses=1),
    ]
    hosts = {tally.key: tally for tally in await job.frontier.reports.stats(StatsDimension.HOST)}
    assert hosts.keys() <= {"a.test", "b.test"}
    assert sum(tally.pages for tally in hosts.values()) == 3
    assert sum(tally.failed + tally.retried for tally in hosts.values()) == 2


async def test_a_late_outcome_is_not_counted(start):
    job = await start(lease_seconds=10.0)
    await job.add("a")
    late = await job.one()
    await job.clock.advance(11)
    assert await job.done(late, counters={"pages": 1}, group="t") == [False]
    for group in StatsDimension:
        assert await job.frontier.reports.stats(group) == []


async def test_of_many_hosts_the_small_ones_are_counted_together_and_the_sum_stays_exact(start):
    job = await start(stats_max_keys=50)
    big = ["big1.test", "big2.test"]
    for host in big:
        await job.add(*range(40), host=host)
    await job.done(*await job.lease(), counters={"pages": 1, "items": 3})
    await job.add(*range(40), host="fails.test")
    await job.fail(*await job.lease())
    for number in range(300):
        await job.add("page", host=f"host{number}.test")
    leases = await job.lease()
    for start_at in range(0, 300, 60):
        outcomes = [
            Outcome(lease.id, Resolution.DONE, counters={"pages": 1, "items": 3})
            for lease in leases[start_at : start_at + 60]
        ]
        await job.frontier.commit(outcomes)
    hosts = await job.frontier.reports.stats(StatsDimension.HOST, 10_000)
    assert len(hosts) <= 51
    assert [tally.key for tally in hosts[:2]] == big
    assert [tally.pages for tally in hosts[:2]] == [40, 40]
    assert hosts[-1].key == OTHERS
    assert [tally.failed for tally in hosts if tally.key == "fails.test"] == [40], (
        "failures are no small counts"
    )
    assert (sum(tally.pages for tally in hosts), sum(tally.items for tally in hosts)) == (380, 1140)
    assert (await job.frontier.reports.stats(StatsDimension.HOST, 1))[0].key in big


async def test_slots_are_listed_over_all_hosts_fullest_first(start):
    job = await start(HostLimits(delay=0.0, concurrency_per_slot=10))
    for number in range(520):
        await job.add("page", host=f"host{number}.test")
    await job.add(*range(5), host="full.test")
    await job.frontier.control.set_delay("host519.test", 7.0)
    lease = await job.one()
    assert await job.frontier.reports.slots(0) == []
    (first,) = await job.frontier.reports.slots(1)
    assert (first.key, first.queued, first.leased) == (
        "full.test",
        5 - (lease.slot == "full.test"),
        lease.slot == "full.test",
    )
    found = {slot.key: slot for slot in await job.frontier.reports.slots(10_000)}
    assert len(found) == 521
    assert found["host519.test"].delay == 7.0
    assert found[lease.slot].leased == 1
    assert (sum(slot.queued for slot in found.values()), sum(slot.leased for slot in found.values())) == (
        524,
        1,
    )


# --- restart --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["reopen", "kill"])
async def test_changes_bans_and_counts_survive_a_restart(start, backend, end):
    if not backend.durable:
        return  # a job in memory has no restart, and a server's job does not end with a process
    job = await start(HostLimits(delay=0.0, concurrency_per_slot=10), stats_max_keys=3)
    for number in range(8):
        await job.add("page", "more", host=f"host{number}.test")
    await job.done(*await job.lease(8, "w"), counters={"pages": 1}, group="t")
    before = {group: await job.frontier.reports.stats(group) for group in StatsDimension}
    assert sum(tally.pages for tally in before[StatsDimension.HOST]) == 8
    await job.frontier.control.change_settings(SettingsChanges({"delay": 9.0, "max_pages": 100}))
    await job.frontier.control.drop_slot("host3.test", ban=True)
    await getattr(job, end)()
    assert {group: await job.frontier.reports.stats(group) for group in StatsDimension} == before
    assert await job.frontier.control.settings_changes() == SettingsChanges({"delay": 9.0, "max_pages": 100})
    assert (await job.ask(0)).revision > 0
    assert await job.frontier.control.banned() == ["host3.test"]
    assert await job.add("new", host="host3.test") == 0
    await job.add("a", "b", host="fresh.test")
    leases = await job.lease(1)
    while leases and leases[0].slot != "fresh.test":
        leases = await job.lease(1)
    assert all(lease.start_within is not None for lease in leases), "the changed delay holds"
