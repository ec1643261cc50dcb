"""One page of the faulty web: how it answers, and what must come of it."""

from collections.abc import Callable
from typing import NamedTuple

from skitter.testing import Answer, Visit, WireAnswer


class Reason(NamedTuple):
    """Why a request may end as a dead letter: one of these error kinds, or this status."""

    kinds: frozenset[str] = frozenset()
    status: int = 0


def reason(*kinds: str) -> Reason:
    return Reason(kinds=frozenset(kinds))


class Case(NamedTuple):
    """``answer`` gets the visit, how often the page was visited with this one, and the page as it should be.

    ``dead`` is ``None`` for a page that can be had.
    """

    answer: Callable[[Visit, int, str], Answer | WireAnswer]
    dead: Reason | None = None
    pages: int = 2
    """How many pages of the site behave so."""


def http_head(*headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", "Content-Type: text/html; charset=utf-8", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"
