"""The lines of a task file, the task states that they result in, and the cron schedules of recrawls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import count
from typing import Any, Literal

import msgspec

from skitter.errors import UsageError
from skitter.plugins import need

ChangeKind = Literal["pause", "resume", "close"]

_CRON_FIELDS = 5
_MINUTE = 60


class TaskChange(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One line of a task file: a task is added, paused, resumed or closed, or a recrawl of it starts."""

    task: str
    """Key of the task: its name, or the name and a number if a closed task had the name before."""
    name: str = ""
    """Name of the task that the line adds. Empty: its key."""
    file: str = ""
    """Name of the recipe's file, for messages."""
    text: str = ""
    """The recipe, if the line adds one."""
    spider: str = ""
    """The spider that defines the task, if the line adds a task in Python."""
    variables: dict[str, Any] = {}
    outputs: list[str] = []
    """Outputs of the task's items. Empty: the outputs of the job."""
    reload: float | None = None
    """Length of a period in seconds. A recrawl starts in each period."""
    schedule: str = ""
    """Times of the recrawls: five cron fields, in UTC."""
    closed: bool = False
    paused: bool | None = None
    """``True`` pauses the task, ``False`` resumes it."""
    recrawl: int | None = msgspec.field(default=None, name="round")
    """Number of the recrawl that starts. The stored name is ``round``."""
    at: float = 0.0
    """Unix time of the line; 0 where the time has no meaning."""

    @property
    def adds(self) -> bool:
        """Whether the line adds a task."""
        return bool(self.text or self.spider)


class TaskState(msgspec.Struct, kw_only=True):
    """The state of a task after all changes to it."""

    task: str
    """Key of the task."""
    name: str
    file: str
    """The recipe's file, or the spider that defines the task."""
    variables: dict[str, Any]
    outputs: list[str]
    reload: float | None
    schedule: str
    state: Literal["open", "paused", "closed"] = "open"
    since: float = 0.0
    """Unix time from which the schedule applies: when the task was added, or last resumed."""
    recrawls: set[int] = set()

    def due_recrawl(self, now: float) -> int | None:
        """Return the recrawl that is due, or ``None``. Recrawls that were missed earlier are skipped."""
        number = None
        if self.reload is not None:
            number = int(now // self.reload)
        elif self.schedule and (moment := last_scheduled(self.schedule, now)) > self.since:
            number = int(moment)
        return number if self.state == "open" and number not in self.recrawls else None


def task_states(changes: Iterable[TaskChange]) -> dict[str, TaskState]:
    """Return the state of each task by key, in the order in which the tasks were added."""
    states: dict[str, TaskState] = {}
    for change in changes:
        if change.adds:
            states[change.task] = TaskState(
                task=change.task, name=change.name or change.task, file=change.file or change.spider, variables=change.variables, outputs=change.outputs,
                reload=change.reload, schedule=change.schedule, since=change.at,
            )  # fmt: skip
        elif (state := states.get(change.task)) is not None:
            if change.recrawl is not None:
                state.recrawls.add(change.recrawl)
            if change.closed:
                state.state = "closed"
            elif change.paused is not None and state.state != "closed":
                state.state = "paused" if change.paused else "open"
                state.since = state.since if change.paused else change.at
    return states


def tasks_by_name(changes: Iterable[TaskChange]) -> dict[str, TaskState]:
    """Return the state of each task by name. If several tasks had the same name, the last one is returned."""
    return {state.name: state for state in task_states(changes).values()}


def with_key(change: TaskChange, changes: Sequence[TaskChange]) -> TaskChange:
    """Return the line that adds a task, with a key that no task had before.

    Raises :class:`ValueError` if a task of this name is not closed.
    """
    tasks = tasks_by_name(changes)
    if change.task in tasks and tasks[change.task].state != "closed":
        raise ValueError(change.task)
    taken = {earlier.task for earlier in changes}
    if change.task not in taken:
        return change
    number = next(number for number in count(2) if f"{change.task}~{number}" not in taken)
    return msgspec.structs.replace(change, task=f"{change.task}~{number}", name=change.task)


def change_for(task: str, changes: Iterable[TaskChange], kind: ChangeKind, now: float) -> TaskChange | None:
    """Return the line that pauses, resumes or closes the task of a name; ``None`` if the task is already in that state.

    Raises :class:`KeyError` for an unknown task, and :class:`ValueError` for a closed one.
    """
    found = tasks_by_name(changes)[task]
    state = found.state
    target = {"pause": "paused", "resume": "open", "close": "closed"}[kind]
    if state == target:
        return None
    if state == "closed":
        raise ValueError(task)
    if kind == "close":
        return TaskChange(task=found.task, closed=True, at=now)
    return TaskChange(task=found.task, paused=kind == "pause", at=now)


def next_scheduled(schedule: str, after: float) -> float:
    """Return the first Unix time after ``after`` of a schedule: five cron fields, in UTC.

    Raises :class:`~skitter.errors.UsageError` for an invalid schedule.
    """
    return _scheduled(schedule, after, reverse=False)


def _scheduled(schedule: str, moment: float, *, reverse: bool) -> float:
    """Return the next scheduled time after a moment; with ``reverse``, the last one before it."""
    cronsim: Any = need("cronsim", "service", "schedules")
    try:
        if len(schedule.split()) != _CRON_FIELDS:
            raise cronsim.CronSimError("expected five fields")  # noqa: TRY301 - reported like any other error
        moments = cronsim.CronSim(schedule, datetime.fromtimestamp(moment, UTC), reverse=reverse)
        found: float = next(moments).timestamp()
    except (cronsim.CronSimError, StopIteration, ValueError) as error:
        raise UsageError(
            f"invalid schedule {schedule!r:.100}: {error or 'it has no time'}",
            remedy="write five cron fields (UTC), such as 30 4 * * 1-5",
            field="schedule",
        ) from None
    return found


def check_schedule(schedule: str, task: str, reload: float | None) -> None:
    """Raise :class:`~skitter.errors.UsageError` for an invalid schedule, and for a task that has ``reload`` as well."""
    if schedule:
        next_scheduled(schedule, 0.0)
        if reload is not None:
            raise UsageError(
                f"task {task!r} has both reload and a schedule", remedy="remove one of them", field="schedule"
            )


def last_scheduled(schedule: str, now: float) -> float:
    """Return the last time of a schedule that is not after ``now``. Cached, so it can be called often."""
    return _last_by_minute(schedule, int(now // _MINUTE))


@lru_cache(maxsize=10_000)
def _last_by_minute(schedule: str, minute: int) -> float:
    return _scheduled(schedule, minute * _MINUTE + 1, reverse=True)
