"""A small proxy: plain HTTP, CONNECT tunnels and SOCKS5. It can also refuse all of them."""

import asyncio
import contextlib
import socket

from skitter._utils.concurrency import stop_listening


class Proxy:
    """Counts the forwarded requests.

    ``refusal`` is an HTTP status line, and ``socks_reply`` a code of RFC 1928. With either, the proxy refuses every request.
    """

    def __init__(self, refusal=None, socks_reply=0):
        self.refusal = refusal
        self.socks_reply = socks_reply
        self._to_refuse = 0
        self.heads = []
        self.socks_targets = []
        self._tasks = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.http = f"http://127.0.0.1:{self.port}"
        self.socks = f"socks5h://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_):
        await stop_listening(self._server)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def refuse_first(self, count):
        """Require a login for the first ``times`` requests."""
        self._to_refuse = count

    async def _serve(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        try:
            first = await reader.readexactly(1)
            await (self._socks(reader, writer) if first == b"\x05" else self._http(first, reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # one side disconnected, or the test is over
        finally:
            writer.close()
            self._tasks.discard(asyncio.current_task())

    async def _http(self, first, reader, writer):
        head = first + await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        method, target, _ = head.split(b" ", 2)
        if self.refusal or self._to_refuse:
            self._to_refuse = max(0, self._to_refuse - 1)
            status = self.refusal or "407 Proxy Authentication Required"
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
            await writer.drain()
        elif method == b"CONNECT":
            host, _, port = target.decode().rpartition(":")
            try:
                await self._join(
                    (host, int(port)), reader, writer, b"HTTP/1.1 200 Connection established\r\n\r\n"
                )
            except ConnectionRefusedError:
                writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
                await writer.drain()
        else:
            origin = b"/".join(target.split(b"/", 3)[:3])
            host, _, port = origin.decode()[7:].partition(":")
            head = head.replace(origin, b"", 1)
            await self._join((host, int(port)), reader, writer, b"", head)

    async def _socks(self, reader, writer):
        await reader.readexactly((await reader.readexactly(1))[0])
        writer.write(b"\x05\x00")
        await reader.readexactly(3)
        kind = (await reader.readexactly(1))[0]
        if kind == 1:
            host = socket.inet_ntoa(await reader.readexactly(4))
        else:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        port = int.from_bytes(await reader.readexactly(2))
        self.socks_targets.append((host, port))
        if self.socks_reply:
            writer.write(bytes([5, self.socks_reply, 0, 1]) + bytes(6))
            await writer.drain()
            return
        await self._join(("127.0.0.1", port), reader, writer, b"\x05\x00\x00\x01" + bytes(6))

    async def _join(self, address, reader, writer, greeting, sent=b""):
        far_reader, far_writer = await asyncio.open_connection(*address)
        try:
            writer.write(greeting)
            far_writer.write(sent)
            await asyncio.gather(_pipe(reader, far_writer), _pipe(far_reader, writer))
        finally:
            far_writer.close()


async def _pipe(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()
