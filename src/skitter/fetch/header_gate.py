"""HeaderGate: holds back the body of a response until a hook has accepted its headers.

If the first bytes of the body arrive before the decision, curl pauses the transfer. Further data waits in the socket,
so little more than one packet of a rejected body is received. A body for a sink is passed on as it arrives, and the
transfer is paused while the sink is slower than the network.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pycurl

from skitter._utils.concurrency import cancel_and_wait
from skitter.fetch.contract import Aborted, BodySink, HeaderHook
from skitter.fetch.transfer import Transfer
from skitter.request import Request
from skitter.response import Response

_PAUSE: int = pycurl.WRITEFUNC_PAUSE
_MAX_PENDING = 1 << 20
"""Bytes that may wait for a sink before the transfer is paused."""


class HeaderGate:
    """The gate of one transfer. Create it after the transfer is prepared and before it starts."""

    def __init__(self, transfer: Transfer, request: Request, on_headers: HeaderHook) -> None:
        self._transfer = transfer
        self._request = request
        self._on_headers = on_headers
        self._lines: list[bytes] = []
        self._performing: asyncio.Future[None]
        self._decision: asyncio.Task[None] | None = None
        self._paused = False
        self._open = False
        self._sink: BodySink | None = None
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._writing: asyncio.Task[None] | None = None
        transfer.watch(self._on_line, self._on_block)

    async def pass_through(self, performing: Coroutine[Any, Any, None]) -> None:
        """Run the transfer until it ends or the hook rejects it.

        Raises what the transfer, the hook or the sink raises; :class:`~skitter.fetch.contract.Aborted` for a rejected response.
        """
        transfer = self._performing = asyncio.ensure_future(performing)
        try:
            await asyncio.wait({transfer})
            if (
                self._decision is None
                and self._lines
                and not transfer.cancelled()
                and transfer.exception() is None
            ):
                self._begin_decision()
            if self._decision is not None and (transfer.cancelled() or transfer.exception() is None):
                await self._decision
            if self._writing is not None:  # an error of the write is the reason why the transfer has ended
                await self._writing
            await transfer
        finally:
            await self._end(transfer)

    async def _end(self, *tasks: asyncio.Future[None]) -> None:
        """Cancel the hook and the writes of a failed transfer; cancel all if the caller was cancelled."""
        tasks = (*tasks, *(task for task in (self._decision, self._writing) if task is not None))
        await cancel_and_wait(task for task in tasks if not task.done())

    def _on_line(self, line: bytes) -> None:
        self._transfer.take_line(line)
        if self._decision is not None:  # a trailer
            return
        if line.startswith(b"HTTP/"):
            self._lines.clear()
        self._lines.append(line)
        if line in {b"\r\n", b"\n"} and (status := _status(self._lines[0])) >= 200:
            if status == 401 and self._transfer.is_challenged:
                self._transfer.is_challenged = False  # without a response to it, its body or the end follows
            else:
                self._begin_decision()

    def _begin_decision(self) -> None:
        self._decision = asyncio.ensure_future(self._decide(_status(self._lines[0])))

    def _on_block(self, block: bytes) -> int | None:
        if not self._open:
            if self._decision is None:
                self._begin_decision()
            self._paused = True
            return _PAUSE
        if self._sink is None:
            return self._transfer.take_block(block)
        if self._pending_bytes >= _MAX_PENDING:
            self._paused = True
            return _PAUSE
        self._pending.append(block)
        self._pending_bytes += len(block)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.ensure_future(self._write(self._sink))
        return None

    async def _write(self, sink: BodySink) -> None:
        """Pass everything that has arrived to the sink."""
        try:
            while self._pending:
                data = b"".join(self._pending)
                self._pending, self._pending_bytes = [], 0
                await sink.write(data)
                self._unpause()
        except BaseException:
            self._performing.cancel()
            raise

    def _unpause(self) -> None:
        if self._paused and not self._performing.done():
            self._paused = False
            self._transfer.curl.pause(pycurl.PAUSE_CONT)

    async def _decide(self, status: int) -> None:
        headers = b"".join(self._lines[1:])
        response = Response(self._request.url, status, headers=headers, request=self._request)
        decision: bool | BodySink = False
        try:
            decision = await self._on_headers(response)
        finally:
            if not decision:
                self._performing.cancel()
        if not decision:
            raise Aborted("the header hook rejected the response")
        self._sink = None if decision is True else decision
        self._open = True
        self._unpause()


def _status(line: bytes) -> int:
    """Return the code of a status line as libcurl reads it, its first three digits, or 0 for a line without one."""
    parts = line.split(None, 2)
    code = parts[1][:3] if len(parts) > 1 else b""
    return int(code) if code.isdigit() else 0
