"""Wire: commands and frames of the V2 protocol (https://nsq.io/clients/tcp_protocol_spec.html)."""

from __future__ import annotations

import re
import struct
from collections.abc import Generator, Sequence

from skitter.brokers.nsq_client.errors import NsqError

MAGIC = b"  V2"
RESPONSE, ERROR, MESSAGE = 0, 1, 2
HEARTBEAT = b"_heartbeat_"
NOP = b"NOP\n"
CLS = b"CLS\n"
LARGEST_FRAME = 1 << 28
"""Bytes; nsqd's own limit for a message is 1 MB by default. More is no frame but a stream out of step."""

_SIZE = struct.Struct(">I")
_HEAD = struct.Struct(">II")
_MESSAGE_HEAD = struct.Struct(">qH16s")
_NAME = re.compile(r"[.a-zA-Z0-9_-]+(#ephemeral)?")
_LONGEST_NAME = 64


def is_topic(name: str) -> bool:
    """Tell whether nsqd takes a name for a topic: 1 to 64 of ``.a-zA-Z0-9_-``, perhaps with ``#ephemeral``."""
    return len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) is not None


is_channel = is_topic
"""The same rule holds for channels."""


def _with_body(words: str, body: bytes) -> bytes:
    return b"%s\n%s%s" % (words.encode(), _SIZE.pack(len(body)), body)


def identify(settings: bytes) -> bytes:
    """Tell nsqd who connects, as JSON, and ask for features."""
    return _with_body("IDENTIFY", settings)


def auth(secret: bytes) -> bytes:
    """Show a secret."""
    return _with_body("AUTH", secret)


def sub(topic: str, channel: str) -> bytes:
    """Subscribe."""
    return f"SUB {topic} {channel}\n".encode()


def pub(topic: str, body: bytes) -> bytes:
    """Publish one message."""
    return _with_body(f"PUB {topic}", body)


def dpub(topic: str, body: bytes, milliseconds: int) -> bytes:
    """Publish one message that is delivered later."""
    return _with_body(f"DPUB {topic} {milliseconds}", body)


def mpub(topic: str, bodies: Sequence[bytes]) -> bytes:
    """Publish several messages as a whole or not at all."""
    packed = b"".join(_SIZE.pack(len(body)) + body for body in bodies)
    return _with_body(f"MPUB {topic}", _SIZE.pack(len(bodies)) + packed)


def rdy(count: int) -> bytes:
    """Allow so many messages in flight."""
    return b"RDY %d\n" % count


def fin(message_id: bytes) -> bytes:
    """Finish a message."""
    return b"FIN %s\n" % message_id


def req(message_id: bytes, milliseconds: int) -> bytes:
    """Put a message back in the queue, to be delivered later."""
    return b"REQ %s %d\n" % (message_id, milliseconds)


def touch(message_id: bytes) -> bytes:
    """Ask for more time with a message."""
    return b"TOUCH %s\n" % message_id


def read_message(data: bytes) -> tuple[int, int, bytes, bytes]:
    """Return time of publishing (ns), attempts, id and body of a message frame.

    Raises :class:`NsqError` if it is none.
    """
    try:
        published, attempts, message_id = _MESSAGE_HEAD.unpack_from(data)
    except struct.error as error:
        raise NsqError(f"a message of {len(data)} bytes is none") from error
    return published, attempts, message_id, data[_MESSAGE_HEAD.size :]


class Unframer:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Generator[tuple[int, bytes], None, None]:
        """Add what arrived; give kind and content of each frame that is complete.

        Raises :class:`NsqError` for what cannot be a frame.
        """
        buffer = self._buffer
        buffer += data
        start = 0
        try:
            while len(buffer) - start >= _HEAD.size:
                size, kind = _HEAD.unpack_from(buffer, start)
                if not _SIZE.size <= size <= LARGEST_FRAME:
                    raise NsqError(f"a frame of {size} bytes")
                end = start + _SIZE.size + size
                if len(buffer) < end:
                    break
                frame = bytes(buffer[start + _HEAD.size : end])
                start = end
                yield kind, frame
        finally:
            del buffer[:start]

    def rest(self) -> bytes:
        """Take back what is no complete frame yet."""
        rest, self._buffer = bytes(self._buffer), bytearray()
        return rest
