"""GuardProxy: the proxy on loopback through which a context of the browser sends all traffic.

It looks up names, asks the address guard about each address, connects to exactly that address, and counts bytes.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import socket
import struct
import time
from collections.abc import Callable
from math import inf
from urllib.parse import urlsplit

from skitter._utils.concurrency import cancel_and_wait, stop_listening
from skitter.errors import FetchError
from skitter.fetch.address_guard import AddressGuard, forbidden
from skitter.fetch.contract import ConnectError, UnresolvedHost
from skitter.fetch.resolver import Resolver

_MAX_HEAD = 256 * 1024
_BLOCK = 64 * 1024
_PREFETCH = re.compile(rb"\r\nSec-Purpose:[^\r]*\bprefetch\b", re.IGNORECASE)
"""Matches a request for a document that no page has requested. The headless shell sends some for speculation rules."""
_CONTENT_LENGTH = re.compile(rb"\r\nContent-Length[ \t]*:([^\r\n]*)", re.IGNORECASE)
_TRANSFER_ENCODING = re.compile(rb"\r\nTransfer-Encoding[ \t]*:", re.IGNORECASE)
_HOP_HEADERS = (b"proxy-connection:", b"proxy-authorization:")


class GuardProxy:
    """One listening port. ``guard`` decides about addresses.

    ``connect_timeout``: time limit for name resolution and connecting together, in seconds.
    ``resolver``: looks up names. ``None``: the system looks them up.
    """

    def __init__(self, guard: AddressGuard, connect_timeout: float, resolver: Resolver | None = None) -> None:
        self._guard = guard
        self._timeout = connect_timeout
        self._resolver = resolver
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self.received = 0
        """Bytes that servers have sent."""
        self.on_receive: Callable[[], None] | None = None
        """Called after each received block."""
        self.token = secrets.token_hex(8)
        """Value of the header ``X-Skitter-Proxy`` in a response of the proxy itself."""
        self._failures: dict[str, FetchError] = {}
        self._addresses: dict[str, str] = {}

    async def open(self) -> str:
        """Start listening. Return the URL of the proxy."""
        # Serving is started separately: if start_server is cancelled while it starts to serve, its socket stays open.
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", 0, limit=_MAX_HEAD, start_serving=False
        )
        await self._server.start_serving()
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        """Stop listening and end all connections."""
        if self._server is not None:
            await stop_listening(self._server)
        await cancel_and_wait(self._clients)

    def failure_of(self, url: str) -> FetchError | None:
        """Return why the last connection to the host of a URL failed, if it did."""
        return self._failures.get(_address_of(url))

    def ip_of(self, url: str) -> str:
        """Return the address of the last connection to the host of a URL."""
        return self._addresses.get(_address_of(url), "")

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass  # the browser has disconnected, or sends no HTTP
        except asyncio.CancelledError:
            pass  # closed
        finally:
            self._clients.discard(task)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of the browser. Its requests may be for different servers, one after the other."""
        upstream: asyncio.StreamWriter | None = None
        bound, relaying = "", None
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")  # raises an error at the end of the connection
                if _PREFETCH.search(head):
                    writer.write(self._refusal())
                    return
                length = _body_length(head)
                if length is None:
                    writer.write(self._refusal("400 Bad Request"))
                    await writer.drain()
                    return
                method, target, _ = head[: head.index(b"\r\n")].split(b" ", 2)
                text = target.decode("latin-1")
                address = text if method == b"CONNECT" else _address_of(text)
                if address != bound or upstream is None:
                    # The browser does not pipeline, so the previous response is complete.
                    await _end(upstream, relaying)
                    try:
                        source, upstream = await self._connect(address)
                    except FetchError as error:
                        self._failures[address] = error
                        writer.write(self._refusal())
                        await writer.drain()
                        return
                    bound = address
                    relaying = asyncio.create_task(self._relay(source, writer))
                if method == b"CONNECT":
                    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    await _copy(reader, upstream)
                    return
                upstream.write(_origin_form(head))
                await _copy(reader, upstream, length)
        finally:
            await _end(upstream, relaying)

    def _refusal(self, status: str = "502 Bad Gateway") -> bytes:
        return (
            f"HTTP/1.1 {status}\r\nX-Skitter-Proxy: {self.token}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        ).encode("ascii")

    async def _relay(self, source: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while block := await source.read(_BLOCK):
                self.received += len(block)
                if self.on_receive is not None:
                    self.on_receive()
                writer.write(block)
                await writer.drain()
            writer.close()
        except OSError:
            _reset(writer)  # a normal end would make a body without a length look complete

    async def _connect(self, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = address.rpartition(":")
        started = time.monotonic()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeout):
                ips = [] if self._resolver is None else await self._resolver.addresses_of(host)
                if not ips:
                    answers = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
                    ips = list(dict.fromkeys(str(answer[4][0]) for answer in answers))
                allowed = [ip for ip in ips if self._guard.allows(ip)]
                if not allowed:
                    await self._guard.learn()
                    allowed = [ip for ip in ips if self._guard.allows(ip)]
                if not allowed:
                    raise forbidden(ips[0])
                for number, ip in enumerate(allowed):
                    try:
                        streams = await asyncio.open_connection(ip, int(port), limit=_BLOCK)
                    except OSError:
                        if number == len(allowed) - 1:
                            raise
                        continue
                    self._addresses[address] = ip
                    self._failures.pop(address, None)
                    return streams
        except (socket.gaierror, UnicodeError) as error:
            raise UnresolvedHost(f"the name {host} does not resolve: {error}") from error
        except TimeoutError:
            raise ConnectError(
                f"no connection to {address} within {time.monotonic() - started:.0f} s"
            ) from None
        except OSError as error:
            raise ConnectError(f"no connection to {address}: {error}") from error
        raise ConnectError(f"{host} has no address")


def _body_length(head: bytes) -> int | None:
    """Return the length of the body of a request; ``None`` if its end is ambiguous (RFC 9112, 6.3).

    Otherwise the proxy and the server could disagree where the next request begins. Repeated lengths and bodies of unknown
    length are refused as well: the browser never sends them.
    """
    lengths = _CONTENT_LENGTH.findall(head)
    if len(lengths) > 1 or _TRANSFER_ENCODING.search(head) is not None:
        return None
    length = lengths[0].strip() if lengths else b"0"
    return int(length) if length.isdigit() else None


def _address_of(url: str) -> str:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme in {"https", "wss"} else 80)
    host = parts.hostname or ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _origin_form(head: bytes) -> bytes:
    """Return a request in origin form (RFC 9112, 3.2.1): without the host in the target."""
    line, _, rest = head.partition(b"\r\n")
    method, target, version = line.split(b" ", 2)
    path = b"/" + target.partition(b"://")[2].partition(b"/")[2]
    kept = [header for header in rest.split(b"\r\n") if not header.lower().startswith(_HOP_HEADERS)]
    return b"\r\n".join([b" ".join((method, path, version)), *kept])


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, length: float = inf) -> None:
    while length > 0 and (block := await reader.read(int(min(length, _BLOCK)))):
        length -= len(block)
        writer.write(block)
        await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection with RST."""
    sock: socket.socket = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _end(upstream: asyncio.StreamWriter | None, relaying: asyncio.Task[None] | None) -> None:
    if upstream is not None:
        upstream.close()
    if relaying is not None:
        await cancel_and_wait([relaying])
