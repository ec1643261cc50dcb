"""Short helpers for requests and outcomes, for tests of frontiers on servers."""

import hashlib

from skitter.frontier.records import Entry, Outcome, Resolution
from skitter.politeness import HostLimits, Politeness

FREE = Politeness(HostLimits(delay=0.0, concurrency_per_slot=1000))


def entries(*names, host="h.test", **fields) -> list[Entry]:
    urls = [f"http://{host}/{name}" for name in names]
    keys = [hashlib.blake2b(url.encode(), digest_size=16).digest() for url in urls]
    return [Entry(key, host, url, b"\x01", **fields) for key, url in zip(keys, urls, strict=True)]


def done(*leases, **fields) -> list[Outcome]:
    return [Outcome(lease.id, Resolution.DONE, **fields) for lease in leases]


async def counts(frontier) -> dict[str, int]:
    status = await frontier.status()
    states = ("queued", "delayed", "leased", "done", "failed")
    return {name: getattr(status, name) for name in states if getattr(status, name)}
