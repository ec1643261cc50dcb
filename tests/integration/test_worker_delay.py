"""A promised delay is one between requests: the time to open a connection does not shorten it."""

import asyncio
import contextlib
from itertools import pairwise

import pytest
import trustme

from crawl_harness import CrawlHarness
from servers.fetch_raw import RawServer, page
from servers.tls import server_side
from skitter import Request, Spider
from skitter._utils.concurrency import stop_listening

DELAY = 0.3
HANDSHAKE = 0.25
"""Much longer than the grace of such a delay."""


class FewPages(Spider):
    def start(self):
        for number in range(6):
            yield Request(f"{self.url}/p{number}")

    def parse(self, response):
        yield {"url": response.url}


class FarHost:
    """A TLS server that responds late, and that accepts every other connection late."""

    def __init__(self):
        self.asked_at = []
        pages = {f"/p{number}": self._answer for number in range(6)}
        pages["/robots.txt"] = self._answer
        self._web = RawServer(pages, tls=server_side(trustme.CA()))
        self._connections = 0
        self._tasks = set()

    async def __aenter__(self):
        await self._web.__aenter__()
        self._relay = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        self.url = f"https://127.0.0.1:{self._relay.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        await stop_listening(self._relay)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._web.__aexit__()

    async def _answer(self, wire):
        self.asked_at.append(asyncio.get_running_loop().time())
        await asyncio.sleep(2 * DELAY)
        await wire.send(page(b"User-agent: *\nDisallow:\n", "Content-Type: text/plain"))

    async def _pass_on(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        self._connections += 1
        with contextlib.suppress(asyncio.CancelledError):
            async with _closing(writer):
                if self._connections % 2:
                    await asyncio.sleep(HANDSHAKE)
                web_reader, web_writer = await asyncio.open_connection("127.0.0.1", self._web.port)
                async with _closing(web_writer):
                    await asyncio.gather(_copy(reader, web_writer), _copy(web_reader, writer))


@contextlib.asynccontextmanager
async def _closing(writer):
    try:
        yield
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def _copy(reader, writer):
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
    writer.close()


@pytest.mark.parametrize("settings", [{}, {"user_agents": "random"}, {"cache_dir": "cache"}], ids=str)
@pytest.mark.parametrize("robots", [False, True])
async def test_requests_keep_their_distance_however_long_connections_take(tmp_path, robots, settings):
    if "cache_dir" in settings:
        settings = {"cache_dir": str(tmp_path / "cache")}
    async with FarHost() as host:
        ran = await CrawlHarness(
            FewPages(url=host.url), tmp_path, delay=DELAY, concurrency_per_slot=3, reuse_connections=False, verify_tls=False,
            robots=robots, **settings,
        ).run(workers=2)  # fmt: skip
    assert len(ran.items) == 6
    assert len(host.asked_at) >= 6
    distances = [later - earlier for earlier, later in pairwise(host.asked_at)]
    assert min(distances) >= DELAY, distances
    assert ran.counters["free/late"] >= 1, "its first turn did not allow for the connection"
