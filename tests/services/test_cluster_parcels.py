"""Requests that are found in one partition and belong to another: each is delivered once, even if processes die."""

import asyncio
import re

import msgspec
import pytest

from services.cluster_jobs import eventually, finish_all, host_in
from services.frontier_requests import counts, done, entries
from skitter.frontier.cluster.frontier import divide
from skitter.frontier.records import JobState, SeedProgress

HERE, THERE = 1, 2


async def one_lease(frontier, *names, worker="w"):
    await frontier.add(entries(*names, host=host_in(HERE)))
    (lease,) = (await frontier.lease(worker, 1)).leases
    return lease


async def has_empty_outbox(frontier):
    return (await partition_of(frontier, HERE).partition_status()).outbox == 0


async def no_seeds(frontier):
    claim = await frontier.claim_seeds("seeder")
    await frontier.add([], SeedProgress(claim.token, claim.position, done=True))


@pytest.fixture
async def frontier(cluster, join_cluster, job_name):
    return await join_cluster(cluster.url, job_name)


def partition_of(frontier, number):
    return frontier._partitions.clients[number].partition


async def commit_without_delivery(frontier, lease, children):
    """Commit like a worker that dies before it delivers."""
    _, forwarded = divide(frontier._partitions, children, HERE)
    inner = lease.id // len(frontier._partitions.clients)
    (outcome,) = done(lease)
    outcome = msgspec.structs.replace(outcome, lease_id=inner)
    return await partition_of(frontier, HERE).commit([outcome], {inner: forwarded})


async def test_children_of_all_partitions_are_there_when_the_commit_returns(frontier):
    lease = await one_lease(frontier, "parent")
    children = [entry for number in range(6) for entry in entries("x", "y", host=host_in(number, 1))]
    assert await frontier.commit(done(lease, entries=children + children[:3])) == [True]
    assert await counts(frontier) == {"queued": 12, "done": 1}
    assert (await frontier.status()).counters["refused/duplicate"] == 3


def wait_calls_of(cluster):
    """Return how often the masters were asked to wait for their replicas."""
    found = [
        re.search(rb"cmdstat_wait:calls=(\d+)", node.ask("INFO", "commandstats")) for node in cluster.nodes
    ]
    return sum(int(match[1]) for match in found if match)


async def test_replicas_are_asked_what_they_have(frontier, cluster):
    partition = partition_of(frontier, THERE)
    await partition.replication_offset()  # notes that there are replicas
    before = await asyncio.to_thread(wait_calls_of, cluster)
    await partition.prompt_replicas()
    assert await asyncio.to_thread(wait_calls_of, cluster) > before


async def test_a_late_commit_leaves_nothing_in_any_partition(frontier):
    lease = await one_lease(frontier, "parent")
    await frontier.abandon("w")
    children = entries("x", host=host_in(THERE)) + entries("x", host=host_in(HERE))
    assert await frontier.commit(done(lease, entries=children)) == [False]
    assert await counts(frontier) == {"queued": 1}


@pytest.mark.parametrize("options", [{}, {"visited_ttl": 0.0}, {"refetch_failed": True}])
@pytest.mark.parametrize("dedup", [True, False])
async def test_a_request_delivered_twice_is_added_once(cluster, join_cluster, job_name, dedup, options):
    frontier = await join_cluster(cluster.url, job_name, **options)
    children = entries("x", "y", host=host_in(THERE), dedup=dedup)
    await commit_without_delivery(frontier, await one_lease(frontier, "parent"), children)
    parcels = await partition_of(frontier, HERE).outbox(10, 0.0)
    assert len(parcels) == 2
    target = partition_of(frontier, THERE)
    assert (await target.deliver(parcels, 0, again=False)).added == 2
    assert len(await finish_all(frontier)) == 2
    assert (await target.deliver(parcels, 0, again=True)).added == 0
    assert await counts(frontier) == {"done": 3}


async def test_requests_of_a_worker_that_died_are_delivered_by_another_before_the_end(
    cluster, join_cluster, job_name
):
    dead = await join_cluster(cluster.url, job_name)
    await no_seeds(dead)
    lease = await one_lease(dead, "parent")
    await commit_without_delivery(dead, lease, entries("x", "y", host=host_in(THERE)))
    await dead.close()
    other = await join_cluster(cluster.url, job_name)
    urls = []
    while (answer := await other.lease("other", 10)).state is not JobState.FINISHED:
        urls += [lease.url for lease in answer.leases]
        await other.commit(done(*answer.leases))
    assert sorted(urls) == [f"http://{host_in(THERE)}/{name}" for name in ("x", "y")]
    assert await counts(other) == {"done": 3}


async def test_seeds_of_all_partitions_come_with_their_progress(cluster, join_cluster, job_name):
    frontier = await join_cluster(cluster.url, job_name)
    claim = await frontier.claim_seeds("w")
    seeds = [entry for number in range(6) for entry in entries("a", host=host_in(number))]
    assert (await frontier.add(seeds, SeedProgress(claim.token, 6))).added == 6
    assert (await frontier.add(seeds, SeedProgress(claim.token + 1, 12, done=True))).added == 0
    other = await join_cluster(cluster.url, job_name)
    assert await counts(other) == {"queued": 6}
    assert (await other.status()).seeds_loading


async def test_outboxes_are_empty_once_the_replicas_have_everything(frontier, monkeypatch):
    lease = await one_lease(frontier, "parent")
    with monkeypatch.context() as patched:
        patched.setattr(frontier.forwarder, "confirm", confirm_nothing)  # that call runs in the background
        await frontier.commit(done(lease, entries=entries("x", host=host_in(THERE))))
        assert (await partition_of(frontier, HERE).partition_status()).outbox == 1
    await eventually(lambda: has_empty_outbox(frontier))
    assert await counts(frontier) == {"queued": 1, "done": 1}


async def confirm_nothing(*, prompt=False):
    """Leave all requests in their outboxes."""


async def test_workers_of_several_processes_see_one_end(cluster, join_cluster, job_name):
    """Requests move from partition to partition. No worker sees an end before the last request is done."""
    frontiers = [await join_cluster(cluster.url, job_name) for _ in range(3)]
    await no_seeds(frontiers[0])
    length = 40
    await frontiers[0].add(entries("0", host=host_in(0)))
    finished = []

    async def work(frontier, worker):
        while True:
            answer = await frontier.lease(worker, 5)
            if answer.state is JobState.FINISHED:
                return len(finished)
            for lease in answer.leases:
                step = int(lease.url.rpartition("/")[2])
                finished.append(step)
                children = entries(step + 1, host=host_in((step * 5 + 1) % 6)) if step < length else []
                assert await frontier.commit(done(lease, entries=children)) == [True]
            await asyncio.sleep(min(answer.ask_again, 0.01))

    async with asyncio.timeout(60):
        seen = await asyncio.gather(*(work(frontier, f"w{n}") for n, frontier in enumerate(frontiers)))
    assert finished == list(range(length + 1))
    assert seen == [length + 1] * 3


async def test_a_page_limit_over_partitions_is_never_missed(cluster, join_cluster, job_name):
    limit, each = 30, 4
    frontiers = [await join_cluster(cluster.url, job_name, max_pages=limit) for _ in range(3)]
    await frontiers[0].add([e for n in range(6) for e in entries(*range(40), host=host_in(n))])

    async def work(frontier, worker):
        while (answer := await frontier.lease(worker, each)).state is not JobState.STOPPING:
            await frontier.commit(done(*answer.leases, counters={"pages": 1}))
        return answer.reason

    async with asyncio.timeout(60):
        reasons = await asyncio.gather(*(work(frontier, f"w{n}") for n, frontier in enumerate(frontiers)))
    assert set(reasons) == {f"{limit} pages"}
    status = await frontiers[0].status()
    assert limit <= status.counters["pages"] <= limit + each * len(frontiers)
    assert status.leased == 0


async def test_a_large_question_takes_from_all_partitions_and_a_small_one_from_one(frontier):
    await frontier.add([e for n in range(6) for e in entries(*range(10), host=host_in(n))])
    leases = (await frontier.lease("w", 30)).leases
    assert {frontier.partitions.of_lease(lease.id) for lease in leases} == set(range(6))
    assert len((await frontier.lease("w", 1)).leases) == 1
    assert len((await frontier.lease("w", 100)).leases) == 29


async def test_pages_of_dead_letters_hold_each_letter_once(frontier):
    await frontier.add([e for n in range(6) for e in entries(*range(n + 3), host=host_in(n))])
    leases = (await frontier.lease("w", 100)).leases
    outcomes = [msgspec.structs.replace(outcome, resolution="failed") for outcome in done(*leases)]
    await frontier.commit(outcomes)
    letters, after = [], 0
    while page := await frontier.dead_letters.list(after, limit=7):
        letters += page
        after = page[-1].id
    assert sorted(letter.url for letter in letters) == sorted(lease.url for lease in leases)
    assert await frontier.dead_letters.replay([letter.id for letter in letters[:5]]) == 5
    assert await frontier.dead_letters.drop() == len(leases) - 5
