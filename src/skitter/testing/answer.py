"""What a test site is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

HTML = "text/html; charset=utf-8"


class Visit(msgspec.Struct, frozen=True):
    """One request as the server received it."""

    method: str
    host: str
    """Name in the ``Host`` header, without port; the local address if there is no such header."""
    port: int
    """Local port of the connection."""
    target: str
    """Path and query exactly as sent."""
    headers: dict[str, str]
    """Names in lower case; of a repeated header the last value."""
    body: bytes
    origins: tuple[str, ...]
    """``host:port`` of everything the server listens on, in the order it was asked for."""

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    @property
    def place(self) -> int:
        """Index of the visited origin in :attr:`origins`; 0 for a name that is none of them."""
        origin = f"{self.host}:{self.port}"
        return self.origins.index(origin) if origin in self.origins else 0


class Answer(msgspec.Struct, frozen=True):
    """A well-formed HTTP response; ``Content-Length`` is added."""

    body: bytes = b""
    status: int = 200
    content_type: str | None = HTML
    """``None`` sends no ``Content-Type``."""
    headers: dict[str, str] = {}
    delay: float = 0.0
    """Seconds between the request and the first byte."""


class WireAnswer(msgspec.Struct, frozen=True):
    """Bytes put on the wire as they are: for answers that no honest server gives.

    ``steps`` may be endless; it is read only as fast as the client reads.
    """

    steps: Iterable[bytes | float]
    """Bytes are sent, a float is a pause in seconds."""
    end: Literal["keep", "close", "reset", "stall"] = "close"
    """Afterwards: next request, close, TCP reset, or silence until the client goes away."""
    status: int = 200
    """For the log only."""


Site = Callable[[Visit], Answer | WireAnswer]
"""What answers a request. Called on the server's event loop: it must not block."""


class PageTruth(msgspec.Struct, frozen=True):
    """What a crawler must find on one page."""

    title: str | None
    links: int
    """Number of ``a[href]``, whatever they point to."""
