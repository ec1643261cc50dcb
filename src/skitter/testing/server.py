"""Serves test sites on loopback hosts from a thread, for tests, demos and benchmarks."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from typing import Self

from skitter._utils.concurrency import LoopThread, stop_listening
from skitter.errors import SkitterError, UsageError
from skitter.testing.answer import Site, SiteOfOrigins
from skitter.testing.log import RequestLog
from skitter.testing.protocol import SiteProtocol


class ServedOrigins:
    """The origins of a served site: ``host:port`` of each, with hosts changing fastest; empty before the site is served."""

    origins: tuple[str, ...] = ()

    @property
    def port(self) -> int:
        """The first port."""
        return int(self.origins[0].rpartition(":")[2])

    @property
    def url(self) -> str:
        """URL of the front page of the first origin."""
        return self.url_of()

    def url_of(self, path: str = "/", origin_index: int = 0) -> str:
        """Return the absolute URL of a path at one of the origins."""
        return f"http://{self.origins[origin_index]}{path}"


_BIND_ATTEMPTS = 20
_BACKLOG = 512


class PortTaken(SkitterError):
    """A test server cannot listen on the requested address."""


class SiteServer(ServedOrigins):
    """Serves a site on loopback inside a ``with`` block.

    ``hosts``
        Number of hosts: it listens on 127.0.0.1 ... 127.0.0.254, 127.0.1.1 ..., all on the same port. Linux has all
        these addresses; other systems have only 127.0.0.1 unless aliases are configured.
    ``ports``
        Number of ports on each host.
    ``port``
        The first port; 0, the default, uses free ports.
    ``delay``
        Additional delay before each response, in seconds.
    ``log``
        Where requests are recorded; by default a new :class:`~skitter.testing.log.RequestLog`.

    ``origins`` contains ``host:port`` of all origins, with hosts changing fastest. Raises :class:`PortTaken`, and
    :class:`~skitter.errors.UsageError` if the site needs more origins.
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
        if isinstance(site, SiteOfOrigins) and hosts * ports < site.origins_needed:
            raise UsageError(
                f"{type(site).__name__} needs {site.origins_needed} origins, but has {hosts * ports}",
                remedy=f"serve it on {site.origins_needed} ports or hosts, such as --ports {site.origins_needed}",
                field="ports",
            )
        self.site = site
        self.log = RequestLog() if log is None else log
        self._addresses = [f"127.0.{number // 254}.{number % 254 + 1}" for number in range(hosts)]
        self._ports = ports
        self._port = port
        self._delay = delay
        self._connections: set[asyncio.Transport] = set()

    def __enter__(self) -> Self:
        sockets: list[socket.socket] = []
        try:
            for number in range(self._ports):
                sockets += _bind(self._addresses, self._port + number if self._port else 0)
        except PortTaken:
            for sock in sockets:
                sock.close()
            raise
        self.origins = tuple("{}:{}".format(*sock.getsockname()) for sock in sockets)
        self._loop = LoopThread("site-server")
        self._loop.run(self._listen(sockets))
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run(self._close())
        self._loop.stop()

    async def _listen(self, sockets: list[socket.socket]) -> None:
        loop = asyncio.get_running_loop()
        connect = partial(SiteProtocol, self.site, self.log, self.origins, self._delay, self._connections)
        self._servers = [await loop.create_server(connect, sock=sock, backlog=_BACKLOG) for sock in sockets]

    async def _close(self) -> None:
        await stop_listening(*self._servers)
        for transport in list(self._connections):
            transport.abort()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _bind(addresses: list[str], port: int) -> list[socket.socket]:
    """Bind one port on several addresses; with ``port=0``, search for a free one."""
    for _attempt in range(1 if port else _BIND_ATTEMPTS):
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
        remedy="choose another port, or use fewer hosts on systems with only 127.0.0.1",
        field="port",
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
