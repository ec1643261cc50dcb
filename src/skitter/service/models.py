"""The records of a service: jobs, their runs, recipes, tasks, and the status of nodes."""

from __future__ import annotations

import math
import re
import secrets
import time
from typing import Any, Literal, TypeVar

import msgspec

from skitter.errors import FrontierError, did_you_mean
from skitter.frontends.tasks.changes import TaskChange, next_scheduled
from skitter.run.passes import MAX_HISTORY, MAX_KNOWN, Passes, PassRecord
from skitter.service.errors import ApiError, NotFound
from skitter.service.storage import KeyValueStore

FORMAT = 2
NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
"""Pattern of the names of jobs and recipes, also part of the OpenAPI description."""


class Record(msgspec.Struct, kw_only=True):
    """Base of everything that is stored. Holds the version of the format."""

    format: int = FORMAT


_T = TypeVar("_T", bound=Record)


class StoredRecipe(Record, kw_only=True):
    """An uploaded recipe."""

    name: str
    text: str
    syntax: Literal["yaml", "toml"] = "yaml"
    stored: float = 0.0
    """Unix time of the upload."""


class JobRun(msgspec.Struct, kw_only=True):
    """One crawl of a job. On the frontier, it is a separate job named ``id``."""

    id: str
    began: float
    """Unix time of the start."""
    attempt: int = 0
    """Incremented each time the run is resumed, so that the end of an earlier process is not taken for the end of this attempt."""
    recipe: StoredRecipe | None = None
    """The recipe when the run started: every node runs the same text."""
    ended: Literal["", "finished", "failed"] = ""
    """Whether the run is over. A stopped run is not over. A finished run continues when it gets more requests."""
    ended_at: float = 0.0
    """Unix time of the end."""
    reason: str = ""
    """Why the run failed, or which limit stopped it."""


class JobRecord(Record, kw_only=True):
    """A job and its wanted state. Its progress is stored in the frontier of its run; nodes announce what they run."""

    name: str
    recipe: str = ""
    spider: str = ""
    tasks: bool = False
    """Exactly one of ``recipe``, ``spider`` and ``tasks`` says what the job runs."""
    arguments: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    workers: int = 1
    """Number of processes on each node."""
    queues: dict[str, int] = {}
    """Number of processes for certain queues, see :class:`~skitter.run.job.JobSpec`."""
    schedule: str = ""
    """Five cron fields, in UTC."""
    wanted: Literal["running", "paused", "stopped"] = "stopped"
    run: JobRun | None = None
    """The newest run."""
    previous: JobRun | None = None
    """The run before it."""
    logs: list[str] = []
    """Ids of the runs whose logs are kept, newest first."""
    due: float | None = None
    """Unix time of the next scheduled start."""
    skipped: int = 0
    """Number of scheduled starts that were skipped because the job was running or paused."""
    created: float = 0.0
    """Unix time of the creation."""

    @property
    def processes(self) -> int:
        """Number of its worker processes on each node."""
        return self.workers + sum(self.queues.values())

    @property
    def is_active(self) -> bool:
        """Whether nodes should run the job."""
        return self.wanted == "running" and self.run is not None and not self.run.ended


class TaskList(Record, kw_only=True):
    """The lines of a job's task file. Lines are only added."""

    job_created: float
    """When the job was created: a later job of the same name starts without tasks."""
    entries: list[TaskChange] = []


class StoredPass(msgspec.Struct, kw_only=True):
    """A pass of a run that has ended."""

    run: str
    """Id of the run."""
    record: PassRecord


class PassHistory(Record, kw_only=True):
    """The passes of a job over all its runs, so that monitors can compare a run with earlier ones."""

    job_created: float
    """When the job was created: a later job of the same name starts without a history."""
    passes: list[StoredPass] = []
    """Newest first."""
    known: dict[str, list[str]] = {}
    unreported: list[int] = []
    """See :class:`~skitter.run.passes.Passes`."""

    def add(self, run: str, passes: Passes) -> None:
        """Add the ended passes of a run. Adding them again changes nothing."""
        others = [kept for kept in self.passes if kept.run != run]
        found = [*(StoredPass(run=run, record=_finite(record)) for record in passes.own), *others]
        found.sort(key=lambda kept: -kept.record.ended)
        self.passes = found[: max(MAX_HISTORY, len(passes.history))]
        for field, values in passes.known.items():
            self.known[field] = list(dict.fromkeys([*self.known.get(field, []), *values]))[:MAX_KNOWN]
        numbers = {kept.record.number for kept in self.passes}
        self.unreported = [number for number in passes.unreported if number in numbers]

    def inherited(self) -> Passes:
        """Return the passes that the next run continues."""
        history = [kept.record for kept in self.passes]
        last = max((record.number for record in history), default=0)
        return Passes(history=history, known=self.known, unreported=self.unreported, inherited=last)


def _finite(record: PassRecord) -> PassRecord:
    """Return a record without infinite values, which JSON cannot represent."""
    verdicts = [
        msgspec.structs.replace(
            verdict, values={name: value for name, value in verdict.values.items() if math.isfinite(value)}
        )
        for verdict in record.verdicts
    ]
    return msgspec.structs.replace(record, verdicts=verdicts)


class NodeError(msgspec.Struct, kw_only=True):
    """Why a node cannot run a job. The node tries again."""

    error: str
    remedy: str = ""
    at: float = 0.0
    """Unix time."""


class NodeStatus(Record, kw_only=True):
    """What a node announces about itself."""

    host: str
    pid: int
    version: str
    began: float
    """Unix time of its start."""
    running: list[str] = []
    """Ids of the runs that it runs or is about to run."""
    errors: dict[str, NodeError] = {}
    """Errors by the id of the run."""
    spiders: bool = False
    """Whether it has a folder of spiders."""


_OfJob = TypeVar("_OfJob", TaskList, PassHistory)


class Records:
    """Typed access to the records in a key-value store."""

    def __init__(self, store: KeyValueStore) -> None:
        self.store = store

    async def job(self, name: str) -> JobRecord:
        """Return a job. Raises :class:`~skitter.service.errors.NotFound` if it does not exist."""
        return (await self.stored_job(name))[0]

    async def stored_job(self, name: str) -> tuple[JobRecord, bytes]:
        """Return a job and its record, for a comparison. Raises :class:`~skitter.service.errors.NotFound`."""
        data = await self.store.get("jobs", name)
        if data is None:
            raise NotFound(f"job {name!r} does not exist", remedy="list the jobs with GET /jobs")
        return decode(data, JobRecord), data

    async def jobs(self) -> list[JobRecord]:
        """Return all jobs, sorted by name."""
        return [decode(data, JobRecord) for data in (await self.store.all("jobs")).values()]

    async def recipe(self, name: str, field: str = "") -> StoredRecipe:
        """Return a recipe.

        Raises :class:`~skitter.service.errors.NotFound` if it does not exist, or, if a ``field`` of a request names it,
        :class:`~skitter.service.errors.ApiError`.
        """
        data = await self.store.get("recipes", name)
        if data is None:
            names = list(await self.store.all("recipes"))
            remedy = did_you_mean(name, names) if names else "upload it with PUT /recipes/NAME"
            kind = ApiError if field else NotFound
            raise kind(f"recipe {name!r} does not exist", remedy=remedy, field=field)
        return decode(data, StoredRecipe)

    async def recipes(self) -> list[StoredRecipe]:
        """Return all recipes, sorted by name."""
        return [decode(data, StoredRecipe) for data in (await self.store.all("recipes")).values()]

    async def tasks(self, job: JobRecord) -> tuple[TaskList, bytes | None]:
        """Return the tasks of a job and their record, for a comparison."""
        return await self._of_job("tasks", job, TaskList)

    async def passes(self, job: JobRecord) -> tuple[PassHistory, bytes | None]:
        """Return the history of a job and its record, for a comparison."""
        return await self._of_job("passes", job, PassHistory)

    async def _of_job(self, kind: str, job: JobRecord, record: type[_OfJob]) -> tuple[_OfJob, bytes | None]:
        """Return a record of a job and its stored bytes. The record is empty if none exists, or if it is of a deleted job."""
        data = await self.store.get(kind, job.name)
        found = None if data is None else decode(data, record)
        if found is None or found.job_created != job.created:
            found = record(job_created=job.created)
        return found, data

    async def nodes(self) -> dict[str, NodeStatus]:
        """Return the live nodes."""
        return {name: decode(status, NodeStatus) for name, status in (await self.store.nodes()).items()}


def own_size(tasks: TaskList, data: bytes | None) -> int:
    """Return the size of the record of these tasks; 0 if they have none, or if it belongs to a deleted job of the same name."""
    return len(data) if data is not None and tasks.entries else 0


def new_run(job: str, recipe: StoredRecipe | None) -> JobRun:
    """Return a new run with a unique id."""
    return JobRun(id=f"{job}.{secrets.token_hex(6)}", began=time.time(), recipe=recipe)


def job_of(run: str) -> str:
    """Return the name of the job that a run belongs to."""
    return run.rpartition(".")[0]


def next_start(schedule: str, now: float) -> float | None:
    """Return the next time of a schedule after ``now``; ``None`` without a schedule.

    Raises :class:`~skitter.errors.UsageError` for an invalid schedule.
    """
    return next_scheduled(schedule, now) if schedule else None


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a job or a recipe."""
    return re.fullmatch(NAME, text) is not None


def decode(data: bytes, kind: type[_T]) -> _T:
    """Decode a record. Raises :class:`~skitter.errors.FrontierError` for the record of another version."""
    try:
        found = msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise FrontierError(
            f"cannot read a record of the service: {error}", remedy="use the version of skitter that wrote it"
        ) from error
    if found.format != FORMAT:
        raise FrontierError(
            f"a record of the service has format {found.format}; this version of skitter reads format {FORMAT}",
            remedy="use the version of skitter that wrote it, or start with an empty store",
            field="format",
        )
    return found
