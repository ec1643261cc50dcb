"""A server that sends exactly the bytes that a test gives it, and records the requests."""

import asyncio
import contextlib
import re
import socket
import struct
from dataclasses import dataclass

from skitter._utils.concurrency import stop_listening


@dataclass
class ReceivedRequest:
    """A request as it was sent."""

    head: bytes
    body: bytes
    connection: int

    @property
    def path(self):
        return self.head.split(b" ", 2)[1].decode()

    @property
    def header_names(self):
        return [line.partition(b":")[0].decode() for line in self.head.split(b"\r\n")[1:] if line]

    def header(self, name):
        found = re.search(rb"(?im)^" + name.encode() + rb":[ \t]*(.*?)\r?$", self.head)
        return found[1].decode() if found else None


def page(body=b"", *headers, status="200 OK"):
    """A complete HTTP/1.1 response."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Wire:
    """The operations of a scripted response on its connection."""

    def __init__(self, reader, writer, server):
        self.reader = reader
        self.writer = writer
        self.server = server

    async def send(self, data):
        self.writer.write(data)
        await self.writer.drain()

    async def gone(self):
        """Wait until the client has closed the connection."""
        with contextlib.suppress(ConnectionError):
            await self.reader.read()
        self.server.gone.set()

    def reset(self):
        """Close the connection with RST instead of FIN."""
        linger = struct.pack("ii", 1, 0)
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.writer.close()


class RawServer:
    """``answers`` maps a path to bytes, or to an async function of a :class:`Wire`.

    The connection is closed after bytes that are in ``closing``, and after a function that returns False.
    """

    def __init__(self, answers, *, closing=(), tls=None):
        self.answers = answers
        self.closing = closing
        self.request = []
        self.connections = 0
        self.open_now = 0
        self.open_most = 0
        self.gone = asyncio.Event()
        self._tls = tls
        self._tasks = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        scheme = "https" if self._tls else "http"
        self.origin = f"{scheme}://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_):
        await stop_listening(self._server)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def url(self, path="/"):
        return self.origin + path

    async def _serve(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        self.connections += 1
        self.open_now += 1
        self.open_most = max(self.open_most, self.open_now)
        try:
            await self._talk(reader, writer, self.connections)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client disconnected, or the test is over
        finally:
            self._tasks.discard(asyncio.current_task())
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            self.open_now -= 1

    async def _talk(self, reader, writer, number):
        wire = Wire(reader, writer, self)
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            request = ReceivedRequest(head, b"", number)
            request.body = await reader.readexactly(int(request.header("Content-Length") or 0))
            self.request.append(request)
            answer = self.answers[request.path]
            if callable(answer):
                if await answer(wire) is False:
                    return
            else:
                await wire.send(answer)
                if request.path in self.closing:
                    return
