"""Scripts in transactions, as on a server that keeps its data on disk, on each kind of server."""

import asyncio

import pytest

from services.as_on_disk import AsOnDisk
from services.frontier_requests import counts, done, entries
from skitter.frontier.redis.job import keys_of
from skitter.frontier.redis.server_errors import JobGone

FLOORS = """
local floors = cmsgpack.unpack(redis.call('HGET', KEYS[1], 'floors'))
return {string.format('%.17g', floors.deadlines), floors['new default'], floors['ready default']}
"""


@pytest.fixture
def in_transactions(join):
    """Join a job as on a server that keeps its data on disk, whatever the server is."""
    return lambda url: join(AsOnDisk(url))


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


async def test_an_error_of_a_script_in_a_transaction_is_reported_as_itself(server, in_transactions, join):
    frontier = await in_transactions(server.url)
    await frontier.job.erase()
    with pytest.raises(JobGone):
        await frontier.add(entries("a"))


async def test_exactly_the_taken_elements_of_a_sorted_set_are_removed(server, in_transactions, ask):
    frontier = await in_transactions(server.url)
    for host in ("a.test", "b.test", "c.test"):
        await frontier.add(entries(*range(9), host=host))
    taken = (await frontier.lease("w", 5)).leases
    await frontier.commit(done(*taken, entries=entries("new", host="d.test")))
    (left, *_) = (await frontier.lease("w", 2)).leases
    await frontier.add(entries("x", "y", host="e.test"))
    for _ in range(30):  # three of four calls, chosen at random, read the set of slots with leases
        await frontier.lease("w", 0)
    names = {key.rpartition(":")[2]: key for key in keys_of(frontier.job.name)}
    deadline, new, ready = await ask.eval(FLOORS, 1, names["job"])
    assert max(lease.deadline for lease in taken) - 0.01 < float(deadline) <= left.deadline
    for key, floor in (("ready", new), ("ready_by_queue", ready)):
        members = sorted(await ask.zrange(names[key], 0, -1))
        assert members[0].startswith(b"default\0" + floor)
