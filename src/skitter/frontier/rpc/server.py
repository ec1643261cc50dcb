"""Serves the owner's frontier to the workers of this machine, and to the command line, on a Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

import msgspec

from skitter._utils.concurrency import stop_listening
from skitter.errors import FrontierError, SkitterError
from skitter.frontier.contract import Frontier
from skitter.frontier.records import ComparedPage, JobInfo, LeaseResult, Outcome
from skitter.frontier.rpc.protocol import (
    CONNECT,
    CONNECT_OPERATION,
    CallRequest,
    CallResult,
    Contract,
    MessageSplitter,
    all_operations,
    encode,
    frame,
)

log = logging.getLogger(__name__)

_MAX_KNOWN_URLS = 1_000
"""Number of known URLs that are kept for a worker until its next call for leases. Beyond this number, the worker asks the
frontier which URLs are known."""
_MAX_COMPARED_PAGES = 100
"""The same limit for the number of pages that other workers have compared."""
_read_call = msgspec.msgpack.Decoder(CallRequest).decode


def _bind(path: Path) -> socket.socket:
    """Return a socket to which only this user can connect.

    No process can connect before the socket listens. A umask would apply to the whole process, and so to files that
    other threads create.
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
    """Serves a frontier. A worker whose connection closes is dead, so its leases are reclaimed.

    ``info``: the result of the frontier's ``open``. ``contract``: the protocol whose methods can be called.
    """

    def __init__(self, frontier: Frontier, info: JobInfo, path: Path, contract: Contract = Frontier) -> None:
        self.frontier = frontier
        self.info = info
        self.path = path
        self._contract = contract
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.revision = 0
        """That of the last reply with leases."""

    # Created at the first call, because a job with one worker often makes no call.

    @cached_property
    def readers(self) -> dict[str, Callable[[msgspec.Raw], msgspec.Struct]]:
        """Functions that decode the arguments of a call, by operation."""
        readers = {
            name: operation.read_arguments for name, operation in all_operations(self._contract).items()
        }
        return {**readers, CONNECT: CONNECT_OPERATION.read_arguments}

    @cached_property
    def methods(self) -> dict[str, Callable[[object], Callable[..., Awaitable[object]]]]:
        """Functions that return the method of an operation."""
        return {name: attrgetter(name) for name in all_operations(self._contract)}

    async def start(self) -> None:
        """Listen. Raises :class:`~skitter.errors.FrontierError` if the socket cannot be created."""
        try:
            bound = await asyncio.to_thread(_bind, self.path)
            loop = asyncio.get_running_loop()
            # Started separately: if create_unix_server is cancelled while it starts to serve, its socket stays open.
            self._server = await loop.create_unix_server(self._connect, sock=bound, start_serving=False)
            await self._server.start_serving()
        except OSError as error:
            raise FrontierError(
                f"the frontier's socket {self.path} cannot be opened: {error}",
                remedy="use a job folder with a shorter path on a local file system",
            ) from error

    def _connect(self) -> _Connection:
        connection = _Connection(self)
        self._connections.add(connection)
        return connection

    def disconnect(self, connection: _Connection) -> None:
        """Remove a closed connection and reclaim the leases of its worker."""
        self._connections.discard(connection)
        if connection.worker is not None:
            self.run(self._abandon(connection.worker))

    async def _abandon(self, worker: str) -> None:
        with contextlib.suppress(SkitterError):  # a broken frontier has reported its error to its callers
            await self.frontier.abandon(worker)

    def share_links(self, sender: _Connection, outcomes: Sequence[Outcome], accepted: Sequence[bool]) -> None:
        """Pass the URLs of committed links on to the other workers, which get them with their next leases."""
        others = [
            connection
            for connection in self._connections
            if connection.takes_urls and connection is not sender
        ]
        if not others:
            return
        for outcome, is_accepted in zip(outcomes, accepted, strict=True):
            if is_accepted:
                for batch in outcome.batches:
                    for connection in others:
                        connection.known_urls += batch.urls

    def share_comparisons(self, sender: _Connection, outcomes: Sequence[Outcome]) -> None:
        """Pass pages that the worker of an outcome has compared on to the other workers."""
        for outcome in outcomes:
            for page in outcome.compared_pages:
                for connection in self._connections:
                    if connection.takes_comparisons and connection is not sender:
                        connection.compared_pages.append(page)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine to its end, even if the connection of its caller closes."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def close(self) -> None:
        """Stop listening, close all connections and wait for calls in progress."""
        if self._server is not None:
            await stop_listening(self._server)
        for connection in list(self._connections):
            connection.abort()
        await asyncio.to_thread(self.path.unlink, missing_ok=True)
        # Closing a connection adds one that abandons its worker. Not gather: since Python 3.12, it returns without a turn of the
        # event loop if all tasks have ended, and only such a turn removes them.
        while self.tasks:
            await asyncio.wait(self.tasks)


class _Connection(asyncio.Protocol):
    """One connection."""

    def __init__(self, server: FrontierServer) -> None:
        self._server = server
        self._reader = MessageSplitter()
        self._transport: asyncio.Transport | None = None
        self.worker: str | None = None
        """Name of the connected worker; ``None`` for the command line."""
        self._own_methods: dict[str, Callable[..., Awaitable[object]]] = {
            CONNECT: self._connect,
            "lease": self._lease,
            "commit": self._commit,
        }
        self.known_urls: list[str] = []
        """URLs that other workers have added since the last reply to this one."""
        self.compared_pages: list[ComparedPage] = []
        """Pages that other workers have compared since then."""

    @property
    def takes_urls(self) -> bool:
        """Whether the connection is that of a worker, for which not too many URLs wait."""
        return self.worker is not None and len(self.known_urls) < _MAX_KNOWN_URLS

    @property
    def takes_comparisons(self) -> bool:
        """Whether the connection is that of a worker, for which not too many compared pages wait."""
        return self.worker is not None and len(self.compared_pages) < _MAX_COMPARED_PAGES

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport is not a subclass

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - the reason does not matter
        self._transport = None
        self._server.disconnect(self)

    def data_received(self, data: bytes) -> None:
        for message in self._reader.feed(data):
            self._server.run(self._reply(_read_call(message)))

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    async def _reply(self, call: CallRequest) -> None:
        try:
            arguments = msgspec.structs.asdict(self._server.readers[call.operation](call.arguments))
            method = self._own_methods.get(call.operation)
            if method is None:
                method = self._server.methods[call.operation](self._server.frontier)
            result = await method(**arguments)
            reply = CallResult(call.number, "", msgspec.Raw(encode(result)))
        except SkitterError as error:
            details = msgspec.Raw(encode([str(error), error.remedy, error.field]))
            reply = CallResult(call.number, type(error).__name__, details)
        except Exception as error:  # the caller must not wait without limit
            log.exception("the call %s of a worker failed", call.operation)
            details = msgspec.Raw(encode([ascii(error), "report this defect of skitter", ""]))
            reply = CallResult(call.number, type(error).__name__, details)
        if self._transport is not None:
            self._transport.write(frame(reply))

    async def _connect(self, worker: str | None) -> JobInfo:
        self.worker = worker
        return self._server.info

    async def _lease(self, worker: str, **arguments: Any) -> LeaseResult:
        result = await self._server.frontier.lease(worker, **arguments)
        self._server.revision = result.revision
        if self._transport is None:  # the worker died during the call
            await self._server.frontier.abandon(worker)
        known_urls, self.known_urls = self.known_urls, []
        compared_pages, self.compared_pages = self.compared_pages, []
        if not known_urls and not compared_pages:
            return result
        return msgspec.structs.replace(result, known_urls=known_urls, compared_pages=compared_pages)

    async def _commit(self, outcomes: Sequence[Outcome]) -> list[bool]:
        revision = self._server.revision
        accepted = await self._server.frontier.commit(outcomes)
        if self._server.revision == revision:  # otherwise, links that it refused may be accepted by now
            self._server.share_links(self, outcomes, accepted)
        self._server.share_comparisons(self, outcomes)
        return accepted
