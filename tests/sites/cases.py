"""Test cases of the faulty site: how a page responds, and the expected result."""

from collections.abc import Callable
from typing import NamedTuple

from skitter.testing import Answer, Visit, WireAnswer


class Reason(NamedTuple):
    """The reason for a dead letter: one of these error kinds, or this status."""

    kinds: frozenset[str] = frozenset()
    status: int = 0


def reason(*kinds: str) -> Reason:
    return Reason(kinds=frozenset(kinds))


class Case(NamedTuple):
    """``answer`` is called with the visit, the number of visits of the page so far, and the correct page.

    ``dead`` is ``None`` for a page that can be fetched.
    """

    answer: Callable[[Visit, int, str], Answer | WireAnswer]
    dead: Reason | None = None
    pages: int = 2
    """Number of pages of the site that respond like this."""


def http_head(*headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", "Content-Type: text/html; charset=utf-8", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"
