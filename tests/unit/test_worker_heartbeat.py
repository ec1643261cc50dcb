"""Heartbeat: a live worker sends heartbeats, whatever its server or its client does."""

import asyncio
import logging

import pytest

from skitter.errors import FrontierError
from skitter.worker import heartbeat
from skitter.worker.heartbeat import Heartbeat


class Liveness:
    """A frontier whose first calls fail."""

    def __init__(self, failures, then):
        self.failures = failures
        self.opened = 0
        self._then = then

    async def open(self):
        self.opened += 1

    async def close(self):
        if self.failures:
            raise OSError("the connection is broken")

    async def beat(self, worker):
        if self.failures:
            raise self.failures.pop(0)
        self._then(worker)
        return []


@pytest.mark.parametrize(
    ("failures", "logged"),
    [
        ([OSError("no route"), RuntimeError("bug"), OSError("no route")], 1),
        ([FrontierError("unavailable")] * 2, 0),
    ],
    ids=["unexpected", "expected"],
)
async def test_a_worker_sends_heartbeats_after_any_error(monkeypatch, caplog, failures, logged):
    caplog.set_level(logging.WARNING, "skitter")
    monkeypatch.setattr(heartbeat, "_RETRY_SECONDS", 0.01)
    loop, heard = asyncio.get_running_loop(), asyncio.Event()
    liveness = Liveness(list(failures), lambda _worker: loop.call_soon_threadsafe(heard.set))
    beating = Heartbeat("w", liveness, lambda _dead: None)
    await beating.start()
    try:
        async with asyncio.timeout(30):
            await heard.wait()
    finally:
        await beating.stop()
    assert liveness.opened == len(failures) + 1
    assert [record.getMessage() for record in caplog.records] == ["no heartbeat"] * logged
