"""Commands, frames and errors of the NSQ V2 protocol (https://nsq.io/clients/tcp_protocol_spec.html)."""

from __future__ import annotations

import re
import struct
from collections.abc import Generator, Sequence

MAGIC = b"  V2"
RESPONSE, ERROR, MESSAGE = 0, 1, 2
HEARTBEAT = b"_heartbeat_"
NOP = b"NOP\n"
CLS = b"CLS\n"
MAX_FRAME_SIZE = 1 << 28
"""Maximum size in bytes. nsqd limits messages to 1 MB by default; a larger frame means that the stream is corrupt."""

_SIZE = struct.Struct(">I")
_HEAD = struct.Struct(">II")
_MESSAGE_HEAD = struct.Struct(">qH16s")
_NAME = re.compile(r"[.a-zA-Z0-9_-]+(#ephemeral)?")
_MAX_NAME_LENGTH = 64


class NsqError(Exception):
    """Base of all errors of this package."""


class ConnectionFailed(NsqError):
    """An nsqd cannot be reached, or the connection to it has ended."""


class LookupFailed(NsqError):
    """An nsqlookupd cannot be reached, or its response is invalid."""


class CommandRefused(NsqError):
    """nsqd replied to a command with an error.

    ``code`` is the code of the protocol, such as ``E_BAD_TOPIC``.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code} {text}".strip())
        self.code = code

    @property
    def may_succeed_later(self) -> bool:
        """Whether the same command may succeed later, or on another nsqd."""
        return self.code.endswith("PUB_FAILED")


def is_topic(name: str) -> bool:
    """Return whether a topic may have this name: 1 to 64 of ``.a-zA-Z0-9_-``, optionally with ``#ephemeral``."""
    return len(name) <= _MAX_NAME_LENGTH and _NAME.fullmatch(name) is not None


is_channel = is_topic
"""Channels follow the same rule."""


def _with_body(command: str, body: bytes) -> bytes:
    return b"%s\n%s%s" % (command.encode(), _SIZE.pack(len(body)), body)


def identify(settings: bytes) -> bytes:
    """Identify the client with a JSON text, and negotiate features."""
    return _with_body("IDENTIFY", settings)


def auth(secret: bytes) -> bytes:
    """Authenticate."""
    return _with_body("AUTH", secret)


def sub(topic: str, channel: str) -> bytes:
    """Subscribe."""
    return f"SUB {topic} {channel}\n".encode()


def pub(topic: str, body: bytes) -> bytes:
    """Publish one message."""
    return _with_body(f"PUB {topic}", body)


def dpub(topic: str, body: bytes, milliseconds: int) -> bytes:
    """Publish one message with a delay."""
    return _with_body(f"DPUB {topic} {milliseconds}", body)


def mpub(topic: str, bodies: Sequence[bytes]) -> bytes:
    """Publish several messages, all or none."""
    packed = b"".join(_SIZE.pack(len(body)) + body for body in bodies)
    return _with_body(f"MPUB {topic}", _SIZE.pack(len(bodies)) + packed)


def rdy(count: int) -> bytes:
    """Allow ``count`` messages in flight."""
    return b"RDY %d\n" % count


def fin(message_id: bytes) -> bytes:
    """Finish a message."""
    return b"FIN %s\n" % message_id


def req(message_id: bytes, milliseconds: int) -> bytes:
    """Requeue a message with a delay."""
    return b"REQ %s %d\n" % (message_id, milliseconds)


def touch(message_id: bytes) -> bytes:
    """Restart the timeout of a message."""
    return b"TOUCH %s\n" % message_id


def read_message(data: bytes) -> tuple[int, int, bytes, bytes]:
    """Return the publishing time (ns), attempts, id and body of a message frame.

    Raises :class:`NsqError` for a truncated frame.
    """
    try:
        published, attempts, message_id = _MESSAGE_HEAD.unpack_from(data)
    except struct.error as error:
        raise NsqError(f"truncated message frame ({len(data)} bytes)") from error
    return published, attempts, message_id, data[_MESSAGE_HEAD.size :]


class NsqFrameReader:
    """Splits a stream of bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Generator[tuple[int, bytes], None, None]:
        """Add received bytes. Yield the kind and content of each complete frame.

        Raises :class:`NsqError` for a frame of an impossible size.
        """
        buffer = self._buffer
        buffer += data
        start = 0
        try:
            while len(buffer) - start >= _HEAD.size:
                size, kind = _HEAD.unpack_from(buffer, start)
                if not _SIZE.size <= size <= MAX_FRAME_SIZE:
                    raise NsqError(f"impossible frame size ({size} bytes)")
                end = start + _SIZE.size + size
                if len(buffer) < end:
                    break
                frame = bytes(buffer[start + _HEAD.size : end])
                start = end
                yield kind, frame
        finally:
            del buffer[:start]

    def rest(self) -> bytes:
        """Remove and return the bytes of an incomplete frame."""
        rest, self._buffer = bytes(self._buffer), bytearray()
        return rest
