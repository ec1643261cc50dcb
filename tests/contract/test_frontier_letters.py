"""Dead letters: failed requests, and what users can do with them."""

import asyncio

import pytest

from skitter.frontier.records import JobState


async def fail_requests(job, *names, error="http/404") -> list[int]:
    """Fail requests one after the other. Return the ids of all dead letters."""
    await job.add(*names)
    while leases := await job.lease(1):
        await job.fail(*leases, error=error)
    return [letter.id for letter in await job.frontier.dead_letters.list()]


async def test_a_failed_request_is_kept_with_everything_known_of_it(job):
    await job.add("a", record=b"\x01record")
    lease = await job.one()
    await job.retry(lease)
    await job.one()
    await job.frontier.abandon("w")
    await job.clock.advance(5.0)
    await job.fail(await job.one(), error="http/404: not found")
    (letter,) = await job.frontier.dead_letters.list()
    assert (letter.fingerprint, letter.slot, letter.url) == (lease.fingerprint, lease.slot, lease.url)
    assert (letter.record, letter.error) == (b"\x01record", "http/404: not found")
    assert (letter.attempts, letter.lost) == (2, 1)
    assert letter.failed_at == pytest.approx(job.clock())


async def test_dead_letters_are_listed_in_pages_oldest_first(job):
    await fail_requests(job, *range(25))
    pages, after = [], 0
    while page := await job.frontier.dead_letters.list(after, limit=10):
        pages.append(page)
        after = page[-1].id
    assert [len(page) for page in pages] == [10, 10, 5]
    urls = [letter.url for page in pages for letter in page]
    assert urls == [f"http://h.test/{n}" for n in range(25)]


async def test_a_replayed_request_starts_afresh(job):
    await job.add("a", priority=2)
    await job.retry(await job.one())
    await job.one()
    await job.frontier.abandon("w")
    await job.fail(await job.one())
    assert await job.frontier.dead_letters.replay() == 1
    assert await job.counts() == {"queued": 1}
    assert await job.frontier.dead_letters.list() == []
    lease = await job.one()
    assert (lease.attempt, lease.lost, lease.url) == (0, 0, "http://h.test/a")
    assert await job.done(lease) == [True]


async def test_a_replayed_request_keeps_its_priority(job):
    await job.add("high", priority=1)
    await job.fail(await job.one())
    await job.add("first", "second")
    await job.frontier.dead_letters.replay()
    assert await job.urls_left() == ["high", "first", "second"]


async def test_some_letters_can_be_replayed_or_dropped_by_their_ids(job):
    ids = await fail_requests(job, *range(5))
    assert await job.frontier.dead_letters.replay([ids[1], ids[1], 10**15]) == 1
    assert await job.frontier.dead_letters.drop([ids[2], ids[2], ids[1]]) == 1
    assert [letter.id for letter in await job.frontier.dead_letters.list()] == [ids[0], ids[3], ids[4]]
    assert await job.counts() == {"queued": 1, "failed": 3}


async def test_dropped_letters_are_gone_and_no_longer_counted(job):
    await fail_requests(job, *range(5))
    assert await job.frontier.dead_letters.drop() == 5
    assert (await job.status()).added == 0
    assert await job.frontier.dead_letters.list() == []
    assert await job.frontier.dead_letters.replay() == 0


@pytest.mark.parametrize("action", ["replay", "drop"])
async def test_concurrent_calls_act_once(job, action):
    await fail_requests(job, *range(5))
    act = getattr(job.frontier.dead_letters, action)
    assert sum(await asyncio.gather(act(), act(), act())) == 5
    assert await job.counts() == ({"queued": 5} if action == "replay" else {})


async def test_ids_of_letters_grow_and_are_never_used_again(job):
    ids = await fail_requests(job, "a", "b")
    await job.frontier.dead_letters.drop()
    later = await fail_requests(job, "c", "d")
    assert ids[0] < ids[1] < later[0] < later[1]


async def test_by_default_a_link_to_a_failed_request_is_refused(job):
    await fail_requests(job, "a")
    assert await job.add("a") == 0
    await job.frontier.dead_letters.drop()
    assert await job.add("a") == 0


async def test_failed_requests_may_be_added_again_if_the_job_wants_it(start):
    job = await start(refetch_failed=True)
    await job.add("a")
    lease = await job.one()
    assert await job.add("a") == 0
    await job.fail(lease, error="http/404")
    assert await job.frontier.unknown([lease.fingerprint]) == [True]
    assert await job.add("a") == 1
    assert await job.counts() == {"queued": 1, "failed": 1}


async def test_a_replayed_request_is_known_again(start):
    job = await start(refetch_failed=True)
    await fail_requests(job, "a")
    await job.frontier.dead_letters.replay()
    assert await job.add("a") == 0


@pytest.mark.parametrize("by_id", [False, True], ids=["all", "by-id"])
async def test_a_letter_whose_url_was_added_again_meanwhile_is_settled_by_that(start, by_id):
    job = await start(refetch_failed=True)
    ids = await fail_requests(job, "a", "b")
    await job.add("a")
    assert await job.frontier.dead_letters.replay(ids if by_id else None) == 1
    assert await job.counts() == {"queued": 2}
    assert sorted(await job.urls_left()) == ["a", "b"]


async def test_two_letters_of_one_url_become_one_request(start):
    job = await start(refetch_failed=True)
    await fail_requests(job, "a")
    assert len(await fail_requests(job, "a", "b")) == 3
    assert await job.frontier.dead_letters.replay() == 2
    assert await job.counts() == {"queued": 2}
    assert await job.frontier.dead_letters.list() == []


async def test_a_letter_whose_url_was_fetched_meanwhile_is_settled_by_that(start):
    job = await start(refetch_failed=True)
    await fail_requests(job, "a")
    await job.add("a")
    assert await job.done(await job.one()) == [True]
    assert await job.frontier.dead_letters.replay() == 0
    assert await job.counts() == {"done": 1}


async def test_a_letter_whose_visit_has_run_out_meanwhile_is_replayed(start):
    job = await start(refetch_failed=True, visited_ttl=50.0)
    await fail_requests(job, "a")
    await job.add("a")
    await job.done(await job.one())
    await job.clock.advance(100.0)
    assert await job.frontier.dead_letters.replay() == 1
    assert await job.counts() == {"queued": 1, "done": 1}


async def test_a_thousand_letters_settled_by_others_do_not_hide_those_that_are_not(start):
    job = await start(refetch_failed=True)
    await job.add(*range(1_200))
    await job.fail(*await job.lease(1_200))
    await job.add(*range(1_100))
    assert await job.frontier.dead_letters.replay() == 100
    assert await job.counts() == {"queued": 1_200}


async def test_a_dead_letter_of_an_earlier_pass_is_settled_when_its_url_is_found_again(job):
    ids = await fail_requests(job, "a", "b")
    await job.seeds_done()
    assert await job.frontier.control.recrawl()
    assert await job.add("a") == 1
    assert await job.frontier.dead_letters.replay(ids) == 1
    assert await job.counts() == {"queued": 2}


async def test_letters_whose_url_was_added_again_can_be_dropped_and_all_others_stay(job):
    ids = await fail_requests(job, "fetched", "failed", "unlinked", error="status/404: gone")
    assert await job.frontier.dead_letters.drop_superseded() == 0
    await job.seeds_done()
    assert await job.frontier.control.recrawl()
    await job.add("fetched", "failed", "new")
    leases = {lease.url: lease for lease in await job.lease()}
    await job.done(leases["http://h.test/fetched"])
    await job.fail(leases["http://h.test/failed"], leases["http://h.test/new"], error="timeout")
    await job.seeds_done()
    assert await job.frontier.dead_letters.drop_superseded() == 2
    left = [(letter.url, letter.error) for letter in await job.frontier.dead_letters.list()]
    assert sorted(left) == [
        ("http://h.test/failed", "timeout"), ("http://h.test/new", "timeout"), ("http://h.test/unlinked", "status/404: gone"),
    ]  # fmt: skip
    assert ids[2] in {letter.id for letter in await job.frontier.dead_letters.list()}
    assert await job.counts() == {"done": 1, "failed": 3}
    status = await job.status()
    assert (status.counters["settled/status/404"], status.added) == (2, 4)
    assert await job.frontier.dead_letters.drop_superseded() == 0


async def test_a_thousand_letters_of_the_crawl_before_are_dropped(job):
    await job.add(*range(1_200))
    await job.fail(*await job.lease(1_200))
    await job.seeds_done()
    await job.frontier.control.recrawl()
    await job.add(*range(1_100))
    await job.done(*await job.lease(1_100))
    assert await job.frontier.dead_letters.drop_superseded() == 1_100
    assert await job.counts() == {"done": 1_100, "failed": 100}


@pytest.mark.parametrize("ttl", [None, 0.0, 50.0])
async def test_a_failed_request_stays_known_whatever_the_ttl(start, ttl):
    job = await start(visited_ttl=ttl)
    await fail_requests(job, "a")
    await job.clock.advance(100.0)
    assert await job.add("a") == 0


async def test_a_thousand_letters_can_be_replayed(job):
    await fail_requests(job, *range(100))
    await job.add(*range(100, 1_000))
    await job.fail(*await job.lease())
    assert await job.frontier.dead_letters.replay() == 1_000
    assert len(await job.lease()) == 1_000


async def test_replay_works_while_the_job_is_paused(job):
    await fail_requests(job, "a")
    await job.frontier.control.set_state(JobState.PAUSED)
    assert await job.frontier.dead_letters.replay() == 1
    assert await job.lease() == []
    await job.frontier.control.set_state(JobState.RUNNING)
    assert len(await job.lease()) == 1


@pytest.mark.parametrize("action", ["replay", "drop"])
async def test_settled_letters_are_counted_by_the_kind_of_their_error(job, action):
    first, *_ = await fail_requests(job, "a", "b", error="dns: no such name: h.test")
    await fail_requests(job, "c", error="status/404: gone")
    letters = job.frontier.dead_letters
    assert await getattr(letters, action)([first]) == 1
    assert (await job.status()).counters["settled/dns"] == 1
    assert await getattr(letters, action)() == 2
    counters = (await job.status()).counters
    assert (counters["settled/dns"], counters["settled/status/404"]) == (2, 1)
