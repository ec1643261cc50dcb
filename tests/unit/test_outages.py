"""What is told of parts of a cluster that are away: each outage once, and its end once."""

import asyncio
import logging

from skitter.frontier.redis import cluster
from skitter.frontier.redis.cluster import OutageTracker

BEGUN, ENDED = (
    "frontier c: a part of the cluster cannot be used",
    "frontier c: all parts of the cluster work again",
)


def begin_and_end(parts, *names):
    for name in names:
        parts.begin(name, "cannot be used: it does not respond")
    for name in names:
        assert name in parts
        parts.end(name)
        assert name not in parts


async def test_parts_that_go_and_come_in_one_outage_are_reported_once(caplog):
    caplog.set_level(logging.WARNING, "skitter.frontier")
    parts = OutageTracker("c")
    begin_and_end(parts, "1", "2")
    begin_and_end(parts, "3")
    begin_and_end(parts, "1")
    parts.end("4")
    parts.close()
    parts.close()
    first, last = [record.getMessage() for record in caplog.records]
    assert first.startswith(f"{BEGUN}: it does not respond")
    assert last.startswith(ENDED)


async def test_an_outage_is_over_once_all_has_been_there_for_a_while(caplog, monkeypatch):
    caplog.set_level(logging.WARNING, "skitter.frontier")
    monkeypatch.setattr(cluster, "STABLE_AFTER", 0.01)
    parts = OutageTracker("c")
    for outage in (1, 2):
        begin_and_end(parts, "1")
        async with asyncio.timeout(60):
            while len(caplog.records) < 2 * outage:
                await asyncio.sleep(0.01)
    for record, beginning in zip(caplog.records, [BEGUN, ENDED] * 2, strict=True):
        assert record.getMessage().startswith(beginning)
    parts.close()
    assert len(caplog.records) == 4
