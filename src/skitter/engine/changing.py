"""Changing: settings that are to hold for a job from now on, as they are given by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skitter.errors import UsageError
from skitter.frontier.base import Frontier
from skitter.frontier.changes import Changes
from skitter.settings import build_settings

_BY_HAND = tuple(name for name in Changes.__struct_fields__ if name != "domain_limits")


async def change_by_hand(frontier: Frontier, changes: Changes, *, reset: bool) -> Changes:
    """Change settings of a job; ``reset`` forgets what was changed by hand before, not what its spider has changed."""
    if reset:
        kept = Changes(domain_limits=(await frontier.changes()).domain_limits)
        changes = changes.over(kept)
    return await frontier.change(changes, reset)


def changes_of(given: Mapping[str, Any]) -> Changes:
    """Read settings that are to hold from now on. Raises :class:`~skitter.errors.UsageError` for others."""
    settings = build_settings(given)  # which also finds values that do not fit
    politeness = settings.politeness()
    values: dict[str, Any] = {name: getattr(settings, name) for name in given}
    if other := [name for name in values if name not in _BY_HAND]:
        raise UsageError(
            f"setting {other[0]} cannot be changed while a job runs",
            remedy=f"these can: {', '.join(_BY_HAND)}; stop the job for another",
        )
    if "rates" in values:
        values["rates"] = politeness.default.rates
    if "wait_for_seeds" in values:
        values["wait_for_seeds"] = settings.seconds_to_wait()
    return Changes(**values)
