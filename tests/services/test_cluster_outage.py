"""Nodes of a cluster that become unavailable, return, are replaced or move their slots while a job runs."""

import asyncio
import logging
import os
import signal

import pytest
from redis.crc import key_slot

from services.cluster_jobs import PARTITIONS, apart, eventually, finish_all, host_in, keys_of, node_of
from services.frontier_requests import counts, done, entries
from services.redis_cluster import STABLE, follows
from skitter.frontier.records import JobState, SeedProgress
from skitter.frontier.redis.address import parse_cluster
from skitter.frontier.redis.cluster import ClusterClient, PartitionConnection, partition_server

LOGGED = ("--appendonly", "yes", "--appendfsync", "always")


@pytest.fixture
def kind():
    return "valkey"


async def no_seeds(frontier):
    claim = await frontier.claim_seeds("seeder")
    await frontier.add([], SeedProgress(claim.token, claim.position, done=True))


async def lease_from_each(frontier):
    """Lease one request of every partition. Return them by partition."""
    leases = (await frontier.lease("w", PARTITIONS)).leases
    return {frontier.partitions.of_lease(lease.id): lease for lease in leases}


async def work_to_the_end(frontier, worker="w"):
    """Lease and commit until the job is finished. Return the URLs, and whether a setback was reported."""
    urls, had_data_loss = [], False
    async with asyncio.timeout(60):
        while (answer := await frontier.lease(worker, 10)).state is not JobState.FINISHED:
            had_data_loss |= answer.data_loss
            accepted = await frontier.commit(done(*answer.leases))
            urls += [lease.url for lease, taken in zip(answer.leases, accepted, strict=True) if taken]
            await asyncio.sleep(min(answer.ask_again, 0.05))
    return sorted(urls), had_data_loss


async def test_the_rest_continues_while_a_node_is_unavailable_and_one_message_reports_it(
    own_cluster, join_cluster, job_name, caplog
):
    cluster = own_cluster(*LOGGED, replicas=False, node_timeout=STABLE)
    frontier = await join_cluster(cluster.url, job_name)
    await no_seeds(frontier)
    pages = [e for n in range(PARTITIONS) for e in entries("a", "b", "c", host=host_in(n))]
    await frontier.add(pages)
    held = await lease_from_each(frontier)
    there, away = apart(cluster, job_name)
    node = node_of(cluster, job_name, away)
    lost = {n for n in range(PARTITIONS) if node_of(cluster, job_name, n) is node}
    with caplog.at_level(logging.WARNING, "skitter.frontier"):
        node.kill()
        child = entries("child", host=host_in(away))
        waiting = [asyncio.create_task(frontier.commit(done(held[n]))) for n in sorted(lost)]
        going = await frontier.commit(
            [o for n in held if n not in lost for o in done(held[n], entries=child if n == there else [])]
        )
        assert all(going)
        others = await finish_all(frontier)
        assert len(others) == 2 * (PARTITIONS - len(lost))
        assert (await frontier.lease("w", 10)).state is JobState.RUNNING
        assert (
            await frontier.renew(
                "w", [lease.id for lease in held.values() if frontier.partitions.of_lease(lease.id) in lost]
            )
            == []
        )
        assert not any(task.done() for task in waiting)
        node.start()
        async with asyncio.timeout(60):
            assert await asyncio.gather(*waiting) == [[True]] * len(lost)
        rest, _ = await work_to_the_end(frontier)
    assert sorted({*rest, *others, *(lease.url for lease in held.values())}) == sorted(
        entry.url for entry in pages + child
    )
    assert await counts(frontier) == {"done": len(pages) + 1}
    with caplog.at_level(logging.WARNING, "skitter.frontier"):
        await frontier.close()  # reports the end of the outage, unless that has happened already
    told = [record.getMessage() for record in caplog.records]
    assert len([text for text in told if "a part of the cluster" in text]) == 1, told
    assert len([text for text in told if "all parts of the cluster" in text]) == 1, told


def take_over(cluster, master):
    """Promote the replica of a master immediately. The cluster itself would also take a suspended master for dead."""
    cluster.replicas[cluster.masters.index(master)].ask("CLUSTER", "FAILOVER", "TAKEOVER")


async def test_a_replica_takes_over_and_nothing_is_lost(own_cluster, join_cluster, job_name):
    cluster = own_cluster(node_timeout=STABLE)
    frontiers = [await join_cluster(cluster.url, job_name) for _ in range(2)]
    await no_seeds(frontiers[0])
    pages = [e for n in range(PARTITIONS) for e in entries(*range(10), host=host_in(n))]
    await frontiers[0].add(pages)
    for frontier in frontiers:
        held = await lease_from_each(frontier)
        await frontier.commit(done(*held.values()))
    _, away = apart(cluster, job_name)
    master = node_of(cluster, job_name, away)
    master.kill()
    take_over(cluster, master)
    results = await asyncio.gather(*(work_to_the_end(f, f"w{n}") for n, f in enumerate(frontiers)))
    assert all(had_data_loss for _, had_data_loss in results)
    assert await counts(frontiers[0]) == {"done": len(pages)}
    urls = sorted(url for urls, _ in results for url in urls)
    assert len(urls) == len(pages) - 2 * PARTITIONS
    assert len(set(urls)) == len(urls)


async def is_replica_of(node, other):
    info = await asyncio.to_thread(node.ask, "INFO", "replication")
    return f"master_port:{other.port}".encode() in info and follows(node)


@pytest.mark.parametrize("patient", [True, False])
async def test_a_joining_worker_refreshes_an_outdated_view_of_the_cluster(own_cluster, job_name, patient):
    servers = own_cluster(node_timeout=STABLE)
    cluster = ClusterClient(parse_cluster(servers.url))
    key = keys_of(job_name, 0)
    await cluster.node_of(key)
    master = node_of(servers, job_name, 0)
    replica = servers.replicas[servers.masters.index(master)]
    take_over(servers, master)
    await eventually(lambda: is_replica_of(master, replica))
    try:
        server = partition_server(cluster, PartitionConnection(cluster, key))
        await server.connect(patient=patient)
        assert int((await server.command("INFO", "replication"))["connected_slaves"]) == 1
    finally:
        await cluster.close()


async def test_requests_that_a_replica_never_received_are_delivered_again(
    own_cluster, join_cluster, job_name
):
    cluster = own_cluster(node_timeout=STABLE)
    frontier = await join_cluster(cluster.url, job_name)
    await no_seeds(frontier)
    here, there = apart(cluster, job_name)
    await frontier.add(entries("parent", host=host_in(here)))
    (parent,) = (await frontier.lease("w", 1)).leases
    master = node_of(cluster, job_name, there)
    replica = cluster.replicas[cluster.masters.index(master)]
    os.kill(replica.process.pid, signal.SIGSTOP)
    try:
        master.ask("CLIENT", "KILL", "TYPE", "replica")  # it receives no changes from now on
        master.wait_for(lambda: b"connected_slaves:0" in master.ask("INFO", "replication"))
        children = entries("x", "y", host=host_in(there)) + entries("z", host=host_in(there), dedup=False)
        assert await frontier.commit(done(parent, entries=children)) == [True]
        assert await counts(frontier) == {"queued": 3, "done": 1}
        for _ in range(3):
            await frontier.forwarder.confirm()
        assert (await frontier._partitions.clients[here].partition.partition_status()).outbox == 3
        master.kill()
    finally:
        os.kill(replica.process.pid, signal.SIGCONT)
    take_over(cluster, master)
    urls, had_data_loss = await work_to_the_end(frontier)
    assert had_data_loss
    assert urls == sorted(child.url for child in children)
    assert await counts(frontier) == {"done": 4}


async def test_a_job_does_not_end_before_its_last_commit_is_replicated(own_cluster, join_cluster, job_name):
    cluster = own_cluster(node_timeout=STABLE)
    frontier = await join_cluster(cluster.url, job_name)
    await no_seeds(frontier)
    here, there = apart(cluster, job_name)
    await frontier.add(entries("parent", host=host_in(here)))
    (parent,) = (await frontier.lease("w", 1)).leases
    replica = cluster.replicas[cluster.masters.index(node_of(cluster, job_name, there))]
    os.kill(replica.process.pid, signal.SIGSTOP)
    try:
        await frontier.commit(done(parent, entries=entries("x", host=host_in(there))))
        (child,) = (await frontier.lease("w", 1)).leases
        await frontier.commit(done(child))
        assert (await frontier.lease("w", 1)).state is JobState.RUNNING  # the commit may still be lost
    finally:
        os.kill(replica.process.pid, signal.SIGCONT)
    await work_to_the_end(frontier)


def move_slot(cluster, job, partition):
    """Move all keys of a partition to another master, one after the other, like ``redis-cli --cluster reshard``."""
    source = node_of(cluster, job, partition)
    target = next(node for node in cluster.masters if node is not source)
    end_move(begin_to_move(source, target, keys_of(job, partition)), target, cluster)


def begin_to_move(source, target, key) -> int:
    """Move all keys of a slot without the slot itself. Return its number."""
    slot = key_slot(key.encode())
    target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.ask("CLUSTER", "MYID"))
    source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.ask("CLUSTER", "MYID"))
    while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 2):
        source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 60_000, "KEYS", *keys)
    return slot


def end_move(slot, target, cluster):
    name = target.ask("CLUSTER", "MYID")
    for node in (target, *(node for node in cluster.masters if node is not target)):
        node.ask("CLUSTER", "SETSLOT", slot, "NODE", name)


async def test_a_slot_may_be_moved_to_another_node_at_any_time(own_cluster, join_cluster, job_name):
    cluster = own_cluster(node_timeout=STABLE)
    frontier = await join_cluster(cluster.url, job_name)
    await no_seeds(frontier)
    pages = [e for n in range(PARTITIONS) for e in entries(*range(30), host=host_in(n))]
    await frontier.add(pages)
    working = asyncio.create_task(work_slowly(frontier))
    for partition in (1, 2, 3):
        await asyncio.to_thread(move_slot, cluster, job_name, partition)
    async with asyncio.timeout(60):
        urls = await working
    assert sorted(urls) == sorted(page.url for page in pages)
    assert await counts(frontier) == {"done": len(pages)}


async def test_a_slot_may_be_moved_to_a_node_that_has_just_joined(
    own_cluster, join_cluster, job_name, caplog
):
    caplog.set_level(logging.WARNING, "skitter")
    cluster = own_cluster(replicas=False, node_timeout=STABLE)
    frontier = await join_cluster(cluster.url, job_name)
    await frontier.add(entries("a", host=host_in(1)))
    source, target = node_of(cluster, job_name, 1), cluster.add_master()
    slot = begin_to_move(source, target, keys_of(job_name, 1))
    adding = asyncio.create_task(frontier.add(entries("b", host=host_in(1))))
    await eventually(lambda: is_logged(caplog, "its cluster moves keys"))
    assert not adding.done()
    end_move(slot, target, cluster)
    assert (await adding).added == 1
    assert await counts(frontier) == {"queued": 2}


async def is_logged(caplog, text):
    return any(text in record.getMessage() for record in caplog.records)


async def work_slowly(frontier):
    urls = []
    while (answer := await frontier.lease("w", 3)).state is not JobState.FINISHED:
        assert all(await frontier.commit(done(*answer.leases)))
        urls += [lease.url for lease in answer.leases]
        await asyncio.sleep(0.005)
    return urls


async def test_no_call_waits_for_a_note_of_an_unavailable_partition(own_cluster, join_cluster, job_name):
    cluster = own_cluster(*LOGGED, replicas=False, node_timeout=STABLE)
    frontier = await join_cluster(cluster.url, job_name)
    _, away = apart(cluster, job_name)
    host = host_in(away)
    await frontier.notes.put(host, b"note", 1000.0)
    node = node_of(cluster, job_name, away)
    node.kill()
    async with asyncio.timeout(30):
        assert await frontier.notes.get(host) is None
        await frontier.notes.put(host, b"later", 1000.0)
        assert await frontier.partitions.unknown([b"\1" * 16], [host]) == [True]
    node.start()
    await eventually(lambda: is_there(frontier, host))


async def is_there(frontier, host):
    return await frontier.notes.get(host) == b"later"
