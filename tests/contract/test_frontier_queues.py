"""Named queues of one job, on every backend: leases, quotas and the end of the job."""

from itertools import pairwise

import pytest

from skitter.frontier.records import FetchReport, JobState
from skitter.politeness import HostLimits, LimitRule, Politeness
from skitter.queues import slot_in

FREE = HostLimits(delay=0.0, concurrency_per_slot=100_000)
ONLY_LIST, ONLY_DETAIL = {"list": 100}, {"detail": 100}


@pytest.fixture
def begin(start, job_kind, backend):
    """Start a job with limits of queues: ``job = await begin(queues, policy, rules)``."""

    async def begin_job(queues=None, policy=FREE, rules=(), **options):
        job = await start(policy, rules, **options)
        if queues:
            await job.backend.stop()
            job.politeness = Politeness(policy, rules, "host", queues)
            await job.open()
        return job

    return begin_job


def entries(job, queue, *names, host="h.test", **fields):
    found = job.entries(*(f"{queue}-{name}" for name in names), host=host, **fields)
    return [type(one)(**{**one_fields(one), "slot": slot_in(queue, host)}) for one in found]


def one_fields(entry):
    return {name: getattr(entry, name) for name in entry.__struct_fields__}


async def ask(job, shares, limit=100, worker="w", reports=()):
    return await job.frontier.lease(worker, limit, reports, shares)


async def lease(job, shares, limit=100, worker="w", reports=()):
    return (await ask(job, shares, limit, worker, reports)).leases


def names(leases):
    return sorted(one.url.rpartition("/")[2] for one in leases)


async def test_a_worker_gets_requests_of_the_queues_that_it_serves_and_of_no_other(start):
    job = await start()
    await job.frontier.add(
        entries(job, "list", 1, 2) + entries(job, "detail", 1, 2, 3) + job.entries("plain")
    )
    assert names(await lease(job, ONLY_LIST)) == ["list-1", "list-2"]
    assert await lease(job, ONLY_LIST, worker="second") == []
    assert names(await lease(job, {"default": 100})) == ["plain"]
    assert names(await lease(job, ONLY_DETAIL, worker="second")) == ["detail-1", "detail-2", "detail-3"]


async def test_a_worker_of_all_queues_leases_from_each(start):
    job = await start()
    await job.frontier.add(entries(job, "list", 1) + entries(job, "detail", 1) + job.entries("plain"))
    assert names(await job.lease()) == ["detail-1", "list-1", "plain"]


async def test_a_quota_limits_the_leases_of_a_queue_and_others_use_the_rest(start):
    job = await start()
    await job.frontier.add(entries(job, "detail", *range(9)) + job.entries(*range(9)))
    found = await lease(job, {"detail": 2, "*": 100}, limit=6)
    assert sorted(one.slot for one in found) == ["detail|h.test"] * 2 + ["h.test"] * 4
    assert [one.slot for one in await lease(job, {"detail": 0, "*": 2})] == ["h.test"] * 2
    assert await lease(job, {"detail": 0}) == []
    assert len(await lease(job, {"detail": 100, "*": 0})) == 7


async def test_shares_hold_over_many_hosts(start):
    job = await start()
    hosts = [f"h{number}.test" for number in range(24)]
    for host in hosts:
        await job.frontier.add(entries(job, "detail", 1, host=host) + entries(job, "list", 1, host=host))
    first = await lease(job, {"detail": 5, "list": 7}, limit=40)
    counts = [sum(one.slot.startswith(queue) for one in first) for queue in ("detail|", "list|")]
    assert counts == [5, 7]
    rest = await lease(job, {"detail": 100, "list": 100})
    assert len(rest) == 2 * len(hosts) - 12


async def test_priorities_and_the_order_of_coming_hold_within_a_queue(start):
    job = await start()
    await job.frontier.add(
        entries(job, "detail", "a", "b")
        + entries(job, "detail", "c", priority=1)
        + job.entries("d", priority=9)
    )
    order = []
    while found := await lease(job, ONLY_DETAIL, limit=1):
        order.append(found[0].url[-1])
    assert order == ["c", "a", "b"]


async def test_the_job_ends_for_all_workers_together_when_no_queue_holds_anything(start):
    job = await start()
    await job.seeds_done()
    await job.frontier.add(entries(job, "list", 1))
    (page,) = await lease(job, ONLY_LIST)
    waiting = await ask(job, ONLY_DETAIL, worker="second")
    assert waiting.state is JobState.RUNNING
    assert waiting.leases == []
    assert waiting.ask_again > 0
    await job.done(page, entries=entries(job, "detail", 1))
    assert (await ask(job, ONLY_LIST)).state is JobState.RUNNING
    (page,) = await lease(job, ONLY_DETAIL, worker="second")
    await job.done(page)
    assert (await ask(job, ONLY_LIST)).state is JobState.FINISHED
    assert (await ask(job, ONLY_DETAIL, worker="second")).state is JobState.FINISHED


async def test_requests_of_a_queue_without_workers_wait_and_are_counted(start):
    job = await start()
    await job.seeds_done()
    await job.frontier.add(job.entries("a"))
    assert (await job.status()).queues == {}
    await job.frontier.add(entries(job, "detail", 1, 2, 3) + entries(job, "list", 1))
    assert (await job.status()).queues == {"default": 1, "detail": 3, "list": 1}
    for _ in range(3):
        answer = await ask(job, {"default": 100, "list": 100})
        await job.done(*answer.leases)
        assert answer.state is JobState.RUNNING
        await job.clock.advance(10.0)
    assert (await job.status()).queues == {"default": 0, "detail": 3, "list": 0}


async def test_a_worker_that_waits_for_another_queue_is_not_asked_to_lease_at_once(start):
    job = await start()
    await job.frontier.add(entries(job, "detail", 1, 2))
    assert (await ask(job, ONLY_LIST)).ask_again > 0
    assert (await ask(job, {"detail": 0, "list": 5})).ask_again > 0


@pytest.mark.parametrize("end", ["retry", "delay", "release", "abandon", "expire"])
async def test_returned_requests_stay_in_their_queue(start, end):
    job = await start(lease_seconds=10.0)
    await job.frontier.add(entries(job, "detail", 1, delay=5.0 if end == "delay" else 0.0))
    if end == "delay":
        assert await lease(job, ONLY_DETAIL) == []
        await job.clock.advance(5.0)
    else:
        found = await lease(job, ONLY_DETAIL)
        if end == "retry":
            await job.retry(*found)
        elif end == "release":
            await job.frontier.release([one.id for one in found])
        elif end == "abandon":
            await job.frontier.abandon("w")
        else:
            await job.clock.advance(11.0)
    assert await lease(job, {"list": 5, "default": 5}) == []
    assert names(await lease(job, ONLY_DETAIL)) == ["detail-1"]


async def test_a_dead_letter_is_replayed_into_its_queue(start):
    job = await start()
    await job.frontier.add(entries(job, "detail", 1))
    await job.fail(*await lease(job, ONLY_DETAIL))
    assert await job.frontier.dead_letters.replay() == 1
    assert await lease(job, {"default": 5}) == []
    assert names(await lease(job, ONLY_DETAIL)) == ["detail-1"]


async def test_a_url_is_known_in_all_queues(start):
    job = await start()
    first = [entry for number in range(12) for entry in job.entries("a", host=f"h{number}.test")]
    again = [type(entry)(**{**one_fields(entry), "slot": f"detail|{entry.slot}"}) for entry in first]
    assert (await job.frontier.add(first)).added == 12
    assert (await job.frontier.add(again)).known == 12


async def test_each_queue_has_its_own_concurrency_and_delay_at_a_host(begin):
    limits = {
        "detail": HostLimits(concurrency_per_slot=2),
        "list": HostLimits(delay=4.0, concurrency_per_slot=1),
    }
    job = await begin(limits, HostLimits(delay=0.0, concurrency_per_slot=3))
    await job.frontier.add(
        [*entries(job, "detail", *range(9)), *entries(job, "list", 1, 2), *job.entries(*range(9))]
    )
    first = await job.lease()
    assert sorted(one.slot for one in first) == ["detail|h.test"] * 2 + ["h.test"] * 3 + ["list|h.test"]
    (page,) = [one for one in first if one.slot == "list|h.test"]
    assert page.start_within is not None
    assert await lease(job, ONLY_LIST, reports=[FetchReport(page.id, 0.1)]) == []
    await job.clock.advance(4.5)
    assert names(await lease(job, ONLY_LIST)) == ["list-2"]


async def test_the_rate_of_a_queue_is_kept_beside_a_faster_one(begin):
    job = await begin(
        {"detail": HostLimits(rates=("2/8s",))}, HostLimits(delay=0.0, concurrency_per_slot=100)
    )
    await job.frontier.add([*entries(job, "detail", *range(6)), *job.entries(*range(6))])
    moments = []
    begun = job.clock.now
    while len(moments) < 6:
        found = await lease(job, {"detail": 100, "default": 2})
        moments += [job.clock.now - begun for one in found if one.slot == "detail|h.test"]
        await job.done(*found)
        await job.clock.advance(0.5)
    assert all(later - earlier >= 8.0 for earlier, later in zip(moments, moments[2:], strict=False))
    assert moments[1] == 0.0
    assert [round(b - a) > 0 for a, b in pairwise(moments)] == [False, True, False, True, False]


async def test_a_rule_of_a_host_is_stronger_than_the_limits_of_a_queue(begin):
    job = await begin(
        {"detail": HostLimits(concurrency_per_slot=50)},
        FREE,
        [LimitRule(domain_glob="slow.*", concurrency_per_slot=1)],
    )
    await job.frontier.add(
        entries(job, "detail", *range(3), host="slow.test")
        + entries(job, "detail", *range(3), host="fast.test")
    )
    assert sorted(one.slot for one in await job.lease()) == ["detail|fast.test"] * 3 + ["detail|slow.test"]


async def test_dropping_a_host_drops_it_in_all_queues_and_a_ban_holds_in_all(start):
    job = await start()
    await job.frontier.add(
        [*entries(job, "detail", 1, 2), *entries(job, "list", 1, delay=50.0), *job.entries("a"),
         *entries(job, "detail", 1, host="other.test")]
    )  # fmt: skip
    assert await job.frontier.control.drop_slot("h.test", ban=True) == 4
    assert await job.counts() == {"queued": 1}
    result = await job.frontier.add([*entries(job, "detail", 3), *entries(job, "new", 1), *job.entries("b")])
    assert (result.added, result.banned) == (0, 3)
    assert await job.frontier.control.unban("h.test")
    assert (await job.frontier.add(entries(job, "new", 2))).added == 1


@pytest.mark.parametrize("backend", ["sqlite", "socket"], indirect=True)
async def test_queues_survive_a_kill(start):
    job = await start(lease_seconds=10.0)
    await job.seeds_done()
    await job.frontier.add(entries(job, "detail", 1, 2) + entries(job, "list", 1) + job.entries("a"))
    await lease(job, ONLY_DETAIL, limit=1)
    await job.kill()
    assert (await job.status()).queues == {"default": 1, "detail": 2, "list": 1}
    assert names(await lease(job, ONLY_DETAIL)) == ["detail-1", "detail-2"]
    assert names(await lease(job, {"list": 5})) == ["list-1"]


async def test_many_requests_are_leased_from_their_own_queues(start):
    job = await start(queue_order="lifo")
    for number in range(5):
        await job.frontier.add(entries(job, f"q{number}", *range(300), host=f"h{number % 2}.test"))
    for number in range(5):
        found = []
        while given := await lease(job, {f"q{number}": 40}, limit=100):
            found += given
        assert len(found) == 300
        assert {one.slot for one in found} == {f"q{number}|h{number % 2}.test"}
