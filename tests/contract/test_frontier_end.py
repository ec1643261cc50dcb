"""Pauses, stops and the end of a job; its seeds, notes, counters and outputs."""

import asyncio

import pytest
from frontier_job import report_of

from skitter.frontier.records import JobState, SeedClaim, SeedProgress
from skitter.item import OutputRange


async def test_a_new_job_has_not_ended(job):
    answer = await job.ask()
    assert (answer.leases, answer.state) == ([], JobState.RUNNING)
    assert (await job.status()).seeds_loading


async def test_a_job_without_requests_ends_with_its_seeds(job):
    await job.seeds_done()
    assert (await job.ask()).state is JobState.FINISHED
    assert not (await job.status()).seeds_loading


async def test_the_end_is_reached_exactly_when_nothing_is_left(job):
    await job.add("a", "b")
    await job.add("c", delay=1000.0)
    await job.seeds_done()
    first, second = await job.lease()
    assert (await job.ask()).state is JobState.RUNNING
    await job.done(first)
    assert (await job.ask()).state is JobState.RUNNING  # one is leased, one delayed
    await job.fail(second)
    assert (await job.ask()).state is JobState.RUNNING  # one is delayed
    await job.clock.advance(1000.0)
    last = await job.one()
    assert not await job.is_finished()
    await job.done(last)
    assert (await job.ask()).state is JobState.FINISHED


async def test_a_lease_keeps_the_job_from_its_end_after_its_fetch_has_ended(job):
    await job.add("a")
    await job.seeds_done()
    lease = await job.one()
    await job.end_fetch(lease)
    assert (await job.ask()).state is JobState.RUNNING
    await job.done(lease, entries=job.entries("child"))
    assert not await job.is_finished()


async def test_an_expired_lease_keeps_the_job_from_its_end(job):
    await job.add("a")
    await job.seeds_done()
    await job.one()
    await job.clock.advance(1e6)
    assert (await job.ask(0)).state is JobState.RUNNING


async def test_the_commit_of_the_last_request_with_children_is_not_the_end(job):
    await job.add("a")
    await job.seeds_done()
    await job.done(await job.one(), entries=job.entries("a"))
    assert await job.is_finished()


async def test_a_finished_job_runs_again_when_something_is_added_or_replayed(job):
    await job.add("a")
    await job.seeds_done()
    await job.fail(await job.one())
    assert await job.is_finished()
    await job.frontier.dead_letters.replay()
    assert not await job.is_finished()
    await job.done(await job.one())
    assert await job.is_finished()
    await job.add("b")
    assert (await job.ask()).state is JobState.RUNNING


async def test_one_worker_at_a_time_loads_the_seeds(job):
    claims = await asyncio.gather(*(job.frontier.claim_seeds(f"w{n}") for n in range(4)))
    assert sorted(claim is None for claim in claims) == [False, True, True, True]
    assert next(claim.position for claim in claims if claim) == 0


async def test_loaded_seeds_cannot_be_claimed(job):
    await job.seeds_done()
    assert await job.frontier.claim_seeds("w") is None


@pytest.mark.parametrize("end", ["abandon", "expire", "leave"])
async def test_the_next_loader_continues_where_one_that_ended_was(job, end):
    claim = await job.frontier.claim_seeds("ended")
    await job.frontier.add(
        job.entries("a", "b"), SeedProgress(claim.token, 2, refused={"refused/host": 2, "refused/scheme": 1})
    )
    counters = (await job.status()).counters
    assert (counters["refused/host"], counters["refused/scheme"]) == (2, 1)
    if end == "abandon":
        await job.frontier.abandon("ended")
    elif end == "leave":
        await job.frontier.reports.announce(report_of("ended"), 0.0)
    else:
        await job.clock.advance(60.0)
    second = await job.frontier.claim_seeds("alive")
    assert second == SeedClaim(second.token, 2)
    assert second.token != claim.token


@pytest.mark.parametrize("sign", ["add", "renew"])
async def test_a_seed_loader_with_heartbeats_keeps_its_claim(job, sign):
    claim = await job.frontier.claim_seeds("w")
    for position in range(1, 4):
        await job.clock.advance(59.0)
        if sign == "add":
            await job.frontier.add(job.entries(position), SeedProgress(claim.token, position))
        else:
            await job.frontier.renew("w", [])
    assert await job.frontier.claim_seeds("other") is None
    assert (await job.frontier.add(job.entries("x"), SeedProgress(claim.token, 9))).added == 1


async def test_abandoning_another_worker_leaves_the_claim(job):
    await job.frontier.claim_seeds("w")
    await job.frontier.abandon("other")
    assert await job.frontier.claim_seeds("other") is None


async def test_a_stale_token_adds_nothing(job):
    stale = await job.frontier.claim_seeds("dead")
    await job.frontier.abandon("dead")
    mark = SeedProgress(stale.token, 7, done=True)
    assert (await job.frontier.add(job.entries("a"), mark)).added == 0
    fresh = await job.frontier.claim_seeds("alive")
    assert fresh.position == 0
    assert (await job.frontier.add(job.entries("b"), mark)).added == 0
    assert await job.counts() == {}
    assert (await job.frontier.add(job.entries("a"), SeedProgress(fresh.token, 1))).added == 1


async def test_pause_leases_nothing_and_accepts_requests_in_progress(job):
    await job.add("a", "b")
    lease = await job.one()
    assert await job.frontier.control.set_state(JobState.PAUSED) is JobState.PAUSED
    answer = await job.ask()
    assert (answer.leases, answer.state) == ([], JobState.PAUSED)
    assert await job.done(lease, entries=job.entries("c")) == [True]
    assert (await job.status()).state is JobState.PAUSED
    assert await job.frontier.control.set_state(JobState.RUNNING) is JobState.RUNNING
    assert len(await job.lease()) == 2


async def test_stopping_hands_out_nothing(job):
    await job.add("a")
    assert await job.frontier.control.set_state(JobState.STOPPING) is JobState.STOPPING
    answer = await job.ask()
    assert (answer.leases, answer.state) == ([], JobState.STOPPING)


@pytest.mark.parametrize("state", [JobState.PAUSED, JobState.STOPPING])
async def test_a_job_can_end_while_it_is_paused_or_stopping(job, state):
    await job.add("a")
    await job.seeds_done()
    lease = await job.one()
    await job.frontier.control.set_state(state)
    await job.done(lease)
    assert (await job.ask()).state is JobState.FINISHED
    assert await job.frontier.control.set_state(JobState.RUNNING) is JobState.FINISHED


@pytest.mark.parametrize("name", ["pages", "items", "bytes"])
async def test_a_limit_of_a_counter_stops_the_job_and_is_named(start, name):
    job = await start(**{f"max_{name}": 10})
    await job.add(*range(20))
    first, second = await job.lease(2)
    await job.done(first, counters={name: 9})
    assert (await job.ask(0)).state is JobState.RUNNING
    await job.done(second, counters={name: 1})
    answer = await job.ask()
    assert (answer.leases, answer.state, answer.reason) == ([], JobState.STOPPING, f"10 {name}")
    assert (await job.status()).reason == f"10 {name}"


async def test_a_limit_of_errors_counts_dead_letters(start):
    job = await start(max_errors=2)
    await job.add(*range(9))
    await job.fail(*await job.lease(2))
    answer = await job.ask()
    assert (answer.leases, answer.state, answer.reason) == ([], JobState.STOPPING, "2 errors")
    await job.frontier.dead_letters.drop()
    assert (await job.ask()).state is JobState.RUNNING


async def test_no_more_is_leased_than_the_limit_of_pages_leaves_room_for(start):
    job = await start(max_pages=3)
    await job.add(*range(9))
    first, second, third = await job.lease()
    answer = await job.ask()
    assert answer.leases == []
    assert answer.ask_again > 0.001
    await job.retry(first)
    assert len(await job.lease()) == 1
    await job.done(second, third, counters={"pages": 1})
    assert await job.lease() == []


async def test_notes_last_for_their_time(job):
    assert await job.frontier.notes.get("robots:h.test") is None
    await job.frontier.notes.put("robots:h.test", b"\x00rules", 10.0)
    await job.frontier.notes.put("empty", b"", 10.0)
    await job.clock.advance(9.999)
    assert await job.frontier.notes.get("robots:h.test") == b"\x00rules"
    assert await job.frontier.notes.get("empty") == b""
    await job.clock.advance(0.002)
    assert await job.frontier.notes.get("robots:h.test") is None


async def test_a_later_note_replaces_an_earlier_one(job):
    await job.frontier.notes.put("key", b"old", 1000.0)
    await job.frontier.notes.put("key", b"new", 10.0)
    assert await job.frontier.notes.get("key") == b"new"
    await job.clock.advance(10.0)
    assert await job.frontier.notes.get("key") is None


async def test_a_note_is_swapped_only_if_the_old_value_matches(job):
    assert not await job.frontier.notes.compare_and_swap("key", b"", b"x", 10.0)
    assert await job.frontier.notes.compare_and_swap("key", None, b"\x00one", 10.0)
    assert not await job.frontier.notes.compare_and_swap("key", None, b"two", 10.0)
    assert not await job.frontier.notes.compare_and_swap("key", b"other", b"two", 10.0)
    assert await job.frontier.notes.get("key") == b"\x00one"
    assert await job.frontier.notes.compare_and_swap("key", b"\x00one", b"", 20.0)
    assert await job.frontier.notes.compare_and_swap("key", b"", b"three", 20.0)
    await job.clock.advance(15.0)
    assert await job.frontier.notes.get("key") == b"three"
    await job.clock.advance(5.0)
    assert not await job.frontier.notes.compare_and_swap("key", b"three", b"late", 10.0)
    assert await job.frontier.notes.compare_and_swap("key", None, b"again", 10.0)


async def test_concurrent_swaps_keep_every_addition(job):
    async def add(name):
        while True:
            old = await job.frontier.notes.get("names")
            if await job.frontier.notes.compare_and_swap("names", old, (old or b"") + name, 100.0):
                return

    await asyncio.gather(*(add(bytes([65 + number])) for number in range(20)))
    assert sorted(await job.frontier.notes.get("names")) == list(range(65, 85))


async def commit_range(job, *marks):
    await job.add("page", dedup=False)
    await job.done(await job.one(), outputs=[OutputRange(*mark) for mark in marks])


async def test_ranges_that_follow_each_other_are_joined_and_gaps_are_kept(job):
    await commit_range(job, ("one", 0, 10), ("two", 0, 5))
    await commit_range(job, ("one", 10, 20))
    await commit_range(job, ("one", 25, 30), ("two", 7, 9))
    await commit_range(job, ("one", 30, 31))
    assert await job.frontier.reports.outputs() == {"one": [(0, 20), (25, 31)], "two": [(0, 5), (7, 9)]}


async def test_ranges_are_in_order_whatever_the_order_of_their_commits(job):
    for start_at in (20, 0, 40, 10):
        await commit_range(job, ("part", start_at, start_at + 10))
    ranges = (await job.frontier.reports.outputs())["part"]
    assert [number for begin, end in ranges for number in range(begin, end)] == [*range(30), *range(40, 50)]


async def test_counters_add_up(job):
    await job.add(*range(10))
    for lease in await job.lease():
        await job.done(lease, counters={"pages": 1, "bytes": 2**40, "errors/x": 0})
    counters = (await job.status()).counters
    assert (counters["pages"], counters["bytes"]) == (10, 10 * 2**40)


async def test_status_names_the_busiest_slots(job):
    for number in range(25):
        await job.add(*range(number + 1), host=f"h{number}.test")
    status = await job.status()
    assert status.slots == 25
    assert [(slot.key, slot.queued) for slot in status.busiest] == [
        (f"h{number}.test", number + 1) for number in range(24, 4, -1)
    ]


async def test_a_slot_with_leases_only_is_in_the_status(job):
    await job.add("a", "b")
    await job.lease()
    (slot,) = (await job.status()).busiest
    assert (slot.key, slot.queued, slot.leased) == ("h.test", 0, 2)


async def test_status_shows_the_age_of_the_oldest_lease(job):
    assert (await job.status()).oldest_lease == 0
    await job.add("a", "b")
    old = await job.one()
    await job.clock.advance(10.0)
    young = await job.one()
    await job.clock.advance(5.0)
    assert (await job.status()).oldest_lease == pytest.approx(15.0)
    await job.done(old)
    assert (await job.status()).oldest_lease == pytest.approx(5.0)
    await job.done(young)
    assert (await job.status()).oldest_lease == 0


async def test_only_a_finished_job_can_be_recrawled(job):
    await job.add("a")
    await job.seeds_done()
    assert await job.frontier.control.recrawl() is False
    await job.done(await job.one(), counters={"pages": 1})
    assert await job.frontier.control.recrawl() is True
    status = await job.status()
    assert (status.state, status.seeds_loading) == (JobState.RUNNING, True)
    assert status.counters["pages"] == 1
    assert (await job.frontier.claim_seeds("w")).position == 0


async def test_a_new_crawl_fetches_every_page_again(job):
    await job.add("a", "b")
    await job.seeds_done()
    await job.done(*await job.lease())
    await job.frontier.control.recrawl()
    assert await job.add("a", "b") == 2


async def test_workers_learn_from_the_revision_that_a_pass_has_begun(job):
    await job.add("a")
    await job.seeds_done()
    await job.done(await job.one())
    before = (await job.ask()).revision
    await job.frontier.control.recrawl()
    await job.clock.advance(1.0)
    assert (await job.ask()).revision > before


async def test_a_new_crawl_with_a_ttl_fetches_only_expired_pages(start):
    job = await start(visited_ttl=100.0)
    await job.seeds_done()
    await job.add("old")
    await job.done(await job.one())
    await job.clock.advance(60.0)
    await job.add("young")
    await job.done(await job.one())
    await job.clock.advance(60.0)
    await job.frontier.control.recrawl()
    assert await job.add("old", "young") == 1
