"""The frontier contract as messages over a local socket.

A message is a 4-byte length and a MessagePack array. A call is ``[number, operation, arguments]``. A reply is
``[number, "", result]`` or ``[number, error class, [message, remedy, field]]``. Both ends are processes of one crawl on
one machine, so versions never mix.

The operations are derived from the annotations of the contract: a new method of a protocol needs no change here.
"""

from __future__ import annotations

import inspect
import struct
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Protocol, TypeAlias, get_type_hints

import msgspec

from skitter import errors
from skitter.frontier.records import JobInfo

MAX_MESSAGE_SIZE = 1 << 30
LOCAL_METHODS = {"open", "close", "erase"}
"""Methods of a frontier that concern the connection, or the owner only."""
CONNECT = "connect"
"""The first call on a connection. It is not part of the contract."""
_LENGTH = struct.Struct(">I")

Contract: TypeAlias = Any
"""A Protocol class. Not ``type[Any]``, which mypy does not accept as the argument of a cached function."""

encode = msgspec.msgpack.Encoder().encode


class Operation:
    """One method that can be called over the socket: how its arguments and its result are encoded."""

    def __init__(self, name: str, parameters: list[tuple[Any, ...]], result: Any) -> None:
        self.name = name
        self.arguments = msgspec.defstruct(name.replace(".", "_"), parameters, array_like=True, frozen=True)
        self.read_arguments: Callable[[msgspec.Raw], msgspec.Struct] = msgspec.msgpack.Decoder(
            self.arguments
        ).decode
        self.read_result: Callable[[msgspec.Raw], Any] = msgspec.msgpack.Decoder(result).decode


CONNECT_OPERATION = Operation(CONNECT, [("worker", str | None)], JobInfo)


@cache
def operations_of(contract: Contract) -> dict[str, Operation]:
    """Return the operations of a protocol by their names in it, without those of its attributes."""
    return {
        name: _operation(name, member)
        for name, member in inspect.getmembers_static(contract, inspect.iscoroutinefunction)
        if name not in LOCAL_METHODS
    }


@cache
def parts_of(contract: Contract) -> dict[str, Contract]:
    """Return the attributes of a protocol that are protocols themselves. An optional attribute is not one of them."""
    members = inspect.getmembers_static(contract, lambda member: isinstance(member, property))
    types = {name: get_type_hints(member.fget)["return"] for name, member in members}
    return {name: hint for name, hint in types.items() if isinstance(hint, type) and Protocol in hint.__mro__}


@cache
def all_operations(contract: Contract) -> dict[str, Operation]:
    """Return the operations of a protocol and of its attributes, such as ``lease`` and ``control.drop_slot``."""
    found = dict(operations_of(contract))
    for part, protocol in parts_of(contract).items():
        found |= {f"{part}.{name}": operation for name, operation in operations_of(protocol).items()}
    return found


def _operation(name: str, method: Callable[..., Any]) -> Operation:
    hints = get_type_hints(method)
    parameters = [
        (parameter.name, hints[parameter.name])
        if parameter.default is parameter.empty
        else (parameter.name, hints[parameter.name], parameter.default)
        for parameter in list(inspect.signature(method).parameters.values())[1:]  # without self
    ]
    return Operation(name, parameters, hints["return"])


class CallRequest(msgspec.Struct, array_like=True):
    """A call of an operation."""

    number: int
    operation: str
    arguments: msgspec.Raw


class CallResult(msgspec.Struct, array_like=True):
    """A result, or an error with the name of its class."""

    number: int
    error: str
    result: msgspec.Raw


def frame(message: CallRequest | CallResult) -> bytes:
    """Return the encoded form of a message."""
    payload = encode(message)
    return _LENGTH.pack(len(payload)) + payload


class MessageSplitter:
    """Splits a stream of bytes into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add received bytes. Yield each complete message."""
        buffer = self._buffer
        if (
            not buffer
            and len(data) > _LENGTH.size
            and _LENGTH.unpack_from(data)[0] == len(data) - _LENGTH.size
        ):
            yield data[_LENGTH.size :]  # the most frequent case: exactly one message
            return
        buffer += data
        start = 0
        while len(buffer) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, start)
            if length > MAX_MESSAGE_SIZE:
                raise errors.FrontierError(f"message too large on the frontier's socket: {length} bytes")
            end = start + _LENGTH.size + length
            if len(buffer) < end:
                break
            yield bytes(buffer[start + _LENGTH.size : end])
            start = end
        del buffer[:start]


def error_from(name: str, message: str, remedy: str, field: str) -> errors.SkitterError:
    """Build the error that the other end raised. An unknown class becomes a ``FrontierError``."""
    kind = vars(errors).get(name)
    if isinstance(kind, type) and issubclass(kind, errors.SkitterError):
        return kind(message, remedy=remedy, field=field)
    return errors.FrontierError(f"{name}: {message}", remedy=remedy, field=field)
