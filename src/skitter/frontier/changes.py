"""Changes: what was changed of a job while it runs, for all its workers and later runs."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from skitter.frontier.options import FrontierOptions
from skitter.politeness import Politeness, QueueLimits, Rate


class Changes(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Settings by their names; what is ``UNSET`` is as the job's runs begin with. ``None`` means as there."""

    delay: float | UnsetType | None = UNSET
    jitter: float | UnsetType = UNSET
    parallelism: int | UnsetType = UNSET
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

    def over(self, earlier: Changes) -> Changes:
        """Return the earlier changes with these on top."""
        return msgspec.structs.replace(earlier, **_set(self))

    def of_options(self, options: FrontierOptions) -> FrontierOptions:
        """Return the options that hold."""
        given = _set(self)
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
        given = _set(self)
        fields = {name: given[name] for name in ("delay", "jitter", "parallelism", "rates") if name in given}
        domains = self.domain_limits or {}
        return politeness.changed(msgspec.structs.replace(politeness.default, **fields), domains)


def _set(changes: Changes) -> dict[str, object]:
    return {name: value for name, value in msgspec.structs.asdict(changes).items() if value is not UNSET}
