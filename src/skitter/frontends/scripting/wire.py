"""Wire: what a worker and its script process say to each other: frames of JSON, each behind its length."""

from __future__ import annotations

from typing import IO, Any

import msgspec


class Order(msgspec.Struct, omit_defaults=True):
    """Run something. ``words`` are what the script sees by name."""

    code: str
    words: dict[str, Any] = {}
    page: Page | None = None
    """Given for a rule, which reads a page; none for an expression."""


class Page(msgspec.Struct, omit_defaults=True):
    """The page that a rule reads."""

    url: str
    text: str
    status: int = 200
    kind: str = "html"
    """``html``, ``xml`` or ``json``."""


class Result(msgspec.Struct, omit_defaults=True):
    """What came of it."""

    value: Any = None
    error: str = ""


def write_frame(stream: IO[bytes], message: msgspec.Struct) -> None:
    """Send a message. Raises OSError if nobody is there."""
    encoded = msgspec.json.encode(message)
    stream.write(len(encoded).to_bytes(4, "big") + encoded)
    stream.flush()


def read_frame(stream: IO[bytes]) -> bytes | None:
    """Return the next message, or ``None`` at the end of the stream."""
    head = stream.read(4)
    if len(head) < 4:
        return None
    length = int.from_bytes(head, "big")
    body = stream.read(length)
    return body if len(body) == length else None
