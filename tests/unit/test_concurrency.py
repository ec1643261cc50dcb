"""Tasks that lose their cancellation, servers that close, and short calls on the event loop or in a thread."""

import asyncio
import contextlib
import gc
import socket
import threading
import time

import pytest

from skitter._utils import concurrency
from skitter._utils.concurrency import SingleThreadExecutor, cancel_and_wait, stop_listening, wait_until_set


@pytest.fixture
async def executor():
    executor = SingleThreadExecutor("test")
    yield executor
    executor.stop()


async def test_a_short_call_runs_on_the_event_loop(executor):
    assert await executor.run_short(threading.current_thread) is threading.current_thread()


async def test_other_calls_run_in_the_thread(executor):
    assert await executor.run(threading.current_thread) is not threading.current_thread()


async def test_a_short_call_does_not_overtake_a_call_in_progress(executor):
    release, order = threading.Event(), []

    def wait():
        release.wait(60)
        order.append("long")

    def note():
        order.append("short")
        return threading.current_thread()

    long = asyncio.create_task(executor.run(wait))
    await asyncio.sleep(0)  # submits the call
    short = asyncio.create_task(executor.run_short(note))
    await asyncio.sleep(0)
    assert order == []
    release.set()
    await long
    assert await short is not threading.current_thread()
    assert order == ["long", "short"]


async def test_a_short_call_does_not_overtake_a_call_whose_caller_was_cancelled(executor):
    started, release, order = threading.Event(), threading.Event(), []
    long = asyncio.create_task(executor.run(lambda: (started.set(), release.wait(60), order.append("long"))))
    await asyncio.to_thread(started.wait, 60)
    long.cancel()
    short = asyncio.create_task(executor.run_short(order.append, "short"))
    await asyncio.sleep(0)
    release.set()
    await short
    assert order == ["long", "short"]


async def test_after_a_slow_call_short_calls_run_in_the_thread_for_a_while(executor, monkeypatch):
    monkeypatch.setattr(concurrency, "_LONGEST_SHORT_CALL", 0.001)
    monkeypatch.setattr(concurrency, "_BLOCKED_SHARE", 1e-6)
    await executor.run_short(time.sleep, 0.005)
    assert await executor.run_short(threading.current_thread) is not threading.current_thread()
    monkeypatch.setattr(concurrency, "_BLOCKED_SHARE", 1e6)
    executor = SingleThreadExecutor("test")
    await executor.run_short(time.sleep, 0.005)
    assert await executor.run_short(threading.current_thread) is threading.current_thread()
    executor.stop()


async def test_the_error_of_a_short_call_is_raised(executor):
    with pytest.raises(ZeroDivisionError):
        await executor.run_short(lambda: 1 // 0)


async def test_a_task_that_loses_its_cancellation_is_cancelled_again(monkeypatch):
    monkeypatch.setattr(concurrency, "_CANCEL_INTERVAL", 0.01)
    lost = []

    async def run_forever():
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if len(lost) == 3:
                    raise
                lost.append("cancellation")

    task = asyncio.create_task(run_forever())
    await asyncio.sleep(0)
    await cancel_and_wait([task])
    assert task.cancelled()
    assert len(lost) == 3


async def test_the_end_of_a_task_may_take_some_time():
    ended = []

    async def run_forever():
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            ended.append("cleanly")

    tasks = [asyncio.create_task(run_forever()) for _ in range(2)]
    await asyncio.sleep(0)
    await cancel_and_wait(tasks)
    assert ended == ["cleanly", "cleanly"]


async def test_a_cancelled_task_may_end_with_an_error():
    async def fail():
        await asyncio.sleep(0)
        raise ZeroDivisionError

    tasks = [asyncio.create_task(fail()), asyncio.create_task(asyncio.sleep(0))]
    await asyncio.wait(tasks)
    await cancel_and_wait(tasks)
    await cancel_and_wait([])
    assert [task.cancelled() for task in tasks] == [False, False]


async def test_an_event_is_awaited_for_a_limited_time():
    event = asyncio.Event()
    await wait_until_set(event, 0.001)
    assert not event.is_set()
    asyncio.get_running_loop().call_soon(event.set)
    await wait_until_set(event, 60)
    assert event.is_set()


@pytest.mark.parametrize("iterations", range(4))
async def test_a_server_that_stops_listening_leaves_no_accepted_socket_open(iterations):
    connected, lost = [], []

    class Accepting(asyncio.Protocol):
        def connection_made(self, transport):
            connected.append(transport)

        def connection_lost(self, exc):
            lost.append(exc)

    server = await asyncio.get_running_loop().create_server(Accepting, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    with socket.create_connection(address) as client:
        for _ in range(iterations):
            await asyncio.sleep(0)
        await stop_listening(server)
        for transport in connected:
            transport.close()
        while len(lost) < len(connected):
            await asyncio.sleep(0)
        client.settimeout(5)
        with contextlib.suppress(ConnectionResetError):  # the server had not accepted it
            assert client.recv(1) == b""
    assert connected or iterations < 3
    gc.collect()  # a socket that is still open is a warning, which pytest raises
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
