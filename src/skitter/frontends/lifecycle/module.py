"""Module: a downloader, analyzer or pipeline that is registered by its id, and what it has done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import msgspec

from skitter.frontends.lifecycle.component import Component


class Counts(msgspec.Struct):
    """What a module has done since it was registered."""

    called: int = 0
    accepted: int = 0
    """Calls whose input was valid."""
    completed: int = 0
    """Calls that succeeded."""
    handling: int = 0
    """Calls under way."""


class Module:
    """Base of the three kinds. ``id`` is any text that no other module of the crawl has; empty: one is given."""

    component: ClassVar[Component]

    def __init__(self, id: str = "") -> None:  # noqa: A002 - it is what it is called everywhere
        self.id = id
        self.counts = Counts()
        self.setbacks = 0
        """Failures since the last success."""
        self.turn = 0
        """Serial number of the last call among all modules of the crawl."""

    @contextmanager
    def at_work(self) -> Iterator[Counts]:
        """Count a call; whoever makes it counts whether its input is accepted."""
        counts = self.counts
        counts.called += 1
        counts.handling += 1
        try:
            yield counts
        except Exception:
            self.setbacks += 1
            raise
        else:
            counts.completed += 1
            self.setbacks = 0
        finally:
            counts.handling -= 1

    def extra(self) -> dict[str, Any]:
        """Return what a summary tells of this kind beyond its counts."""
        return {}
