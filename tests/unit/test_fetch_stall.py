"""StallWatch: when a transfer counts as stalled."""

import asyncio

import pycurl
import pytest

from skitter.fetch.contract import TimedOut
from skitter.fetch.http import StallWatch


class FakeTransfer:
    """Returns a scripted byte count from ``getinfo`` for each check; the last one is repeated."""

    def __init__(self, *counts, connected=True):
        self.looks = 0
        self._counts = counts
        self._connected = connected

    def getinfo(self, what):
        if what == pycurl.PRETRANSFER_TIME:
            self.looks += 1
            return float(self._connected)
        return self._counts[min(self.looks, len(self._counts)) - 1] if what == pycurl.SIZE_DOWNLOAD_T else 0


def watched(*transfers):
    running = {transfer: asyncio.get_running_loop().create_future() for transfer in transfers}
    watch = StallWatch(running, 0.02)
    watch.start()
    return running, watch


async def test_a_transfer_in_which_nothing_moves_ends_and_others_continue():
    still, moving, connecting = (
        FakeTransfer(7),
        FakeTransfer(*range(10_000)),
        FakeTransfer(0, connected=False),
    )
    running, watch = watched(still, moving, connecting)
    with pytest.raises(TimedOut):
        await running[still]
    assert still.looks == 5
    assert not running[moving].done()
    assert not running[connecting].done()
    watch.stop()


async def test_progress_resets_the_stall_count():
    transfer = FakeTransfer(1, 1, 1, 1, 2)
    running, watch = watched(transfer)
    with pytest.raises(TimedOut):
        await running[transfer]
    assert transfer.looks == 9
    watch.stop()


async def test_a_loop_that_was_busy_elsewhere_ends_nothing():
    transfer = FakeTransfer(*range(10_000))
    running, watch = watched(transfer)
    loop = asyncio.get_running_loop()
    until = loop.time() + 0.2
    while loop.time() < until:
        pass
    await asyncio.sleep(0)
    assert not running[transfer].done()
    watch.stop()


async def test_nothing_is_checked_without_transfers():
    transfer = FakeTransfer(7)
    running, watch = watched(transfer)
    with pytest.raises(TimedOut):
        await running[transfer]
    del running[transfer]
    seen = transfer.looks
    await asyncio.sleep(0.05)
    assert transfer.looks == seen
    watch.stop()
