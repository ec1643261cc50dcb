"""The job that a frontier serves, and the settings that change during a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from skitter.errors import FrontierError, UsageError
from skitter.politeness import HostLimits, Politeness
from skitter.settings import FrontierSettings, QueueOrder, convert, live_settings

__all__ = [
    "REFUSED_FULL",
    "FrontierContext",
    "FrontierSettings",
    "QueueOrder",
    "SettingsChanges",
    "SlotBudgets",
    "changed_mode",
    "has_limits",
    "queue_capacity",
    "reached_limit",
    "remaining_pages",
]

_LIMITED = ("pages", "items", "errors", "bytes")
_UNLIMITED = (None,) * len(_LIMITED)


def _limits(options: FrontierSettings) -> tuple[int | None, ...]:
    """Return the limits of the job in the order of their names."""
    return options.max_pages, options.max_items, options.max_errors, options.max_bytes


def has_limits(options: FrontierSettings) -> bool:
    """Return whether the job stops at a number of pages, items, errors or bytes."""
    return _limits(options) != _UNLIMITED


def reached_limit(options: FrontierSettings, counters: Mapping[str, int], failed: int) -> str:
    """Return the limit that the job has reached, such as ``100 pages``; empty if it has reached no limit."""
    limits = _limits(options)
    if limits == _UNLIMITED:  # as for most jobs, and asked for each page
        return ""
    for name, limit in zip(_LIMITED, limits, strict=True):
        if limit is not None and (failed if name == "errors" else counters.get(name, 0)) >= limit:
            return f"{limit} {name}"
    return ""


def remaining_pages(options: FrontierSettings, counters: Mapping[str, int], leased: int, limit: int) -> int:
    """Return how many of ``limit`` requests can be leased without exceeding ``max_pages``."""
    if options.max_pages is None:
        return limit
    return max(0, min(limit, options.max_pages - counters.get("pages", 0) - leased))


def queue_capacity(
    options: FrontierSettings, queued: int, delayed: int, leased: int, counters: Mapping[str, int]
) -> int | None:
    """Return how many new requests the frontier accepts from workers; ``None``: no limit.

    The limit is soft: requests that are already on their way are stored. There is always room for at least one request when nothing
    else can be leased, so that the crawl can continue.
    """
    if options.max_queued is None:
        return None
    can_lease = queued > 0 and remaining_pages(options, counters, leased, 1) > 0
    return max(options.max_queued - queued - delayed - leased, 0 if can_lease else 1)


class SlotBudgets:
    """The budgets of each slot: pages, bytes and requests that wait."""

    def __init__(self, options: FrontierSettings) -> None:
        self._pages = options.max_pages_per_slot
        self._bytes = options.max_bytes_per_slot
        self._queued = options.max_queued_per_slot
        self.limits_use = self._pages is not None or self._bytes is not None
        """Whether a slot can be used up."""
        self.are_set = self.limits_use or self._queued is not None

    def pages_left(self, pages: int) -> float:
        """Return how many more pages a slot may have."""
        return math.inf if self._pages is None else self._pages - pages

    def spent(self, pages: int, size: int) -> str:
        """Return the counter for refused requests if the budget of a slot is used up; otherwise an empty string."""
        if self._pages is not None and pages >= self._pages:
            return "refused/slot_pages"
        if self._bytes is not None and size >= self._bytes:
            return "refused/slot_bytes"
        return ""

    def is_full(self, waiting: int) -> bool:
        """Return whether a slot accepts no further links. ``waiting``: its queued, delayed and leased requests."""
        return self._queued is not None and waiting >= self._queued

    def packed(self) -> dict[str, int]:
        """Return the budgets that are set, by what they limit."""
        budgets = {"pages": self._pages, "bytes": self._bytes, "queued": self._queued}
        return {name: value for name, value in budgets.items() if value is not None}


REFUSED_FULL = "refused/slot_queued"
"""Counter of the links that a slot refused because too many requests waited in it."""


def changed_mode(stored: str, requested: str, job: str) -> FrontierError:
    """Return the error for a job that was created with another value of the setting ``changes``."""
    return FrontierError(
        f"{job} was created with changes={stored or 'none'} and cannot continue with changes={requested or 'none'}",
        remedy="set changes as before, or start over with --fresh",
        field="changes",
    )


class FrontierContext(msgspec.Struct, frozen=True):
    """The job that a backend serves."""

    job: str
    directory: str = ""
    """The job's own folder on this machine; exists."""
    politeness: Politeness = Politeness()
    options: FrontierSettings = FrontierSettings()
    joining: bool = False
    """Whether other workers run the job. If so, opening waits for a server that is unavailable."""
    attach: bool = False
    """Whether to take the job as it is, including its stored options, and to refuse to create one."""
    fingerprint_seed: int | None = None
    """The secret of a job that its server may have lost, with which a new job identifies the same pages.
    ``None``: a new one. Embedded frontiers ignore it."""


class SettingsChanges(msgspec.Struct, frozen=True, omit_defaults=True):
    """Settings that were changed while a job ran. They hold for its later runs too.

    Raises :class:`~skitter.errors.SettingsError` for an invalid value and :class:`~skitter.errors.UsageError` for a
    setting that cannot change during a run.
    """

    settings: dict[str, Any] = {}
    """Values by name, of settings that are declared as ``live``."""
    domain_limits: dict[str, HostLimits] | UnsetType = UNSET
    """Limits of hosts by domain, set by a spider; see :class:`~skitter.politeness.Politeness`."""
    shared_cookies: bool = False
    """Whether a worker has received a cookie that all workers must send (``cookies=auto``). Never undone."""

    def __post_init__(self) -> None:
        live = live_settings()
        for name, value in self.settings.items():
            self.settings[name] = convert(name, value)
            if name not in live:
                raise UsageError(
                    f"setting {name} cannot be changed during a run",
                    remedy=f"change one of {', '.join(live)}, or stop the job and run it again",
                    field=name,
                )

    def to_dict(self) -> dict[str, Any]:
        """Return the changed values by name, as plain data."""
        domains = {} if self.domain_limits is UNSET else {"domain_limits": self.domain_limits}
        cookies = {"shared_cookies": True} if self.shared_cookies else {}
        plain: dict[str, Any] = msgspec.to_builtins({**self.settings, **domains, **cookies})
        return plain

    def over(self, earlier: SettingsChanges) -> SettingsChanges:
        """Return the earlier changes with these on top."""
        domains = earlier.domain_limits if self.domain_limits is UNSET else self.domain_limits
        shared_cookies = self.shared_cookies or earlier.shared_cookies
        return SettingsChanges({**earlier.settings, **self.settings}, domains, shared_cookies)

    def of_options(self, options: FrontierSettings) -> FrontierSettings:
        """Return the options in force."""
        return msgspec.structs.replace(options, **self._of(FrontierSettings))

    def of_politeness(self, politeness: Politeness) -> Politeness:
        """Return the politeness in force. A limit that a limit rule sets does not change."""
        default = msgspec.structs.replace(politeness.default, **self._of(HostLimits))
        return politeness.changed(default, self.domain_limits or {})

    def _of(self, kind: type[msgspec.Struct]) -> dict[str, Any]:
        names = kind.__struct_fields__
        return {name: value for name, value in self.settings.items() if name in names}
