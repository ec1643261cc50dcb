"""A frontier that another process owns, reached over its local socket."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, cast

import msgspec

from skitter.errors import FrontierError
from skitter.frontier.contract import Frontier
from skitter.frontier.records import JobInfo
from skitter.frontier.rpc.protocol import (
    CONNECT,
    CONNECT_OPERATION,
    CallRequest,
    CallResult,
    Contract,
    MessageSplitter,
    Operation,
    encode,
    error_from,
    frame,
    operations_of,
    parts_of,
)

_read_reply = msgspec.msgpack.Decoder(CallResult).decode
_read_error = msgspec.msgpack.Decoder(tuple[str, str, str]).decode


class OwnerGone(FrontierError):
    """The process that owns the frontier has ended: the worker must end, too."""


def remote_frontier(path: Path, worker: str | None = None, contract: Contract = Frontier) -> Frontier:
    """Return the frontier behind a socket, a :class:`RemoteFrontier`. Its ``open`` connects.

    ``worker``: this process is the worker of that name, whose leases are reclaimed when the connection closes. ``contract``:
    the protocol whose methods are called.
    """
    # The methods of the contract are generated from its annotations, so that the type checker cannot see them on the
    # class. It checks every call of them against the contract.
    return cast(Frontier, _frontier_class(contract)(path, worker))


class RemoteFrontier:
    """A frontier that another process owns. :func:`remote_frontier` creates it and adds the methods of the contract."""

    shared: ClassVar[bool] = False
    politeness: ClassVar[None] = None
    seed_keys: ClassVar[None] = None
    topic_seeds: ClassVar[None] = None
    liveness: ClassVar[None] = None
    partitions: ClassVar[None] = None
    catalog: ClassVar[None] = None
    parts: ClassVar[Mapping[str, type[_RemotePart]]]

    def __init__(self, path: Path, worker: str | None) -> None:
        self._path = path
        self._worker = worker
        self._connection: _Connection | None = None
        vars(self).update({name: part(self._call) for name, part in self.parts.items()})

    async def open(self) -> JobInfo:
        """Connect. Raises :class:`OwnerGone` if no owner listens."""
        loop = asyncio.get_running_loop()
        try:
            _, self._connection = await loop.create_unix_connection(_Connection, str(self._path))
        except OSError as error:
            raise OwnerGone(f"no frontier listens on {self._path}: {error.strerror}") from error
        result = await self._call(CONNECT, encode(CONNECT_OPERATION.arguments(self._worker)))
        info: JobInfo = CONNECT_OPERATION.read_result(result)
        return info

    async def _call(self, operation: str, arguments: bytes) -> msgspec.Raw:
        if self._connection is None:
            raise FrontierError("the frontier is not open", remedy="call open() first")
        return await self._connection.call(operation, arguments)

    def limit_outages(self, seconds: float) -> None:
        """Do nothing: calls fail at once if the owner is gone."""

    async def close(self) -> None:
        """Disconnect."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def erase(self) -> None:
        """Raise an error: only the owner can erase the job."""
        raise FrontierError(
            "a worker cannot erase the frontier of its owner", remedy="erase the job in its owner"
        )

    async def wait_closed(self) -> None:
        """Return when the owner has ended."""
        if self._connection is not None:
            await self._connection.ended.wait()


class _RemotePart:
    """An attribute of a remote frontier, such as ``control``. Its methods are added by :func:`_part_class`."""

    def __init__(self, call: Callable[[str, bytes], Awaitable[msgspec.Raw]]) -> None:
        self._call = call


@cache
def _frontier_class(contract: Contract) -> type[RemoteFrontier]:
    methods = {name: _method(name, operation) for name, operation in operations_of(contract).items()}
    parts = {name: _part_class(name, protocol) for name, protocol in parts_of(contract).items()}
    return type(f"Remote{contract.__name__}", (RemoteFrontier,), {**methods, "parts": parts})


def _part_class(part: str, protocol: Contract) -> type[_RemotePart]:
    methods = {
        name: _method(f"{part}.{name}", operation) for name, operation in operations_of(protocol).items()
    }
    return type(f"Remote{protocol.__name__}", (_RemotePart,), methods)


def _method(name: str, operation: Operation) -> Callable[..., Awaitable[Any]]:
    arguments, read_result = operation.arguments, operation.read_result

    async def method(self: Any, *values: Any, **named: Any) -> Any:
        return read_result(await self._call(name, encode(arguments(*values, **named))))

    method.__name__ = method.__qualname__ = name
    return method


class _Connection(asyncio.Protocol):
    """The connection to the owner."""

    def __init__(self) -> None:
        self._reader = MessageSplitter()
        self._transport: asyncio.Transport | None = None
        self._numbers = itertools.count()
        self._replies: dict[int, asyncio.Future[msgspec.Raw]] = {}
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport is not a subclass

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.ended.set()
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(OwnerGone(f"the owner of the frontier has ended: {error or 'closed'}"))
        self._replies.clear()

    async def call(self, operation: str, arguments: bytes) -> msgspec.Raw:
        """Call an operation and return its encoded result.

        Raises the error that the owner raised, and :class:`OwnerGone` if it has ended.
        """
        if self._transport is None:
            raise OwnerGone("the owner of the frontier has ended")
        number = next(self._numbers)
        reply = self._replies[number] = asyncio.get_running_loop().create_future()
        self._transport.write(frame(CallRequest(number, operation, msgspec.Raw(arguments))))
        try:
            result: msgspec.Raw = await reply
            return result
        finally:
            self._replies.pop(number, None)

    def data_received(self, data: bytes) -> None:
        for message in self._reader.feed(data):
            reply = _read_reply(message)
            future = self._replies.get(reply.number)
            if future is None or future.done():
                continue
            if reply.error:
                future.set_exception(error_from(reply.error, *_read_error(reply.result)))
            else:
                future.set_result(reply.result)

    def close(self) -> None:
        """Disconnect."""
        if self._transport is not None:
            self._transport.close()
