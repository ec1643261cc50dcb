"""Requests to a test site, and its responses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

HTML = "text/html; charset=utf-8"


class Visit(msgspec.Struct, frozen=True):
    """One request as the server received it."""

    method: str
    host: str
    """Name in the ``Host`` header, without the port; the local address if the header is missing."""
    port: int
    """Local port of the connection."""
    target: str
    """Path and query exactly as sent."""
    headers: dict[str, str]
    """Names in lower case; the last value of a repeated header."""
    body: bytes
    origins: tuple[str, ...]
    """``host:port`` of all origins of the server, in the order of its arguments."""

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    @property
    def origin_index(self) -> int:
        """Index of the requested origin in :attr:`origins`; 0 for an unknown name."""
        origin = f"{self.host}:{self.port}"
        return self.origins.index(origin) if origin in self.origins else 0


class Answer(msgspec.Struct, frozen=True):
    """A well-formed HTTP response; ``Content-Length`` is added."""

    body: bytes = b""
    status: int = 200
    content_type: str | None = HTML
    """With ``None``, no ``Content-Type`` is sent."""
    headers: dict[str, str] = {}
    delay: float = 0.0
    """Time between the request and the first byte, in seconds."""


class WireAnswer(msgspec.Struct, frozen=True):
    """Raw bytes of a response, for responses that no correct server sends.

    ``steps`` may be infinite; it is read only as fast as the client reads.
    """

    steps: Iterable[bytes | float]
    """Bytes to send; a float is a pause in seconds."""
    end: Literal["keep", "close", "reset", "stall"] = "close"
    """The action after the bytes: the next request, a close, a TCP reset, or silence until the client disconnects."""
    status: int = 200
    """Status for the request log only."""


Site = Callable[[Visit], Answer | WireAnswer]
"""Answers a request. It is called on the server's event loop, so it must not block."""


class SiteOfOrigins(ABC):
    """Base of a site whose pages lie on several origins. A server with fewer refuses it."""

    origins_needed: int

    @abstractmethod
    def __call__(self, visit: Visit) -> Answer | WireAnswer:
        """Answer a request, see :data:`Site`."""


class ExpectedPage(msgspec.Struct, frozen=True):
    """The expected title and links of one page."""

    title: str | None
    links: int
    """Number of ``a[href]``, whatever their targets."""
