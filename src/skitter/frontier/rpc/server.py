"""Server: lets the workers of this machine, and the command line, reach the owner's frontier."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, cast

import msgspec

from skitter.errors import FrontierError, SkitterError
from skitter.frontier.contract import Frontier
from skitter.frontier.records import JobInfo
from skitter.frontier.rpc.protocol import METHODS, Answer, Call, Unframer, encode, frame

log = logging.getLogger(__name__)

_read_call = msgspec.msgpack.Decoder(Call).decode
_read_arguments = {name: msgspec.msgpack.Decoder(types[0]).decode for name, types in METHODS.items()}


def _bind(path: Path) -> socket.socket:
    """Return a socket that only this user may connect to.

    Nobody can before it listens. A umask would hold for the whole process, and so for files that others make.
    """
    path.unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        bound.bind(str(path))
        path.chmod(0o600)
    except OSError:
        bound.close()
        raise
    return bound


class FrontierServer:
    """Serves a frontier on a Unix socket. A worker whose connection closes is dead: its leases go back."""

    def __init__(self, frontier: Frontier, info: JobInfo, path: Path) -> None:
        self.frontier = frontier
        self.info = info
        """What the frontier answered when the owner opened it."""
        self.path = path
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self.tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen. Only this user may connect. Raises :class:`~skitter.errors.FrontierError` where no socket can be."""
        try:
            bound = await asyncio.to_thread(_bind, self.path)
            self._server = await asyncio.get_running_loop().create_unix_server(self._link, sock=bound)
        except OSError as error:
            raise FrontierError(
                f"the frontier's socket {self.path} cannot be opened: {error}",
                remedy="use a job folder with a shorter path on a local file system",
            ) from error

    def _link(self) -> _Link:
        link = _Link(self)
        self._links.add(link)
        return link

    def unlink(self, link: _Link) -> None:
        """Forget a closed connection and take back what its workers held."""
        self._links.discard(link)
        for worker in link.workers:
            self.run(self._abandon(worker))

    async def _abandon(self, worker: str) -> None:
        with contextlib.suppress(SkitterError):  # a broken frontier has told its caller already
            await self.frontier.abandon(worker)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something to its end, whatever becomes of the connection that asked for it."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def close(self) -> None:
        """Stop listening, cut all connections, and wait for calls in hand."""
        if self._server is not None:
            self._server.close()
        for link in list(self._links):
            link.cut()
        await asyncio.to_thread(self.path.unlink, missing_ok=True)
        while self.tasks:  # also of the connections just cut, whose workers are abandoned
            await asyncio.gather(*self.tasks, return_exceptions=True)


class _Link(asyncio.Protocol):
    """One connection."""

    def __init__(self, server: FrontierServer) -> None:
        self._server = server
        self._unframer = Unframer()
        self._transport: asyncio.Transport | None = None
        self.workers: set[str] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - any end is the same end
        self._transport = None
        self._server.unlink(self)

    def data_received(self, data: bytes) -> None:
        for message in self._unframer.feed(data):
            self._server.run(self._answer(_read_call(message)))

    def cut(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.abort()

    async def _answer(self, call: Call) -> None:
        try:
            result = await self._perform(call)
            answer = Answer(call.number, "", msgspec.Raw(encode(result)))
        except SkitterError as error:
            what = msgspec.Raw(encode([str(error), error.remedy]))
            answer = Answer(call.number, type(error).__name__, what)
        except Exception as error:  # the caller must not wait for ever
            log.exception("the call %s of a worker failed", call.method)
            what = msgspec.Raw(encode([ascii(error), "this is a defect of skitter: please report it"]))
            answer = Answer(call.number, type(error).__name__, what)
        if self._transport is not None:
            self._transport.write(frame(answer))

    async def _perform(self, call: Call) -> object:
        arguments = _read_arguments[call.method](call.arguments)
        if call.method == "introduce":
            self.workers.add(arguments[0])
            return None
        if call.method == "open":  # the owner has opened it; this asks what a worker must know
            return self._server.info
        if call.method == "lease" and arguments[-1] is None:  # another's frontier may know nothing of queues
            arguments = arguments[:-1]
        result = await getattr(self._server.frontier, call.method)(*arguments)
        if call.method == "lease" and self._transport is None:  # its worker died while it was granted
            await self._server.frontier.abandon(arguments[0])
        return result
