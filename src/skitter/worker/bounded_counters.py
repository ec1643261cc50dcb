"""BoundedCounters: limits how many counter names user code and items may create, over the whole fleet.

A counter is admitted before its first commit. All workers share the admitted names of a group through a note in the
frontier, so more workers or restarts do not add names. Counts under other names are added to one counter of the
group.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from skitter._utils.notes import NOTE_TTL, Notes
from skitter.stats import USER

if TYPE_CHECKING:  # a process without workers does not need it
    from skitter.worker.page import Page

VIOLATIONS = "invalid/"
"""Counters ``invalid/FIELD/KIND``: violations of the schema of items in a field."""
VALUES = "values/"
"""Counters ``values/FIELD/DIGEST``: items with a certain value in a field."""
CLASSES = "item_class/"
"""Counters ``item_class/NAME``: items of a class, in jobs with an output that selects items by class."""
MAX_USER = 100
MAX_VALUES = 1000
"""Values of one field."""
MAX_NAMES = 200
"""Names of other groups."""
OTHERS = "(others)"
"""Last part of the name of the counter that receives all counts under names that were not admitted."""
_NOTE = "skitter:counters:"
_decode = msgspec.msgpack.Decoder(list[str]).decode


class BoundedCounters:
    """Admits counters. ``notes``: shared by all workers of the job."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._admitted: dict[str, set[str]] = {}
        """The admitted names, by group."""

    async def admit(self, pages: Iterable[Page]) -> None:
        """Rename the counters of the pages that are not admitted."""
        wanted: dict[str, set[str]] = {}
        for page in pages:
            for name in page.counters:
                if (group := _group_of(name)) and name not in self._admitted.get(group, ()):
                    wanted.setdefault(group, set()).add(name)
        for group, names in wanted.items():
            await self._add(group, names)
        for page in pages if wanted else ():
            for name in [name for name in page.counters if _group_of(name) in wanted]:
                group = _group_of(name)
                if name not in self._admitted[group]:
                    page.count(group + OTHERS, page.counters.pop(name))

    async def _add(self, group: str, names: set[str]) -> None:
        limit = MAX_USER if group == USER else MAX_VALUES if group.startswith(VALUES) else MAX_NAMES
        if len(self._admitted.get(group, ())) >= limit:
            return
        key = _NOTE + group
        while True:
            old = await self._notes.get(key)
            known = [] if old is None else _decode(old)
            new = sorted(names.difference(known))[: max(0, limit - len(known))]
            self._admitted[group] = {*known, *new}
            if not new or await self._notes.compare_and_swap(
                key, old, msgspec.msgpack.encode([*known, *new]), NOTE_TTL
            ):
                return


def _group_of(name: str) -> str:
    """Return the group of a counter; empty if the number of names like it is not bounded."""
    if name.startswith((USER, VIOLATIONS, CLASSES)):
        return name[: name.index("/") + 1]
    return name[: name.rindex("/") + 1] if name.startswith(VALUES) else ""
