"""CrawlSummary: where a managed crawl stands, as values that can be compared, stored and read."""

from __future__ import annotations

from typing import Any

import msgspec

from skitter.frontends.lifecycle.feed import ErrorFeed
from skitter.frontends.lifecycle.module import Module
from skitter.frontier.records import FrontierStatus


class ModuleSummary(msgspec.Struct, frozen=True):
    """One module."""

    id: str
    component: str
    called: int
    accepted: int
    completed: int
    handling: int
    extra: dict[str, Any]


class ErrorSummary(msgspec.Struct, frozen=True):
    """The errors told since the crawl was initialized."""

    total: int
    dropped: int
    """Pushed out before anybody read them."""
    by_component: dict[str, int]


class CrawlSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Equal if nothing has happened between two of them: there is no clock in it.

    Counts of requests are one consistent reading of the frontier, over all runs and workers of the job;
    ``added == queued + delayed + in_flight + done + failed``. They are 0 before the first run.
    """

    job: str
    status: str
    runs: int
    """How often it was started."""
    reason: str
    """Why the last run stopped; empty while it is at work and if the job is finished."""
    spider: str
    frontier: str
    workers: int
    settings: dict[str, Any]
    allowed_domains: list[str]
    """Empty: any."""
    modules: list[ModuleSummary]
    """By id."""
    idle: bool
    """Nothing is queued, delayed or under way, and no seeds are loading."""
    added: int = 0
    queued: int = 0
    delayed: int = 0
    in_flight: int = 0
    done: int = 0
    failed: int = 0
    """Dead letters."""
    counters: dict[str, int] = {}
    """Pages, items, statuses, and refusals and failures by kind."""
    errors: ErrorSummary

    def json(self) -> str:
        """Return it as one JSON object, keys in a fixed order."""
        return msgspec.json.encode(self, order="sorted").decode()

    def text(self) -> str:
        """Return it as lines for people."""
        waiting = f"{self.queued} queued, {self.delayed} delayed, {self.in_flight} in flight"
        lines = [
            f"job {self.job}: {self.status}{', idle' if self.idle else ''}{self._because()}",
            f"requests: {self.added} added, {waiting}, {self.done} done, {self.failed} failed",
        ]
        lines += [
            f"{module.id}: {module.called} called, {module.accepted} accepted, {module.completed} completed,"
            f" {module.handling} handling{_listed(module.extra)}"
            for module in self.modules
        ]
        lines.append(
            f"errors: {self.errors.total}, {self.errors.dropped} of them unread and dropped"
            f"{_listed(self.errors.by_component)}"
        )
        return "\n".join(lines)

    def _because(self) -> str:
        return f" ({self.reason})" if self.reason else ""


def _listed(values: dict[str, Any]) -> str:
    told = ", ".join(f"{name} {value}" for name, value in values.items() if value)
    return f" ({told})" if told else ""


def module_summary(module: Module) -> ModuleSummary:
    """Sum up a module."""
    counts = module.counts
    return ModuleSummary(
        module.id,
        str(module.component),
        counts.called,
        counts.accepted,
        counts.completed,
        counts.handling,
        module.extra(),
    )


def error_summary(feed: ErrorFeed) -> ErrorSummary:
    """Sum up what was told to a feed."""
    return ErrorSummary(feed.total, feed.dropped, {str(kind): n for kind, n in feed.by_component.items()})


def is_idle(status: FrontierStatus) -> bool:
    """Tell whether a reading shows nothing to do. A page counts as under way until its links are added."""
    return not (status.queued or status.delayed or status.leased or status.seeds_loading)
