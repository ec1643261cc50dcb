"""Wire: the frontier contract as messages over a local socket.

A message is a 4-byte length and a MessagePack array. A call is ``[number, method, arguments]``, an answer
``[number, "", result]`` or ``[number, error class, [message, remedy]]``. Versions never mix: both ends are
processes of one crawl on one machine.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import msgspec

from skitter import errors
from skitter.frontier.options import SettingsChanges
from skitter.frontier.records import (
    AddResult,
    DeadLetter,
    Entry,
    FetchReport,
    FrontierStatus,
    JobInfo,
    JobState,
    LeaseResult,
    Outcome,
    SeedClaim,
    SeedProgress,
)
from skitter.frontier.stats import StatsGroup, StatsRow
from skitter.frontier.workers import WorkerReport, WorkerStatus

LARGEST_MESSAGE = 1 << 30
_LENGTH = struct.Struct(">I")

METHODS: dict[str, tuple[Any, Any]] = {
    # method: (types of its arguments, type of its result)
    "open": (tuple[()], JobInfo),
    "introduce": (tuple[str], None),
    "unknown": (tuple[list[bytes]], list[bool]),
    "add": (tuple[list[Entry], SeedProgress | None], AddResult),
    "claim_seeds": (tuple[str], SeedClaim | None),
    "lease": (tuple[str, int, list[FetchReport], dict[str, int] | None], LeaseResult),
    "renew": (tuple[str, list[int]], list[int]),
    "commit": (tuple[list[Outcome]], list[bool]),
    "release": (tuple[list[int]], None),
    "abandon": (tuple[str], int),
    "status": (tuple[()], FrontierStatus),
    "set_state": (tuple[JobState], JobState),
    "hold": (tuple[str, float], None),
    "set_delay": (tuple[str, float], None),
    "recall": (tuple[str], bytes | None),
    "remember": (tuple[str, bytes, float], None),
    "swap": (tuple[str, bytes | None, bytes, float], bool),
    "list_dead_letters": (tuple[int, int], list[DeadLetter]),
    "replay": (tuple[list[int] | None], int),
    "drop": (tuple[list[int] | None], int),
    "recrawl": (tuple[()], bool),
    "tallies": (tuple[StatsGroup, int], list[StatsRow]),
    "announce": (tuple[WorkerReport, float], None),
    "workers": (tuple[()], list[WorkerStatus]),
    "changes": (tuple[()], SettingsChanges),
    "change": (tuple[SettingsChanges, bool], SettingsChanges),
    "drop_slot": (tuple[str, bool], int),
    "drop_task": (tuple[str], int),
    "unban": (tuple[str], bool),
    "banned": (tuple[()], list[str]),
    "outputs": (tuple[()], dict[str, list[tuple[int, int]]]),
}

encode = msgspec.msgpack.Encoder().encode


class Call(msgspec.Struct, array_like=True):
    """A method called by its name."""

    number: int
    method: str
    arguments: msgspec.Raw


class Answer(msgspec.Struct, array_like=True):
    """A result, or an error by the name of its class."""

    number: int
    error: str
    result: msgspec.Raw


def frame(message: Call | Answer) -> bytes:
    """Return a message ready to be sent."""
    payload = encode(message)
    return _LENGTH.pack(len(payload)) + payload


class Unframer:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add what arrived; give each message that is complete."""
        buffer = self._buffer
        if (
            not buffer
            and len(data) > _LENGTH.size
            and _LENGTH.unpack_from(data)[0] == len(data) - _LENGTH.size
        ):
            yield data[_LENGTH.size :]  # one message, whole: nearly always
            return
        buffer += data
        start = 0
        while len(buffer) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, start)
            if length > LARGEST_MESSAGE:
                raise errors.FrontierError(f"a message of {length} bytes on the frontier's socket")
            end = start + _LENGTH.size + length
            if len(buffer) < end:
                break
            yield bytes(buffer[start + _LENGTH.size : end])
            start = end
        del buffer[:start]


def error_from(name: str, message: str, remedy: str) -> errors.SkitterError:
    """Build the error that the other end named; an unknown one becomes a ``FrontierError``."""
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, errors.SkitterError):
        return kind(message, remedy=remedy)
    return errors.FrontierError(f"{name}: {message}", remedy=remedy)
