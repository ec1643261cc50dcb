"""CallbackPacer: callbacks of a burst of answers leave turns of the event loop to the sockets."""

import asyncio

import pytest

from skitter.worker import callbacks
from skitter.worker.callbacks import CallbackPacer

BURST = 60
SIZE = 20_000


class Turns:
    """Counts the turns of the event loop while other code runs."""

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


class Clock:
    """A clock on which only callbacks take time, some of it CPU time."""

    def __init__(self, monkeypatch, cpu_share):
        self.cpu_share = cpu_share
        self._now = 0.0
        self._cpu_seconds = 0.0
        monkeypatch.setattr(callbacks, "time", self)

    def perf_counter(self):
        return self._now

    def thread_time(self):
        return self._cpu_seconds

    def advance(self, seconds):
        self._now += seconds
        self._cpu_seconds += seconds * self.cpu_share

    async def callback(self, pacer, seconds=0.001):
        if (turn := pacer.next_turn(SIZE)) is not None:
            await turn
        self.advance(seconds)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch, 0.5)


async def burst(clock, pacer, done, number, seconds):
    await clock.callback(pacer, seconds)
    done.append(number)


async def test_a_burst_of_callbacks_leaves_turns_to_the_sockets(turns, clock):
    pacer, done = CallbackPacer(), []
    async with asyncio.TaskGroup() as group:
        for number in range(BURST):
            group.create_task(burst(clock, pacer, done, number, 0.001))
    assert done == list(range(BURST))  # in the order of arrival
    assert turns.count >= BURST / 3


async def test_short_callbacks_share_a_turn(turns, clock):
    pacer, done = CallbackPacer(), []
    async with asyncio.TaskGroup() as group:
        for number in range(BURST):
            group.create_task(burst(clock, pacer, done, number, 0))
    assert len(done) == BURST
    assert turns.count < BURST / 2


async def test_no_callback_runs_before_the_next_request_is_sent(turns, clock):
    begun = turns.count
    await burst(clock, CallbackPacer(), [], 1, 0)
    assert turns.count - begun >= callbacks._REFILL_TURNS


async def test_a_cancelled_callback_does_not_hold_up_the_others(clock):
    pacer, done = CallbackPacer(), []
    tasks = [asyncio.ensure_future(burst(clock, pacer, done, number, 0.002)) for number in range(6)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    tasks[3].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert done == [0, 1, 2, 4, 5]


async def turns_of_a_burst(monkeypatch, cpu_share):
    clock, turns = Clock(monkeypatch, cpu_share), Turns()
    pacer = CallbackPacer()
    await asyncio.gather(*(clock.callback(pacer) for _ in range(2000)))
    turns.stop()
    return turns.count


async def test_callbacks_run_longer_while_the_event_loop_has_no_idle_time(monkeypatch):
    idle = await turns_of_a_burst(monkeypatch, 0.5)
    assert await turns_of_a_burst(monkeypatch, 0.95) < idle * 0.6


async def test_callbacks_wait_again_once_the_event_loop_has_idle_time(monkeypatch):
    clock = Clock(monkeypatch, 0.95)
    pacer = CallbackPacer()
    await asyncio.gather(*(clock.callback(pacer) for _ in range(2000)))
    assert pacer.next_turn(SIZE) is None
    clock.cpu_share = 0.5
    clock.advance(1)
    await asyncio.sleep(0)
    assert pacer.next_turn(SIZE) is not None


async def test_large_pages_run_at_once_for_a_while(monkeypatch):
    clock = Clock(monkeypatch, 0.1)
    pacer = CallbackPacer()
    at_once = 0
    while pacer.next_turn(1 << 20) is None:
        clock.advance(0.001)
        at_once += 1
    assert at_once == 5
