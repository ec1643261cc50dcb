"""Entries of a book of tasks, and what they say together about each task."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from skitter.frontends.tasks.schedule import last_of

type_of_change = Literal["pause", "resume", "close"]


class Entry(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One line: a task is added, paused, resumed or closed, or begins a round."""

    task: str
    file: str = ""
    """Name of the recipe that it is made from, for its messages."""
    text: str = ""
    """The recipe; empty in lines that add nothing."""
    variables: dict[str, Any] = {}
    outputs: list[str] = []
    """Where its items go, in place of the outputs of the job; empty: to those."""
    reload: float | None = None
    """Seconds of a period in each of which it begins a round."""
    schedule: str = ""
    """Five cron fields, UTC: when it begins a round."""
    closed: bool = False
    paused: bool | None = None
    """``True``: nothing of it is fetched from now on; ``False``: it goes on."""
    round: int | None = None
    at: float = 0.0
    """Unix time of the line; 0 where it does not matter."""


class Standing(msgspec.Struct, kw_only=True):
    """A task as all lines about it say."""

    task: str
    file: str
    variables: dict[str, Any]
    outputs: list[str]
    reload: float | None
    schedule: str
    state: Literal["open", "paused", "closed"] = "open"
    since: float = 0.0
    """Unix time from which on its schedule holds: when it was added, or resumed last."""
    rounds: set[int] = set()

    def due_round(self, now: float) -> int | None:
        """Return the round that it is time to begin, if there is one: what was missed before it is left out."""
        number = None
        if self.reload is not None:
            number = int(now // self.reload)
        elif self.schedule and (moment := last_of(self.schedule, now)) > self.since:
            number = int(moment)
        return number if self.state == "open" and number not in self.rounds else None


def standings(entries: Iterable[Entry]) -> dict[str, Standing]:
    """Return every task that the lines name, in the order in which they were added."""
    found: dict[str, Standing] = {}
    for entry in entries:
        if entry.text:
            found[entry.task] = Standing(
                task=entry.task, file=entry.file, variables=entry.variables, outputs=entry.outputs,
                reload=entry.reload, schedule=entry.schedule, since=entry.at,
            )  # fmt: skip
        elif entry.task in found:
            _apply(entry, found[entry.task])
    return found


def _apply(entry: Entry, standing: Standing) -> None:
    if entry.round is not None:
        standing.rounds.add(entry.round)
    if entry.closed:
        standing.state = "closed"
    elif entry.paused is not None and standing.state != "closed":
        standing.state = "paused" if entry.paused else "open"
        if not entry.paused:
            standing.since = entry.at


def change_of(task: str, entries: Iterable[Entry], change: type_of_change, now: float) -> Entry | None:
    """Return the line that changes a task, or ``None`` if it is so already.

    Raises :class:`KeyError` for a task that no line names, and :class:`ValueError` for one that is closed for good.
    """
    state = standings(entries)[task].state
    wanted = {"pause": "paused", "resume": "open", "close": "closed"}[change]
    if state == wanted:
        return None
    if state == "closed":
        raise ValueError(task)
    if change == "close":
        return Entry(task=task, closed=True, at=now)
    return Entry(task=task, paused=change == "pause", at=now)
