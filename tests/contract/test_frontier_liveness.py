"""Heartbeats: leases of dead workers are free before they expire."""

import asyncio

import pytest
from frontier_backends import BACKENDS
from frontier_job import report_of

from skitter.errors import FrontierError
from skitter.frontier.workers import LIVENESS_SECONDS, SUSPICION_SECONDS

A_MOMENT = 0.01


WITH_HEARTBEATS = [name for name, backend in BACKENDS.items() if backend.has_heartbeats]
SEEING_THE_END = [name for name in BACKENDS if name not in WITH_HEARTBEATS]


@pytest.fixture(params=WITH_HEARTBEATS)
def backend(request, tmp_path):
    return BACKENDS[request.param](tmp_path)


@pytest.fixture
async def liveness(job):
    await job.frontier.liveness.open()
    yield job.frontier.liveness
    await job.frontier.liveness.close()


@pytest.mark.parametrize("backend", SEEING_THE_END, indirect=True)
async def test_the_owner_of_a_frontier_needs_no_heartbeats(job):
    assert job.frontier.liveness is None
    assert not job.frontier.shared


async def test_a_silent_worker_is_suspected_and_then_dead(job, liveness):
    await liveness.beat("silent")
    assert await liveness.beat("alive") == []
    await job.clock.advance(LIVENESS_SECONDS + A_MOMENT)
    assert await liveness.beat("alive") == []
    await job.clock.advance(SUSPICION_SECONDS + A_MOMENT)
    assert await liveness.beat("alive") == ["silent"]


async def test_a_worker_with_a_heartbeat_is_never_dead(job, liveness):
    for _ in range(10):
        await job.clock.advance(LIVENESS_SECONDS - A_MOMENT)
        assert await liveness.beat("one") == []
        assert await liveness.beat("other") == []


async def test_no_worker_is_declared_dead_after_an_outage_of_the_server(job, liveness):
    """All workers are silent during the outage. The first one that returns must not declare the others dead."""
    names = [f"w{number}" for number in range(5)]
    for name in names:
        await liveness.beat(name)
    await job.clock.advance(1000.0)
    for name in names:
        assert await liveness.beat(name) == []
        await job.clock.advance(SUSPICION_SECONDS / len(names) - A_MOMENT)
    assert sorted(await liveness.workers()) == names


async def test_a_dead_worker_is_reported_to_one_caller_until_its_leases_are_taken_back(job, liveness):
    await job.add("a", "b")
    leases = await job.lease(2, "dead")
    for name in ("dead", "one", "other"):
        await liveness.beat(name)
    await job.clock.advance(LIVENESS_SECONDS + A_MOMENT)
    answers = [await liveness.beat(name) for name in ("one", "other")]
    await job.clock.advance(SUSPICION_SECONDS + A_MOMENT)
    answers += [await liveness.beat(name) for name in ("one", "other")]
    assert answers == [[], [], ["dead"], []]
    await job.clock.advance(SUSPICION_SECONDS + A_MOMENT)
    assert await liveness.beat("other") == ["dead"], "the first caller has done nothing"
    assert await job.frontier.abandon("dead") == len(leases)
    await job.clock.advance(SUSPICION_SECONDS + A_MOMENT)
    assert [await liveness.beat(name) for name in ("one", "other")] == [[], []]
    assert sorted(await liveness.workers()) == ["one", "other"]


async def test_many_workers_that_die_at_once_are_all_found(job, liveness):
    names = {f"dead{number}" for number in range(250)}
    for name in names:
        await liveness.beat(name)
    found = set()
    await job.clock.advance(LIVENESS_SECONDS)
    for _ in range(12):
        await job.clock.advance(1.0)
        for name in await liveness.beat("alive"):
            found.add(name)
            await job.frontier.abandon(name)
    assert found == names
    assert await liveness.workers() == ["alive"]


async def test_a_worker_that_slept_past_its_heartbeat_commits_nothing(job, liveness):
    await job.add("a")
    slept = await job.one("sleeper")
    await liveness.beat("sleeper")
    await job.clock.advance(LIVENESS_SECONDS + A_MOMENT)
    await liveness.beat("alive")
    await job.clock.advance(SUSPICION_SECONDS + A_MOMENT)
    for name in await liveness.beat("alive"):
        await job.frontier.abandon(name)
    again = await job.one("alive")
    assert (again.url, again.lost) == (slept.url, 1)
    assert await liveness.beat("sleeper") == []
    assert await job.done(slept, counters={"pages": 1}) == [False]
    assert await job.frontier.renew("sleeper", [slept.id]) == [slept.id]
    assert await job.done(again, counters={"pages": 1}) == [True]
    assert (await job.status()).counters["pages"] == 1


async def test_a_worker_that_has_left_is_not_dead(job, liveness):
    await liveness.beat("leaves")
    await job.frontier.reports.announce(report_of("leaves"), 0.0)
    assert await liveness.workers() == []
    await job.clock.advance(LIVENESS_SECONDS + SUSPICION_SECONDS)
    assert await liveness.beat("alive") == []


async def test_liveness_works_on_the_event_loop_of_another_thread(job, liveness):
    await liveness.close()
    unchecked = job.frontier.unchecked.liveness

    async def beat():
        await unchecked.open()
        await unchecked.beat("elsewhere")
        await unchecked.close()

    await asyncio.to_thread(asyncio.run, beat())
    await liveness.open()
    assert await liveness.workers() == ["elsewhere"]


async def test_liveness_must_be_opened(liveness):
    await liveness.close()
    with pytest.raises(FrontierError):
        await liveness.beat("w")
