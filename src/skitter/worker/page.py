"""Page: one leased request on its way through the worker's loop."""

from __future__ import annotations

from typing import Any

import msgspec

from skitter.frontier.records import Entry, Lease, Resolution
from skitter.request import Request
from skitter.response import Response
from skitter.worker.links import LinkBatch
from skitter.worker.retry import Decision

DONE = Decision(Resolution.DONE)


class Page:
    """A lease with what came of it so far. Made by the worker, closed by the committer."""

    __slots__ = (
        "batches", "counters", "entries", "items", "lease", "request", "response",
        "verdict",
    )  # fmt: skip

    def __init__(self, lease: Lease, request: Request) -> None:
        self.lease = lease
        self.request = request
        """As it was queued; a hook may have had another one fetched."""
        self.response: Response | None = None
        self.verdict: Decision = DONE
        self.items: list[Any] = []
        self.entries: list[Entry] = []
        self.batches: list[LinkBatch] = []
        self.counters: dict[str, int] = {}

    def count(self, name: str, amount: int = 1) -> None:
        """Count something, to be kept only if the page is committed."""
        counters = self.counters
        counters[name] = counters.get(name, 0) + amount

    def finish(self, verdict: Decision) -> None:
        """Decide how the lease ends; a page that is not done gives neither items nor links."""
        if not verdict.error.isascii():  # half a surrogate pair fits in a Python text, but in no store
            readable = verdict.error.encode("utf-8", "backslashreplace").decode()
            verdict = msgspec.structs.replace(verdict, error=readable)
        self.verdict = verdict
        if verdict.resolution is not Resolution.DONE:
            self.items, self.entries, self.batches = [], [], []
            kind = verdict.error.partition(":")[0]
            if verdict.resolution is Resolution.FAILED:
                self.count("failed/" + kind)
            elif not verdict.free:
                self.count("retried/" + kind)
