"""Multi: transfers on the event loop, with one epoll object or with the loop's own watchers."""

import asyncio
import socket
import sys
import threading
import time

import pycurl
import pytest

from servers.fetch_raw import RawServer, page
from skitter.fetch import multi as multi_module
from skitter.fetch.contract import ConnectError, TimedOut
from skitter.fetch.http import HttpFetcher
from skitter.fetch.multi import EpollWatcher, LoopWatcher, Multi
from skitter.request import Request
from skitter.settings import Settings

WATCHERS = [LoopWatcher, EpollWatcher] if sys.platform == "linux" else [LoopWatcher]


@pytest.fixture(params=WATCHERS)
def watches(request, monkeypatch):
    """All created watchers of one kind; each counts its checks."""
    made = []

    class Counting(request.param):
        def __init__(self, loop, on_ready):
            super().__init__(loop, self.count)
            self.looks = 0
            self.tell = on_ready
            made.append(self)

        def count(self, ready):
            self.looks += 1
            self.tell(ready)

        def _look(self):
            self.looks += 1
            super()._look()

    monkeypatch.setattr(multi_module, "EpollWatcher", Counting)
    monkeypatch.setattr(multi_module, "LoopWatcher", Counting)
    return made


@pytest.fixture
def read_timeout():
    """Longer than any server here is silent, unless a test sets another timeout."""
    return 30.0


@pytest.fixture
async def fetcher(watches, read_timeout):
    made = HttpFetcher(Settings(connect_timeout=60.0, read_timeout=read_timeout))
    await made.open()
    yield made
    await made.close()


async def test_many_requests_at_once_and_one_after_another_share_connections(fetcher):
    async with RawServer({f"/{n}": page(b"x" * n * 1000) for n in range(40)}) as server:
        for _ in range(5):
            requests = [Request(server.url(f"/{n}")) for n in range(40)]
            answers = await asyncio.gather(*map(fetcher.fetch, requests))
            assert [len(answer.body) for answer in answers] == [n * 1000 for n in range(40)]
        assert server.connections <= 40


async def test_connections_that_the_server_closes_while_they_idle_cost_neither_a_page_nor_the_loop(
    fetcher, watches
):
    """Other sockets, including those of the server in this process, can reuse the descriptors immediately."""
    async with RawServer({"/": page(b"a")}, closing={"/"}) as server:
        for _ in range(30):
            answers = await asyncio.gather(*(fetcher.fetch(Request(server.url())) for _ in range(8)))
            assert [answer.body for answer in answers] == [b"a"] * 8
        assert server.connections == 240
        while server.open_now:
            await asyncio.sleep(0)
        await fetcher.fetch(Request(server.url()))
        (watch,) = watches
        before = watch.looks
        for _ in range(1000):
            await asyncio.sleep(0)
        assert watch.looks - before <= 16


async def test_a_cancelled_transfer_leaves_nothing_behind(fetcher, watches):
    started = asyncio.Event()

    async def never(wire):
        started.set()
        await wire.gone()
        return False

    async with RawServer({"/never": never, "/": page(b"b")}) as server:
        stuck = asyncio.create_task(fetcher.fetch(Request(server.url("/never"))))
        await started.wait()
        stuck.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stuck
        await server.gone.wait()
        assert (await fetcher.fetch(Request(server.url()))).body == b"b"


@pytest.mark.parametrize("read_timeout", [0.2])
async def test_time_outs_and_refused_connections_end_their_transfer_alone(fetcher, free_port):
    async def stall(wire):
        await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab")
        await wire.gone()
        return False

    async with RawServer({"/stall": stall, "/": page(b"c")}) as server:
        ends = await asyncio.gather(
            fetcher.fetch(Request(server.url("/stall"))),
            fetcher.fetch(Request(f"http://127.0.0.1:{free_port}/")),
            fetcher.fetch(Request(server.url())),
            return_exceptions=True,
        )
    assert [type(end) for end in ends[:2]] == [TimedOut, ConnectError]
    assert ends[2].body == b"c"


async def test_a_total_time_out_is_kept_although_shorter_ones_were_set_before(watches):
    async def drip(wire):
        await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while True:
            await wire.send(b".")
            await asyncio.sleep(0.02)

    fetcher = HttpFetcher(Settings(timeout=60.0, read_timeout=30.0))
    await fetcher.open()
    async with RawServer({"/drip": drip, "/": page(b"d")}) as server:
        await fetcher.fetch(Request(server.url()))
        with pytest.raises(TimedOut):
            await fetcher.fetch(Request(server.url("/drip"), timeout=0.3))
        assert (await fetcher.fetch(Request(server.url()))).body == b"d"
    await fetcher.close()


async def test_closing_ends_requests_in_flight(watches):
    started = asyncio.Event()

    async def never(wire):
        started.set()
        await wire.gone()
        return False

    fetcher = HttpFetcher(Settings())
    await fetcher.open()
    async with RawServer({"/": never}) as server:
        stuck = asyncio.create_task(fetcher.fetch(Request(server.url())))
        await started.wait()
        await fetcher.close()
        with pytest.raises(ConnectError):
            await stuck
        await server.gone.wait()


def answer_later(listening, asked, answered):
    connection, _ = listening.accept()
    with connection:
        connection.recv(4096)
        asked.set()
        time.sleep(0.1)
        connection.sendall(page(b"a"))
        answered.append(time.monotonic())
        connection.recv(4096)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells when data arrived")
async def test_the_wait_for_a_busy_event_loop_is_not_part_of_the_latency(fetcher):
    asked, answered = threading.Event(), []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = asyncio.create_task(asyncio.to_thread(answer_later, listening, asked, answered))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        began = time.monotonic()
        fetching = asyncio.create_task(fetcher.fetch(Request(url)))
        while not asked.is_set():
            await asyncio.sleep(0.005)
        while not answered:
            time.sleep(0.005)  # noqa: ASYNC251 - the loop is blocked
        time.sleep(1.0)  # noqa: ASYNC251 - the loop is blocked after the answer has come
        answer = await fetching
        await fetcher.close()
        await server
    assert 0.08 < answer.latency < answered[0] - began + 0.5


def answer_in_two_parts(listening):
    connection, _ = listening.accept()
    with connection:
        connection.recv(4096)
        time.sleep(0.2)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na")
        time.sleep(0.3)
        connection.sendall(b"b")
        connection.recv(4096)


async def test_an_end_that_waits_for_the_event_loop_does_not_reduce_the_time_of_the_beginning(fetcher):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = asyncio.create_task(asyncio.to_thread(answer_in_two_parts, listening))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        fetching = asyncio.create_task(fetcher.fetch(Request(url)))
        await asyncio.sleep(0.35)  # the first part has arrived
        time.sleep(1.0)  # noqa: ASYNC251 - the loop is blocked
        answer = await fetching
        await fetcher.close()
        await server
    assert answer.latency > 0.15


async def test_an_answer_whose_wait_is_measured_as_longer_than_it_took_has_a_latency_nonetheless(
    fetcher, monkeypatch
):
    """With a latency of 0, the response would be missing in the counts of its host."""
    start = Multi.start

    async def start_and_wait_long(multi, curl):
        await start(multi, curl)
        return 60.0

    monkeypatch.setattr(Multi, "start", start_and_wait_long)
    async with RawServer({"/": page(b"a")}) as server:
        answer = await fetcher.fetch(Request(server.url()))
    assert answer.latency > 0.0


def test_events_of_curl_and_of_the_loop_are_the_same_bits():
    """EpollWatcher relies on this for sockets with an error."""
    assert (pycurl.POLL_IN, pycurl.POLL_OUT) == (pycurl.CSELECT_IN, pycurl.CSELECT_OUT)
