"""Nouns of the service: jobs, their runs, recipes, tasks and nodes, as they stand in its store."""

from __future__ import annotations

import re
import secrets
import time
from typing import Any, Literal, TypeVar

import msgspec

from skitter.errors import FrontierError
from skitter.frontends.tasks.changes import TaskChange

FORMAT = 1
NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
"""What jobs and recipes may be called; the pattern stands in the OpenAPI description, too."""
_T = TypeVar("_T", bound=msgspec.Struct)


class Recipe(msgspec.Struct, kw_only=True):
    """An uploaded recipe."""

    name: str
    text: str
    syntax: Literal["yaml", "toml"] = "yaml"
    stored: float = 0.0
    format: int = FORMAT


class Run(msgspec.Struct, kw_only=True):
    """One crawl of a job: a job of its own on the frontier, named ``id``."""

    id: str
    began: float
    leg: int = 0
    """Raised whenever the run is resumed: how a process of an earlier leg ended says nothing about this one."""
    recipe: Recipe | None = None
    """As it was when the run began: every node runs the same text."""
    ended: Literal["", "finished", "failed"] = ""
    """Final, unless more work is given to it: a stopped run is not ended."""
    ended_at: float = 0.0
    reason: str = ""
    """Why it failed, or why it stopped by itself (a limit)."""


class Job(msgspec.Struct, kw_only=True):
    """A job as it is wanted. What it does is in its run's frontier, who runs it in the notes of the nodes."""

    name: str
    recipe: str = ""
    spider: str = ""
    tasks: bool = False
    """Exactly one of the three says what it runs."""
    arguments: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    workers: int = 1
    """Processes on each node."""
    queues: dict[str, int] = {}
    """As those of :class:`~skitter.run.job.JobSpec`."""
    schedule: str = ""
    """Five cron fields, UTC."""
    wanted: Literal["running", "paused", "stopped"] = "stopped"
    run: Run | None = None
    previous: Run | None = None
    logs: list[str] = []
    """Ids of the runs whose logs are kept, the newest first."""
    due: float | None = None
    """Unix time of the next scheduled start."""
    skipped: int = 0
    """Scheduled starts that were left out because the run before was still under way, or paused."""
    created: float = 0.0
    format: int = FORMAT

    @property
    def is_active(self) -> bool:
        """Whether nodes are to work on it."""
        return self.wanted == "running" and self.run is not None and not self.run.ended


class TaskList(msgspec.Struct, kw_only=True):
    """All lines of the book of a job's run; it only grows."""

    entries: list[TaskChange] = []
    format: int = FORMAT


class Trouble(msgspec.Struct, kw_only=True):
    """Why a node cannot run a job; it tries again."""

    error: str
    remedy: str = ""
    at: float = 0.0


class NodeNote(msgspec.Struct, kw_only=True):
    """What a node tells of itself."""

    host: str
    pid: int
    version: str
    began: float
    running: list[str] = []
    """Ids of the runs that it runs, or is about to run."""
    troubles: dict[str, Trouble] = {}
    """By run."""
    spiders: bool = False
    """Whether it has a folder of spiders."""


def new_run(job: str, recipe: Recipe | None) -> Run:
    """Return a run with an id that no other has, had or will have."""
    return Run(id=f"{job}.{secrets.token_hex(6)}", began=time.time(), recipe=recipe)


def is_name(text: str) -> bool:
    """Tell whether a text can be the name of a job or a recipe."""
    return re.fullmatch(NAME, text) is not None


def decode(data: bytes, kind: type[_T]) -> _T:
    """Read a record. Raises :class:`~skitter.errors.FrontierError` for one of another skitter."""
    try:
        found = msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise FrontierError(
            f"a record of the service cannot be read: {error}", remedy="use the skitter that wrote it"
        ) from error
    if getattr(found, "format", FORMAT) != FORMAT:
        raise FrontierError(
            f"a record of the service has format {getattr(found, 'format', None)}, this skitter reads {FORMAT}",
            remedy="use the skitter that wrote it",
        )
    return found
