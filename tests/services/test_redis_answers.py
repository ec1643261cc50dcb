"""Lost answers of a server: no call is carried out twice."""

import asyncio
import random

import pytest

from services.as_on_disk import AsOnDisk
from services.frontier_requests import counts, done, entries
from services.relay import Relay
from skitter.errors import FrontierError
from skitter.frontier.records import JobState, Outcome, Resolution, SeedProgress


@pytest.mark.parametrize("kind_of_url", [str, AsOnDisk])
async def test_a_commit_whose_answer_is_lost_is_answered_again_and_counts_once(server, join, kind_of_url):
    async with Relay(server.port) as relay:
        frontier = await join(kind_of_url(relay.url))
        await frontier.add(entries("a"))
        (lease,) = (await frontier.lease("w", 1)).leases
        relay.lose_next()
        assert await frontier.commit(done(lease, entries=entries("b"), counters={"pages": 1})) == [True]
        assert relay.lost == 1
        assert (await frontier.status()).counters == {"pages": 1}
        assert await counts(frontier) == {"queued": 1, "done": 1}
        await frontier.close()


async def test_leases_whose_answer_was_lost_are_granted_again_to_the_same_worker(server, join):
    async with Relay(server.port) as relay:
        frontier = await join(relay.url)
        await frontier.add(entries(*range(10)))
        relay.lose_next()
        leases = (await frontier.lease("w", 4)).leases
        assert relay.lost == 1
        assert [lease.url[-1] for lease in leases] == ["0", "1", "2", "3"]
        assert await counts(frontier) == {"queued": 6, "leased": 4}
        assert await frontier.commit(done(*leases)) == [True] * 4
        await frontier.close()


async def test_adding_unfiltered_requests_adds_once_even_if_the_answer_is_lost(server, join):
    async with Relay(server.port) as relay:
        frontier = await join(relay.url)
        relay.lose_next()
        result = await frontier.add(entries("a", "b", dedup=False))
        assert (relay.lost, result.added) == (1, 2)
        assert await counts(frontier) == {"queued": 2}
        await frontier.close()


async def test_a_call_that_arrives_after_the_next_one_of_its_client_adds_nothing(server, join, monkeypatch):
    """It was repeated after a lost answer, then cancelled, and stayed on its connection."""
    frontier = await join(server.url)
    run, sent = frontier.job._server.run, []

    async def note(*call, **options):
        sent.append(call)
        return await run(*call, **options)

    monkeypatch.setattr(frontier.job._server, "run", note)
    await frontier.add(entries("a", dedup=False))
    await frontier.add(entries("b", dedup=False))
    with pytest.raises(FrontierError, match="LATE"):
        await run(*sent[0])
    assert await counts(frontier) == {"queued": 2}


async def test_replaying_reports_the_right_number_when_its_answer_is_lost(server, join):
    async with Relay(server.port) as relay:
        frontier = await join(relay.url)
        await frontier.add(entries("a", "b"))
        leases = (await frontier.lease("w", 2)).leases
        await frontier.commit([Outcome(lease.id, Resolution.FAILED, error="http/404") for lease in leases])
        numbers = [letter.id for letter in await frontier.dead_letters.list()]
        relay.lose_next()
        assert await frontier.dead_letters.replay(numbers) == 2
        assert relay.lost == 1
        await frontier.close()


async def test_nothing_is_lost_or_duplicated_while_answers_are_lost_again_and_again(server, join):
    rng = random.Random(7)
    async with Relay(server.port) as relay:
        frontier = await join(relay.url)
        claim = await frontier.claim_seeds("w")
        await frontier.add(entries(0), SeedProgress(claim.token, 1, done=True))
        accepted = 0
        while True:
            if rng.random() < 0.3:
                relay.lose_next()
            answer = await frontier.lease("w", 5, [])
            if answer.state is JobState.FINISHED:
                break
            for lease in answer.leases:
                number = int(lease.url.rpartition("/")[2])
                children = entries(*(n for n in (2 * number + 1, 2 * number + 2) if n < 100))
                if rng.random() < 0.3:
                    relay.lose_next()
                accepted += sum(await frontier.commit(done(lease, entries=children, counters={"pages": 1})))
        assert relay.lost > 20
        assert accepted == (await frontier.status()).counters["pages"] == 100
        assert await counts(frontier) == {"done": 100}
        await frontier.close()


async def test_a_cancelled_call_ends(server, join):
    frontier = await join(server.url)

    async def work():
        while True:
            await frontier.lease("w", 3)
            await frontier.status()

    for round_number in range(100):
        tasks = [asyncio.create_task(work()) for _ in range(3)]
        await asyncio.sleep(0.0005 * (round_number % 7))
        for task in tasks:
            task.cancel()
        _, pending = await asyncio.wait(tasks, timeout=60)
        assert not pending
