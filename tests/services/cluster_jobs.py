"""Helpers for jobs on a cluster: the partition of a host, and the node that serves it."""

import asyncio
import time
from itertools import count

import xxhash
from redis.crc import key_slot

from services.frontier_requests import done

PARTITIONS = 6


def host_in(partition: int, skip: int = 0) -> str:
    """Return a host whose requests are in a partition."""
    for number in count():
        host = f"h{number}.test"
        if xxhash.xxh3_64_intdigest(host.encode()) % PARTITIONS == partition:
            skip -= 1
            if skip < 0:
                return host
    raise AssertionError


def keys_of(job: str, partition: int) -> str:
    return f"skitter:{{{job}/{partition}}}:job"


def node_of(cluster, job: str, partition: int):
    """Return the master that served a partition when the cluster started."""
    place = key_slot(keys_of(job, partition).encode())
    return cluster.masters[next(n for n in range(3) if place < 16384 * (n + 1) // 3)]


def apart(cluster, job: str) -> tuple[int, int]:
    """Return two partitions on two nodes, neither of which is the node of the first partition."""
    home = node_of(cluster, job, 0)
    numbers = [n for n in range(1, PARTITIONS) if node_of(cluster, job, n) is not home]
    first = numbers[0]
    return first, next(
        n for n in range(PARTITIONS) if node_of(cluster, job, n) is not node_of(cluster, job, first)
    )


async def finish_all(frontier, worker="w") -> list[str]:
    """Lease and finish all requests. Return the URLs in order."""
    urls = []
    while leases := (await frontier.lease(worker, 100)).leases:
        urls += [lease.url for lease in leases]
        await frontier.commit(done(*leases))
    return urls


async def eventually(fact, patience=30.0):
    """Wait until an asynchronous ``fact()`` is true."""
    deadline = time.monotonic() + patience
    while not await fact():
        assert time.monotonic() < deadline, "it never came"
        await asyncio.sleep(0.05)
