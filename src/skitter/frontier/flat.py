"""Transitional: the attributes of the contract for backends that still have all methods on one class."""

from __future__ import annotations

from typing import Any

_METHODS = {
    "control": {
        "set_state": "set_state", "pause_slot": "hold", "set_delay": "set_delay", "settings_changes": "changes",
        "change_settings": "change", "drop_slot": "drop_slot", "drop_group": "drop_task", "unban": "unban",
        "banned": "banned", "recrawl": "recrawl",
    },
    "dead_letters": {"list": "list_dead_letters", "replay": "replay", "drop": "drop"},
    "notes": {"get": "recall", "put": "remember", "compare_and_swap": "swap"},
    "reports": {"stats": "tallies", "outputs": "outputs", "announce": "announce", "workers": "workers"},
    "seed_keys": {"take": "take_seeds", "settle": "settle_seeds"},
    "partitions": {"of_lease": "lane_of", "unknown": "unknown_of"},
    "catalog": {"jobs": "jobs"},
}  # fmt: skip


class _Part:
    def __init__(self, frontier: Any, methods: dict[str, str]) -> None:
        self._frontier, self._methods = frontier, methods

    def __getattr__(self, name: str) -> Any:
        return getattr(self._frontier, self._methods[name])


class Flat:
    """Gives a backend the attributes of the contract."""

    control: Any = property(lambda self: _Part(self, _METHODS["control"]))
    dead_letters: Any = property(lambda self: _Part(self, _METHODS["dead_letters"]))
    notes: Any = property(lambda self: _Part(self, _METHODS["notes"]))
    reports: Any = property(lambda self: _Part(self, _METHODS["reports"]))
    seed_keys: Any = None
    partitions: Any = None
    catalog: Any = None
    politeness: Any = None


def optional(name: str) -> Any:
    """Return a property for an optional attribute of the contract."""
    return property(lambda self: _Part(self, _METHODS[name]))
