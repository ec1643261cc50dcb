"""The request log of a test server: when requests arrived, and how many were in flight."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from skitter.testing.answer import Visit


class Hit(msgspec.Struct):
    """One request. Times are values of ``time.monotonic()`` on the server's machine."""

    host: str
    port: int
    method: str
    target: str
    received: float
    """When its last byte arrived at the machine (on Linux, where the kernel reports it; never too early, and at most 20 ms
    too late), even if the server had to wait for the processor.
    """
    in_flight: int
    """Number of requests to the same host in progress at that moment, including this one."""
    ended: float | None = None
    """When the response was complete and about to be sent, or the client disconnected; ``None``: neither has happened yet."""
    status: int = 0
    """Status of the response; 0 if the client disconnected first."""


class RequestLog:
    """Every request to a server, in the order of arrival."""

    def __init__(self, on_end: Callable[[Hit], None] | None = None) -> None:
        self.hits: list[Hit] = []
        self._in_flight: Counter[str] = Counter()
        self._on_end = on_end

    def begin(self, visit: Visit, waited: float = 0.0) -> Hit:
        """Record the arrival of a request, which happened ``waited`` seconds ago."""
        self._in_flight[visit.host] += 1
        received, in_flight = time.monotonic() - waited, self._in_flight[visit.host]
        hit = Hit(visit.host, visit.port, visit.method, visit.target, received, in_flight)
        self.hits.append(hit)
        return hit

    def end(self, hit: Hit, status: int) -> None:
        """Record the end of the response to a request."""
        hit.ended = time.monotonic()
        hit.status = status
        self._in_flight[hit.host] -= 1
        if self._on_end is not None:
            self._on_end(hit)


class LogFile:
    """Writes each completed request as one JSON line immediately, so that the log outlives the server."""

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
    """Read a file written by :class:`LogFile`, in the order of arrival."""
    decode = msgspec.json.Decoder(Hit).decode
    lines = path.read_bytes().split(b"\n")
    # The last element is empty, or a line that is being written.
    return sorted((decode(line) for line in lines[:-1]), key=lambda hit: hit.received)
