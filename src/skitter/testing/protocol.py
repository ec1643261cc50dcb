"""HTTP/1.1 for a test server: keep-alive, pipelining, and deliberate violations."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from http import HTTPStatus

from skitter.testing.answer import Answer, Site, Visit, WireAnswer
from skitter.testing.log import Hit, RequestLog

_REASONS = {status.value: status.phrase for status in HTTPStatus}
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_TCP_INFO = socket.TCP_INFO if sys.platform == "linux" else None
_LAST_RECEIVED = slice(52, 56)
"""Position of ``tcpi_last_data_recv``, in milliseconds, in Linux's ``struct tcp_info``."""
_TICK = 0.01
"""The longest timer tick of a Linux kernel, in seconds."""


class SiteProtocol(asyncio.Protocol):
    """One connection. Responds to its requests one at a time."""

    def __init__(
        self,
        site: Site,
        log: RequestLog,
        origins: tuple[str, ...],
        delay: float,
        connections: set[asyncio.Transport],
    ) -> None:
        self._site = site
        self._log = log
        self._origins = origins
        self._delay = delay
        self._connections = connections
        self._received = bytearray()
        self._hit: Hit | None = None
        self._sending: asyncio.Task[None] | asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connections.add(transport)
        self._socket: socket.socket = transport.get_extra_info("socket")
        self._address, self._port = transport.get_extra_info("sockname")[:2]

    def connection_lost(self, _exc: Exception | None) -> None:
        """Stop responding to a client that has disconnected."""
        if self._sending is not None:
            self._sending.cancel()
        self._writable.set()
        self._connections.discard(self._transport)
        self._end(0)

    def pause_writing(self) -> None:
        """Wait for a client that reads slower than the server writes."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Continue: the client has caught up."""
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Receive more bytes of a request."""
        self._received += data
        if self._hit is None:
            self._next_request()

    def _next_request(self) -> None:
        visit = self._take_visit()
        if visit is None:
            return
        self._hit = self._log.begin(visit, self._seconds_since_arrival())
        answer = self._site(visit)
        if isinstance(answer, WireAnswer):
            self._sending = asyncio.create_task(self._send_wire(answer))
            return
        delay = answer.delay + self._delay
        if delay:
            loop = asyncio.get_running_loop()
            self._sending = loop.call_later(delay, self._send, answer, visit)
        else:
            self._send(answer, visit)

    def _seconds_since_arrival(self) -> float:
        """Return the minimum time since the last data arrived, in seconds; 0 if the kernel does not report it."""
        if _TCP_INFO is None:
            return 0.0
        info = self._socket.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _LAST_RECEIVED.start + 4)
        # The kernel counts in ticks. Without subtracting one, a request might seem to have arrived before it was sent.
        return max(0.0, int.from_bytes(info[_LAST_RECEIVED], sys.byteorder) / 1000 - _TICK)

    def _take_visit(self) -> Visit | None:
        head_end = self._received.find(b"\r\n\r\n")
        if head_end < 0:
            return None
        first, *lines = self._received[:head_end].decode("latin-1").split("\r\n")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        end = head_end + 4 + int(headers.get("content-length", 0))
        if len(self._received) < end:
            return None
        body = bytes(self._received[head_end + 4 : end])
        del self._received[:end]
        method, target, _version = first.split(" ", 2)
        host = headers.get("host", self._address).partition(":")[0]
        return Visit(method, host, self._port, target, headers, body, self._origins)

    def _send(self, answer: Answer, visit: Visit) -> None:
        head = [f"HTTP/1.1 {answer.status} {_REASONS.get(answer.status, 'Unknown')}"]
        if answer.content_type is not None:
            head.append(f"Content-Type: {answer.content_type}")
        head.extend(f"{name}: {value}" for name, value in answer.headers.items())
        if answer.status not in (204, 304):
            head.append(f"Content-Length: {len(answer.body)}")
        closing = visit.headers.get("connection", "").lower() == "close"
        if closing:
            head.append("Connection: close")
        head_bytes = "\r\n".join(head).encode("latin-1") + b"\r\n\r\n"
        # Recorded before it is sent: a client that has the response finds it in the log.
        self._end(answer.status)
        self._transport.write(head_bytes if visit.method == "HEAD" else head_bytes + answer.body)
        self._finish(answer.status, closing=closing)

    async def _send_wire(self, answer: WireAnswer) -> None:
        for step in answer.steps:
            if isinstance(step, float):
                await asyncio.sleep(step)
            else:
                self._transport.write(step)
                await self._writable.wait()
            if self._transport.is_closing():
                return
        if answer.end == "stall":
            return
        if answer.end == "reset":
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self._end(answer.status)
            self._transport.abort()
        else:
            self._finish(answer.status, closing=answer.end == "close")

    def _finish(self, status: int, *, closing: bool) -> None:
        self._sending = None
        self._end(status)
        if closing:
            self._transport.close()
        elif self._received:
            # Scheduled on the loop, because a pipelined burst must not become recursion.
            asyncio.get_running_loop().call_soon(self._continue)

    def _continue(self) -> None:
        if self._hit is None and not self._transport.is_closing():
            self._next_request()

    def _end(self, status: int) -> None:
        if self._hit is not None:
            self._log.end(self._hit, status)
            self._hit = None
