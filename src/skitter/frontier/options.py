"""What a job asks of its frontier: the order, the time of a lease, what is remembered, where to stop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from skitter.politeness import Politeness, QueueLimits, Rate

QueueOrder = Literal["priority", "fifo", "lifo", "random"]


class CrawlLimits(msgspec.Struct, frozen=True):
    """Amounts at which a job stops, over all its workers and runs; ``None``: no limit."""

    pages: int | None = None
    items: int | None = None
    errors: int | None = None
    """Dead letters."""
    bytes: int | None = None
    """Body bytes fetched."""

    def reached(self, counters: Mapping[str, int], failed: int) -> str:
        """Name the limit that is reached, such as ``100 pages``; empty if none is."""
        if self == _NO_CRAWL_LIMITS:
            return ""
        amounts = {
            "pages": (self.pages, counters.get("pages", 0)),
            "items": (self.items, counters.get("items", 0)),
            "errors": (self.errors, failed),
            "bytes": (self.bytes, counters.get("bytes", 0)),
        }
        for name, (limit, amount) in amounts.items():
            if limit is not None and amount >= limit:
                return f"{limit} {name}"
        return ""

    def remaining(self, counters: Mapping[str, int], leased: int, wanted: int) -> int:
        """Return how many requests may be leased so that the pages do not pass their limit."""
        if self.pages is None:
            return wanted
        return max(0, min(wanted, self.pages - counters.get("pages", 0) - leased))


_NO_CRAWL_LIMITS = CrawlLimits()


class FrontierOptions(msgspec.Struct, frozen=True):
    """How a frontier keeps its job."""

    order: QueueOrder = "priority"
    """Within a slot: ``priority`` (high first, then first come), ``fifo``, ``lifo`` or ``random``."""
    lease_seconds: float = 60.0
    """A lease that is not renewed for so long goes back to the queue."""
    max_worker_crashes: int = 5
    """A request whose lease was lost more often than this becomes a dead letter: it kills workers."""
    visited_ttl: float | None = None
    """Seconds after which a *done* request may be added again; ``None``: never, 0: at once (reload).
    A request that is still queued, delayed or leased is known whatever its age."""
    failed_stay_known: bool = True
    """Whether a link to a request given up is refused as known. ``False``: it may be added again."""
    durability: Literal["process", "machine"] = "process"
    """``process``: what was answered survives SIGKILL; ``machine``: it survives power loss too."""
    limits: CrawlLimits = CrawlLimits()
    """Amounts at which the job stops."""
    seen_memory_limit: int = 20_000_000
    """Fingerprints kept in memory (0.1 GB a million) before the seen set moves to disk."""
    max_queued: int | None = None
    """Requests queued, delayed and leased from which on the workers are asked to send no new ones. Softly: what
    is on its way comes in, and where nothing can be leased any more there is always room for a page's links."""
    seen_filter: Literal["exact", "compact"] = "exact"
    """``compact``: a backend in the memory of a server may keep so little of each fingerprint that it takes an
    unknown one for known, and so loses its request, with the probability ``seen_error_rate``. Not with a
    ``visited_ttl``. The embedded backends are exact always."""
    seen_error_rate: float = 1e-6
    wait_for_seeds: float = 0.0
    """Seconds for which a job that has nothing to do waits for seeds from outside before it is finished;
    infinity: for ever."""
    seed_keys: tuple[str, ...] = ()
    """Keys from which seeds are taken; only for a frontier that has :class:`SeedKeys`."""
    group_counter_prefix: str | None = None
    """Of plain counters of items per task, where the backend has some that others can read."""
    group_counter_ttl: float | None = None
    """Seconds for which such a counter outlives its last change."""
    stats_max_keys: int = 10_000
    """Workers, hosts and tasks each that are counted one by one; beyond, the smallest are counted together."""

    def capacity(self, queued: int, delayed: int, leased: int, counters: Mapping[str, int]) -> int | None:
        """Return how many new requests a frontier with so many has room for; ``None``: any number.

        There is always some where nothing more can be leased before something is committed.
        """
        if self.max_queued is None:
            return None
        may_lease = queued > 0 and self.limits.remaining(counters, leased, 1) > 0
        return max(self.max_queued - queued - delayed - leased, 0 if may_lease else 1)


class FrontierContext(msgspec.Struct, frozen=True):
    """What a backend is told about the job it serves."""

    job: str
    directory: str
    """The job's own folder on this machine; exists."""
    politeness: Politeness
    options: FrontierOptions = FrontierOptions()
    joining: bool = False
    """Others are at work on the job: a backend that is away is waited for, also to open it."""
    attach: bool = False
    """Take the job as it is, its options included, and refuse to begin one; for shared backends."""


class SettingsChanges(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Settings by their names; what is ``UNSET`` is as the job's runs begin with. ``None`` means as there."""

    delay: float | UnsetType | None = UNSET
    jitter: float | UnsetType = UNSET
    concurrency_per_slot: int | UnsetType = UNSET
    rates: tuple[Rate, ...] | UnsetType = UNSET
    max_pages: int | UnsetType | None = UNSET
    max_items: int | UnsetType | None = UNSET
    max_errors: int | UnsetType | None = UNSET
    max_bytes: int | UnsetType | None = UNSET
    wait_for_seeds: float | UnsetType = UNSET
    """Seconds; infinity: for ever."""
    concurrency: int | UnsetType = UNSET
    """The only one that a worker obeys by itself: see ``LeaseResult.revision``."""
    domain_limits: dict[str, QueueLimits] | UnsetType = UNSET
    """Limits of hosts by domain; see :class:`~skitter.politeness.Politeness`. No setting: a spider gives them."""

    def over(self, earlier: SettingsChanges) -> SettingsChanges:
        """Return the earlier changes with these on top."""
        return msgspec.structs.replace(earlier, **_given(self))

    def of_options(self, options: FrontierOptions) -> FrontierOptions:
        """Return the options that hold."""
        given = _given(self)
        limits = {
            name: given[f"max_{name}"]
            for name in ("pages", "items", "errors", "bytes")
            if f"max_{name}" in given
        }
        changed = msgspec.structs.replace(options, limits=msgspec.structs.replace(options.limits, **limits))
        if self.wait_for_seeds is not UNSET:
            changed = msgspec.structs.replace(changed, wait_for_seeds=self.wait_for_seeds)
        return changed

    def of_politeness(self, politeness: Politeness) -> Politeness:
        """Return the politeness that holds. What a limit rule says itself stays as it is."""
        given = _given(self)
        fields = {
            name: given[name]
            for name in ("delay", "jitter", "concurrency_per_slot", "rates")
            if name in given
        }
        domains = self.domain_limits or {}
        return politeness.changed(msgspec.structs.replace(politeness.default, **fields), domains)


def _given(changes: SettingsChanges) -> dict[str, object]:
    return {name: value for name, value in msgspec.structs.asdict(changes).items() if value is not UNSET}
