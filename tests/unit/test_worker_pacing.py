"""CallbackPacer: callbacks of a burst of answers leave turns of the event loop to the sockets."""

import asyncio
import time

import pytest

from skitter.worker.callbacks import _REFILL_TURNS, CallbackPacer

BURST = 60


def work(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


class Turns:
    """Counts the turns of the event loop while something else runs."""

    def __init__(self):
        self.count = 0
        self._task = asyncio.ensure_future(self._run())

    async def _run(self):
        while True:
            await asyncio.sleep(0)
            self.count += 1

    def stop(self):
        self._task.cancel()


@pytest.fixture
async def turns():
    turns = Turns()
    yield turns
    turns.stop()


async def burst(pacer, done, number, seconds):
    await pacer.turn()
    work(seconds)
    done.append(number)


async def test_a_burst_of_callbacks_leaves_turns_to_the_sockets(turns):
    pacer, done = CallbackPacer(), []
    async with asyncio.TaskGroup() as group:
        for number in range(BURST):
            group.create_task(burst(pacer, done, number, 0.001))
    assert done == list(range(BURST))  # in the order of arrival
    assert turns.count >= BURST / 3


async def test_short_callbacks_share_a_turn(turns):
    pacer, done = CallbackPacer(), []
    async with asyncio.TaskGroup() as group:
        for number in range(BURST):
            group.create_task(burst(pacer, done, number, 0))
    assert len(done) == BURST
    assert turns.count < BURST / 2


async def test_no_callback_runs_before_the_next_request_is_sent(turns):
    begun = turns.count
    await burst(CallbackPacer(), [], 1, 0)
    assert turns.count - begun >= _REFILL_TURNS


async def test_a_cancelled_callback_does_not_hold_up_the_others():
    pacer, done = CallbackPacer(), []
    tasks = [asyncio.ensure_future(burst(pacer, done, number, 0.002)) for number in range(6)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    tasks[3].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert done == [0, 1, 2, 4, 5]
