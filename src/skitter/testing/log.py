"""The request log of a test server: what came when, and how much of a host was in flight."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from skitter.testing.answer import Visit


class Hit(msgspec.Struct):
    """One request. Times are ``time.monotonic()`` of the server's machine."""

    host: str
    port: int
    method: str
    target: str
    received: float
    """When its last byte had come: to the machine, where the kernel tells (Linux; never too early, and at most 20 ms
    too late), however long the server then waited for the processor."""
    in_flight: int
    """Requests of the same host being answered at that moment, this one included."""
    ended: float | None = None
    """When the answer was complete and about to be sent, or the client was gone; ``None``: not yet."""
    status: int = 0
    """Status of the answer; 0 if the client was gone before."""


class RequestLog:
    """Every request of a server, in the order of receipt."""

    def __init__(self, on_end: Callable[[Hit], None] | None = None) -> None:
        self.hits: list[Hit] = []
        self._in_flight: Counter[str] = Counter()
        self._on_end = on_end

    def begin(self, visit: Visit, waited: float = 0.0) -> Hit:
        """Note the receipt of a request; ``waited``: seconds for which it has been there."""
        self._in_flight[visit.host] += 1
        hit = Hit(
            host=visit.host,
            port=visit.port,
            method=visit.method,
            target=visit.target,
            received=time.monotonic() - waited,
            in_flight=self._in_flight[visit.host],
        )
        self.hits.append(hit)
        return hit

    def end(self, hit: Hit, status: int) -> None:
        """Note the end of its answer."""
        hit.ended = time.monotonic()
        hit.status = status
        self._in_flight[hit.host] -= 1
        if self._on_end is not None:
            self._on_end(hit)


class LogFile:
    """Writes each ended request as one JSON line, at once, so that it outlives the server."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self._encode = msgspec.json.Encoder().encode

    def __call__(self, hit: Hit) -> None:
        """Write one request."""
        self._file.write(self._encode(hit) + b"\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_log(path: Path) -> list[Hit]:
    """Read what :class:`LogFile` wrote, in the order of receipt."""
    decode = msgspec.json.Decoder(Hit).decode
    lines = path.read_bytes().split(b"\n")
    # The last piece is empty, or a line that is being written at this moment.
    return sorted((decode(line) for line in lines[:-1]), key=lambda hit: hit.received)
