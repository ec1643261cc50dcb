"""Scripts that are made whole by a transaction, as on a server that keeps its data on disk, over each server there is."""

import asyncio

import pytest

from services.relay import Relay
from services.requests import counts, done, entries
from skitter.errors import FrontierError


@pytest.fixture
def in_transactions(join):
    """Join a job, with every script in a transaction of its own, whatever the server is."""

    async def open_one(url, **options):
        frontier = await join(url, **options)
        frontier._server._is_kvrocks = True
        return frontier

    return open_one


async def test_a_whole_crawl_by_transactions_counts_as_it_does_without(server, in_transactions, ask):
    await ask.script_flush()
    frontier = await in_transactions(server.url)
    await frontier.add(entries(0))
    while (answer := await frontier.lease("w", 5)).leases:
        for lease in answer.leases:
            number = int(lease.url.rpartition("/")[2])
            children = entries(*(n for n in (2 * number + 1, 2 * number + 2) if n < 40))
            assert await frontier.commit(done(lease, entries=children, counters={"pages": 1})) == [True]
    assert (await frontier.status()).counters["pages"] == 40
    assert await counts(frontier) == {"done": 40}
    assert (await ask.info("commandstats"))["cmdstat_exec"]["calls"] > 40


async def test_calls_at_the_same_time_by_transactions_do_not_mix(server, in_transactions):
    frontier = await in_transactions(server.url)
    await frontier.add(entries(*range(60)))
    grants = await asyncio.gather(*(frontier.lease(f"w{number}", 3) for number in range(20)))
    assert len({lease.url for grant in grants for lease in grant.leases}) == 60
    assert [await frontier.commit(done(*grant.leases)) for grant in grants] == [[True] * 3] * 20


async def test_an_error_of_a_script_in_a_transaction_is_told_as_itself(server, in_transactions, join):
    frontier = await in_transactions(server.url)
    await frontier._job.erase()
    with pytest.raises(FrontierError, match="begun anew by somebody else"):
        await frontier.add(entries("a"))


async def test_a_transaction_whose_answer_is_lost_is_answered_again_and_counts_once(server, in_transactions):
    async with Relay(server.port) as relay:
        frontier = await in_transactions(relay.url)
        await frontier.add(entries("a"))
        (lease,) = (await frontier.lease("w", 1)).leases
        relay.lose_next()
        assert await frontier.commit(done(lease, entries=entries("b"), counters={"pages": 1})) == [True]
        assert relay.lost == 1
        assert (await frontier.status()).counters == {"pages": 1}
        await frontier.close()
