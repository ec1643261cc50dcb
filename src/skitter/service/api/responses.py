"""The JSON bodies of successful responses, for the OpenAPI description. The routes build them as plain objects."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from fastapi import FastAPI
from msgspec import UNSET, Meta, UnsetType

from skitter.frontier.records import FrontierStatus
from skitter.frontier.workers import WorkerStatus
from skitter.monitors import Verdict
from skitter.run.passes import PassRecord
from skitter.service.items import ItemPage
from skitter.service.models import NodeError
from skitter.service.recipe_trial import TrialResult

_Time = Annotated[float, Meta(description="Unix time.")]
_Text = Annotated[str, Meta(description="Empty if there is none.")]


class Health(msgspec.Struct):
    """Whether a node can reach its store."""

    status: str


class LiveNode(msgspec.Struct):
    """A live node."""

    name: str
    host: str
    pid: int
    version: str
    began: _Time
    running: Annotated[list[str], Meta(description="Ids of the runs that it runs or is about to run.")]
    errors: Annotated[dict[str, NodeError], Meta(description="Errors by the id of the run.")]
    spiders: Annotated[bool, Meta(description="Whether it has a folder of spiders.")]


class NodeList(msgspec.Struct):
    """The live nodes."""

    nodes: list[LiveNode]


class RecipeInfo(msgspec.Struct):
    """A recipe without its text."""

    name: str
    syntax: Literal["yaml", "toml"]
    stored: Annotated[float, Meta(description="Unix time of the upload.")]


class RecipeText(RecipeInfo):
    """A recipe."""

    text: str


class RecipeList(msgspec.Struct):
    """The recipes, by name."""

    recipes: list[RecipeInfo]


class CheckResult(msgspec.Struct):
    """The result of a check of a recipe."""

    valid: bool
    errors: Annotated[list[str], Meta(description="The mistakes, each with its line.")]
    remedy: _Text


class Percentiles(msgspec.Struct):
    """Percentiles of the fetch time, in seconds."""

    p50: float
    p95: float
    p99: float


class Figures(msgspec.Struct):
    """The figures of a run at one moment."""

    at: _Time
    pages: int
    items: int
    bytes: int
    queued: int
    delayed: int
    leased: int
    failed: int
    errors: Annotated[dict[str, int], Meta(description="Failed attempts by kind.")]
    workers: int
    pages_per_second: float
    latency: Percentiles | UnsetType | None = UNSET


class RunInfo(msgspec.Struct):
    """A run of a job."""

    id: str
    began: _Time
    ended: Annotated[
        Literal["", "finished", "failed"],
        Meta(description="Empty while the run is not over. A stopped run is not over."),
    ]
    ended_at: Annotated[float, Meta(description="Unix time; 0 while the run is not over.")]
    reason: Annotated[str, Meta(description="Why the run failed, or which limit stopped it.")]


class Job(msgspec.Struct):
    """A job."""

    name: str
    recipe: Annotated[str, Meta(description="Empty for a job of a spider, or with tasks.")]
    spider: Annotated[str, Meta(description="Empty for a job of a recipe, or with tasks.")]
    tasks: bool
    arguments: dict[str, Any]
    settings: dict[str, Any]
    workers: Annotated[int, Meta(description="Number of processes on each node.")]
    queues: dict[str, int]
    schedule: Annotated[str, Meta(description="Five cron fields, in UTC; empty: only on request.")]
    wanted: Literal["running", "paused", "stopped"]
    run: Annotated[RunInfo | None, Meta(description="The newest run.")]
    previous: Annotated[RunInfo | None, Meta(description="The run before it.")]
    logs: Annotated[list[str], Meta(description="Ids of the runs whose logs are kept, newest first.")]
    due: Annotated[float | None, Meta(description="Unix time of the next scheduled start.")]
    skipped: Annotated[
        int, Meta(description="Scheduled starts that were skipped because the job was running or paused.")
    ]
    created: _Time
    state: Literal[
        "new", "scheduled", "waiting", "running", "pausing", "paused", "stopping", "stopped", "finished", "failed"
    ]  # fmt: skip
    nodes: Annotated[list[str], Meta(description="The nodes that run the job.")]
    node_errors: Annotated[
        dict[str, NodeError], Meta(description="Why nodes cannot run the job, by their names.")
    ]


class ListedJob(Job):
    """A job in a list."""

    figures: Figures | UnsetType | None = UNSET


class JobList(msgspec.Struct):
    """The selected jobs."""

    jobs: list[ListedJob]
    total: Annotated[int, Meta(description="Number of all selected jobs, on all pages.")]
    states: Annotated[dict[str, int], Meta(description="Number of jobs by state.")]


class JobDetails(Job):
    """A job with what its frontier knows about the newest run. These fields are missing before a node has started the run."""

    counts: FrontierStatus | UnsetType | None = UNSET
    fleet: Annotated[list[WorkerStatus], Meta(description="The live workers on all nodes.")] | UnsetType = (
        UNSET
    )
    changes: dict[str, Any] | UnsetType = UNSET
    banned: list[str] | UnsetType = UNSET
    violated: list[Verdict] | UnsetType = UNSET
    passes: list[PassRecord] | UnsetType = UNSET
    latency: Percentiles | UnsetType | None = UNSET
    queues_without_workers: dict[str, int] | UnsetType = UNSET


class SeedCounts(msgspec.Struct):
    """How many seeds were added."""

    added: int
    known: Annotated[int, Meta(description="Seeds that the run knew before.")]
    banned: Annotated[int, Meta(description="Seeds of banned hosts, which are not stored.")]
    over_budget: Annotated[
        int, Meta(description="Seeds of hosts whose budgets are used up, which are not stored.")
    ]


class TaskInfo(msgspec.Struct):
    """A task of a job."""

    task: str
    state: Literal["open", "paused", "closed"]
    arguments: dict[str, Any]
    outputs: list[str]
    schedule: str
    reload: Annotated[float | None, Meta(description="Seconds between two recrawls.")]
    recrawls: Annotated[int, Meta(description="Number of recrawls that were started.")]
    due: Annotated[float | None, Meta(description="Unix time of the next scheduled recrawl.")]


class TaskInfoList(msgspec.Struct):
    """The tasks of a job."""

    tasks: list[TaskInfo]


class AddedTask(msgspec.Struct):
    """The name of a new task."""

    task: str


class LogEntry(msgspec.Struct):
    """A line of a log."""

    number: int
    time: Annotated[str, Meta(description="RFC 3339, in UTC.")]
    level: str
    logger: str
    node: str
    worker: _Text
    message: str
    traceback: str | UnsetType = UNSET
    fields: dict[str, Any] | UnsetType = UNSET


class LogEntries(msgspec.Struct):
    """Lines of the log of a run."""

    run: str
    lines: list[LogEntry]
    next: Annotated[int, Meta(description="Value of `after` for the next call.")]


class HostFigures(msgspec.Struct):
    """A host of a job."""

    host: str
    pages: int
    items: int
    bytes: int
    failed: int
    retried: int
    failures: Annotated[float, Meta(description="Share of failed requests.")]
    fetch_time: Annotated[float | None, Meta(description="Mean time to the first byte, in seconds.")]
    queued: int | None
    leased: int | None
    delay: Annotated[float | None, Meta(description="Delay between two fetches, in seconds.")]
    paused_for: Annotated[float | None, Meta(description="Remaining pause, in seconds.")]


class HostList(msgspec.Struct):
    """Hosts of a job."""

    hosts: list[HostFigures]
    total: Annotated[int, Meta(description="Number of all selected hosts, on all pages.")]


class Failure(msgspec.Struct):
    """A failed request."""

    id: int
    url: str
    error: str
    attempts: int
    lost: Annotated[int, Meta(description="Attempts whose worker died.")]
    failed_at: Annotated[str, Meta(description="Date and time in UTC.")]
    slot: str
    fingerprint: str
    request: dict[str, Any] | None
    traceback: str | UnsetType = UNSET
    request_error: Annotated[str, Meta(description="Why `request` is null.")] | UnsetType = UNSET


class FailureList(msgspec.Struct):
    """Failed requests of a job, sorted by id."""

    failures: list[Failure]


class QueuedFailures(msgspec.Struct):
    """How many failed requests were queued again."""

    queued: int


class DroppedFailures(msgspec.Struct):
    """How many failed requests were dropped."""

    dropped: int


class SettingInfo(msgspec.Struct):
    """A setting that jobs may have."""

    name: str
    type: str
    default: Any
    help: str
    unit: _Text
    min: float | None
    above: Annotated[float | None, Meta(description="The value must be greater than this.")]
    max: float | None
    live: Annotated[bool, Meta(description="Whether it can change during a run.")]


class SettingList(msgspec.Struct):
    """The settings that jobs may have."""

    settings: list[SettingInfo]


class SettingChanges(msgspec.Struct):
    """The changed settings of a run."""

    changes: dict[str, Any]


class SessionInfo(msgspec.Struct):
    """The caller, and its session if it called with a cookie."""

    name: str
    scope: Literal["read", "operate", "admin"]
    jobs: Annotated[list[str], Meta(description="Names of jobs that the token may use; empty: all.")]
    csrf: Annotated[str | None, Meta(description="Value of the header `csrf_header` in calls with a cookie.")]
    csrf_header: str
    expires: Annotated[float | None, Meta(description="Unix time of the end of the session.")]
    features: list[str]


class AuditRecord(msgspec.Struct):
    """An entry of the audit log."""

    number: int
    time: _Time
    caller: str
    session: Annotated[bool, Meta(description="Whether the call came from the console.")]
    node: str
    method: str
    path: str
    status: int
    details: dict[str, Any]


class AuditRecords(msgspec.Struct):
    """Entries of the audit log, newest first."""

    entries: list[AuditRecord]
    next: Annotated[int | None, Meta(description="Value of `before` for the next call.")]


_RESPONSES: dict[tuple[str, str], type] = {
    ("get", "/health"): Health,
    ("get", "/nodes"): NodeList,
    ("get", "/recipes"): RecipeList,
    ("put", "/recipes/{name}"): RecipeInfo,
    ("get", "/recipes/{name}"): RecipeText,
    ("post", "/recipes/{name}/check"): CheckResult,
    ("post", "/recipes/{name}/try"): TrialResult,
    ("post", "/jobs"): Job,
    ("get", "/jobs"): JobList,
    ("get", "/jobs/{name}"): JobDetails,
    ("put", "/jobs/{name}/schedule"): Job,
    ("post", "/jobs/{name}/start"): Job,
    ("post", "/jobs/{name}/pause"): Job,
    ("post", "/jobs/{name}/resume"): Job,
    ("post", "/jobs/{name}/stop"): Job,
    ("get", "/jobs/{name}/items"): ItemPage,
    ("post", "/jobs/{name}/seeds"): SeedCounts,
    ("get", "/jobs/{name}/tasks"): TaskInfoList,
    ("post", "/jobs/{name}/tasks"): AddedTask,
    ("get", "/jobs/{name}/tasks/{task}/items"): ItemPage,
    ("post", "/jobs/{name}/tasks/{task}/pause"): TaskInfo,
    ("post", "/jobs/{name}/tasks/{task}/resume"): TaskInfo,
    ("get", "/jobs/{name}/log"): LogEntries,
    ("get", "/jobs/{name}/hosts"): HostList,
    ("get", "/jobs/{name}/failures"): FailureList,
    ("post", "/jobs/{name}/failures/retry"): QueuedFailures,
    ("post", "/jobs/{name}/failures/drop"): DroppedFailures,
    ("get", "/settings"): SettingList,
    ("patch", "/jobs/{name}/settings"): SettingChanges,
    ("get", "/session"): SessionInfo,
    ("post", "/session"): SessionInfo,
    ("get", "/audit"): AuditRecords,
}
"""The body of each successful response in JSON, by method and path."""


class DescribedApi(FastAPI):
    """An application whose OpenAPI description contains the bodies of responses."""

    def openapi(self) -> dict[str, Any]:
        """Return the description."""
        if self.openapi_schema is None:
            found = super().openapi()
            kinds = list(dict.fromkeys(_RESPONSES.values()))
            schemas, components = msgspec.json.schema_components(
                kinds, ref_template="#/components/schemas/{name}"
            )
            found["components"]["schemas"].update(components)
            schema_of = dict(zip(kinds, schemas, strict=True))
            for (method, path), kind in _RESPONSES.items():
                for status, response in found["paths"][path][method]["responses"].items():
                    if status.startswith("2"):
                        response["content"] = {"application/json": {"schema": schema_of[kind]}}
        return super().openapi()
