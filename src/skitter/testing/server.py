"""A web of loopback hosts for tests, demos and benchmarks, served from a thread."""

from __future__ import annotations

import asyncio
import socket
import threading
from types import TracebackType
from typing import Self

from skitter.errors import SkitterError
from skitter.testing.answer import Site
from skitter.testing.log import RequestLog
from skitter.testing.protocol import SiteProtocol


class Origins:
    """``host:port`` of all places, hosts changing fastest; none before the site is served."""

    origins: tuple[str, ...] = ()

    @property
    def port(self) -> int:
        """The first port."""
        return int(self.origins[0].rpartition(":")[2])

    @property
    def url(self) -> str:
        """The front page of the first origin."""
        return self.url_of()

    def url_of(self, path: str = "/", place: int = 0) -> str:
        """Return the absolute URL of a path at one of the origins."""
        return f"http://{self.origins[place]}{path}"


_ATTEMPTS = 20
_BACKLOG = 512
_TURNS_TO_CONNECT = 3
"""Turns of the event loop until what has been accepted is a connection, which can be ended."""


class PortTaken(SkitterError):
    """A test server cannot listen where it was asked to."""


class SiteServer(Origins):
    """Serve a site on loopback for the length of a ``with`` block.

    ``hosts``
        Listen on 127.0.0.1 ... 127.0.0.``hosts``, all on the same port. Linux has them all; other
        systems have only 127.0.0.1 unless aliases are set up.
    ``ports``
        Listen on so many ports of each host.
    ``port``
        The first port; 0, the default, takes free ones.
    ``delay``
        Seconds added before each answer.
    ``log``
        Where requests are noted; default a new :class:`~skitter.testing.log.RequestLog`.

    ``origins`` holds ``host:port`` of all places, hosts changing fastest. Raises :class:`PortTaken`.
    """

    def __init__(
        self,
        site: Site,
        *,
        hosts: int = 1,
        ports: int = 1,
        port: int = 0,
        delay: float = 0.0,
        log: RequestLog | None = None,
    ) -> None:
        self.site = site
        self.log = RequestLog() if log is None else log
        self._addresses = [f"127.0.0.{number}" for number in range(1, hosts + 1)]
        self._ports = ports
        self._port = port
        self._delay = delay
        self._connections: set[asyncio.Transport] = set()

    def __enter__(self) -> Self:
        sockets = self._bind_all()
        self.origins = tuple("{}:{}".format(*sock.getsockname()) for sock in sockets)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="site-server", daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(sockets), self._loop).result()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _bind_all(self) -> list[socket.socket]:
        sockets: list[socket.socket] = []
        for number in range(self._ports):
            sockets += _bind(self._addresses, self._port + number if self._port else 0)
        return sockets

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _listen(self, sockets: list[socket.socket]) -> None:
        self._servers = [
            await self._loop.create_server(self._connection, sock=sock, backlog=_BACKLOG) for sock in sockets
        ]

    def _connection(self) -> SiteProtocol:
        return SiteProtocol(self.site, self.log, self.origins, self._delay, self._connections)

    async def _close(self) -> None:
        for sock in [sock for server in self._servers for sock in server.sockets]:
            # A closed server would leave open what it has just accepted.
            self._loop.remove_reader(sock.fileno())
        for _ in range(_TURNS_TO_CONNECT):
            await asyncio.sleep(0)
        for server in self._servers:
            server.close()
        for transport in list(self._connections):
            transport.abort()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _bind(addresses: list[str], port: int) -> list[socket.socket]:
    """Bind one port on several addresses; a free one is searched for if ``port`` is 0."""
    for _attempt in range(1 if port else _ATTEMPTS):
        sockets: list[socket.socket] = []
        try:
            for address in addresses:
                sockets.append(_bind_one(address, port if not sockets else sockets[0].getsockname()[1]))
        except OSError as error:
            for sock in sockets:
                sock.close()
            reason = error
        else:
            return sockets
    where = " ... ".join(dict.fromkeys((addresses[0], addresses[-1])))
    raise PortTaken(
        f"cannot listen on {where}{f', port {port}' if port else ''}: {reason.strerror}",
        remedy="choose another port, or fewer hosts where only 127.0.0.1 exists",
    ) from reason


def _bind_one(address: str, port: int) -> socket.socket:
    sock = socket.socket()
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
    except OSError:
        sock.close()
        raise
    return sock
