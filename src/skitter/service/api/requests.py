"""Request bodies and parameters of the API, with all checks that depend only on the request."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Depends, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from skitter.observe.dead_letters import DeadLetterFilter
from skitter.service.api.access import Caller
from skitter.service.api.auth import CALLER_KEY, RequestIdentity
from skitter.service.errors import ApiError
from skitter.service.inspection import HostOrder
from skitter.service.models import NAME

_FOLLOW_TEXT = "Whether to continue with an event for each change, at most one per second, for ten minutes."


def identity_of(request: Request) -> RequestIdentity:
    """Return who makes a request, as identified by the middleware."""
    identity: RequestIdentity = request.scope[CALLER_KEY]
    return identity


def caller_of(request: Request) -> Caller:
    """Return the caller who makes a request."""
    return identity_of(request).caller


async def recipe_text(request: Request) -> tuple[str, Literal["yaml", "toml"]]:
    """Return the text of a recipe in the body of a request, and its syntax. Raises :class:`ApiError`."""
    try:
        text = (await request.body()).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ApiError(
            f"the recipe is not encoded in UTF-8: {error.reason}", remedy="send UTF-8", field="body"
        ) from None
    return text, "toml" if "toml" in request.headers.get("content-type", "") else "yaml"


IdentityParam = Annotated[RequestIdentity, Depends(identity_of)]
CallerParam = Annotated[Caller, Depends(caller_of)]

Name = Annotated[str, Field(pattern=f"^{NAME}$", max_length=64)]
QueueName = Annotated[str, Field(pattern="^[A-Za-z0-9_-]{1,64}$")]
Values = Annotated[dict[str, JsonValue], Field(max_length=200)]
Schedule = Annotated[
    str,
    Field(
        max_length=200, description="When new runs start: five cron fields, in UTC. Empty: only on request."
    ),
]
JobPath = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
"""Name of a job that exists: outside of a service, names may have dots and up to 100 characters."""
NamePath = Annotated[str, Path(pattern=f"^{NAME}$", max_length=64)]
TaskPath = Annotated[str, Path(max_length=200)]
AfterQuery = Annotated[
    str | None, Query(pattern=r"^[0-9]{1,15}\.[0-9]{1,9}$", description="`next` of the previous response.")
]
RunQuery = Annotated[
    str | None, Query(max_length=100, description="Id of a run. Default: the newest run of the job.")
]
LimitQuery = Annotated[int, Query(ge=1, le=1000, description="Maximum number of items.")]
FollowQuery = Annotated[bool, Query(description=_FOLLOW_TEXT)]


class RequestBody(BaseModel):
    """Base of all request bodies. Unknown fields are rejected, because they are usually mistakes."""

    model_config = ConfigDict(extra="forbid", strict=True)


class JobRequest(RequestBody):
    """A new job. Exactly one of `recipe`, `spider` and `tasks` says what it runs."""

    name: Name
    recipe: Name | None = Field(None, description="Name of an uploaded recipe.")
    spider: str | None = Field(
        None,
        max_length=500,
        description="FILE.py or FILE.py:Class, below the folder of spiders of the nodes.",
    )
    tasks: bool = Field(
        False,
        description="Whether the job holds tasks, which are recipes added later. It waits for new tasks.",
    )
    arguments: Values = Field({}, description="Variables of the recipe, or arguments of the spider.")
    settings: Values = Field({}, description="Settings of the crawl.")
    workers: int = Field(1, ge=1, le=64, description="Number of processes on each node.")
    queues: dict[QueueName, Annotated[int, Field(ge=0, le=64)]] = Field(
        {},
        max_length=64,
        description="Queues to serve, each with the number of processes on each node that serve only this queue."
        " With 0, the processes of `workers` serve it. Default: the processes of `workers` serve all queues.",
    )
    schedule: Schedule = ""
    start: bool | None = Field(
        None, description="Whether to start a run at once. Default: yes, unless there is a schedule."
    )


class ScheduleRequest(RequestBody):
    """A new schedule of a job."""

    schedule: Schedule


class TaskRequest(RequestBody):
    """A new task: a recipe with its variables, or a task that a spider of the operator defines in Python."""

    recipe: Name | None = None
    spider: str | None = Field(
        None,
        max_length=500,
        description="Instead of a recipe: a TaskSpider below the folder of `serve --spiders`, such as shop.py:Shop.",
    )
    task: str | None = Field(None, max_length=200, description="With `spider`: the name of the task.")
    arguments: Values = Field({}, description="Variables of the recipe.")
    schedule: str = Field(
        "",
        max_length=200,
        description="When a recrawl of the task starts: five cron fields, in UTC. Until the first of these times, the task does nothing.",
    )
    outputs: list[Name] = Field(
        [],
        max_length=20,
        description="Outputs of the task, by the names that the operator has given them (`serve --task-output`)."
        " `items` always exists: a list with the items of this task, GET /jobs/NAME/tasks/TASK/items."
        " Default: the outputs of the job.",
    )


class SeedsRequest(RequestBody):
    """Seeds to add: URLs, or objects with `url` and other fields of a request."""

    seeds: list[Annotated[str, Field(max_length=8192)] | dict[str, JsonValue]] = Field(
        min_length=1, max_length=10_000
    )
    priority: int = Field(
        0, ge=-(2**31), lt=2**31, description="Priority of seeds that do not set one; higher first."
    )
    callback: str | None = Field(
        None, max_length=200, description="Callback of seeds that do not set one. Default: the spider's."
    )


class SettingsRequest(RequestBody):
    """Settings to change while the job runs."""

    settings: Values
    reset: bool = Field(False, description="Whether to discard all earlier changes.")


class FailureSelection(BaseModel):
    """Fields that select failed requests."""

    kind: str | None = Field(
        None,
        max_length=100,
        description="Kind of error, such as timeout or status/404, or status for all statuses.",
    )
    contains: str = Field(
        "",
        max_length=200,
        description="Only failures whose URL or error contains this text; case is ignored.",
    )

    def filter(self) -> DeadLetterFilter:
        """Return the selection as a filter."""
        return DeadLetterFilter(self.kind, self.contains)


class FailuresRequest(FailureSelection):
    """Failed requests, by id, or by kind and text."""

    model_config = RequestBody.model_config
    ids: list[Annotated[int, Field(ge=0, lt=2**63)]] | None = Field(
        None, max_length=10_000, description="Ids of the failures. Default: all failures that `kind` and `contains` select."
    )  # fmt: skip


class FailuresQuery(FailureSelection):
    """Parameters that select failed requests."""

    after: int = Field(0, ge=0, lt=2**53, description="Only failures with higher ids.")
    limit: int = Field(100, ge=1, le=1000, description="Maximum number of failures.")


class JobsQuery(BaseModel):
    """Parameters of the list of jobs. Without them, the list contains all jobs."""

    contains: str = Field("", max_length=100, description="Only jobs whose names contain this text.")
    state: Literal[
        "new", "scheduled", "waiting", "running", "pausing", "paused", "stopping", "stopped", "finished", "failed"
    ] | None = Field(None, description="Only jobs in this state.")  # fmt: skip
    offset: int = Field(0, ge=0, lt=2**31, description="Number of jobs to skip.")
    limit: int | None = Field(None, ge=1, le=1000, description="Maximum number of jobs. Default: all.")
    figures: bool = Field(
        False, description="Whether to add the figures of each listed job, such as pages and items."
    )


class JobsEventsQuery(JobsQuery):
    """Parameters of the events of the list of jobs."""

    follow: bool = Field(False, description=_FOLLOW_TEXT)


class HostsQuery(BaseModel):
    """Parameters of the list of hosts."""

    order: HostOrder = Field(
        "pages",
        description="Order, largest first. `failures` is the share of failed requests, `fetch_time` the mean"
        " time to the first byte in seconds. `queued` and `delay` are known for hosts with requests.",
    )
    contains: str = Field("", max_length=200, description="Only hosts whose names contain this text.")
    offset: int = Field(0, ge=0, lt=2**31, description="Number of hosts to skip.")
    limit: int = Field(100, ge=1, le=1000, description="Maximum number of hosts.")


class TrialRequest(RequestBody):
    """A recipe to try on one page."""

    text: str = Field(max_length=500_000, description="Text of the recipe.")
    syntax: Literal["yaml", "toml"] = "yaml"
    url: str | None = Field(None, max_length=8192, description="Page to fetch. Default: the first start URL.")
    page: str = Field(
        "", max_length=100, description="Kind of the page, a name below `pages`. Default: the first kind."
    )
    arguments: Values = Field({}, description="Variables of the recipe.")


class LogQuery(BaseModel):
    """Parameters that select lines of a log."""

    run: str | None = Field(
        None, max_length=100, description="Id of a run, one of `logs` of the job. Default: the newest run."
    )
    level: Literal["debug", "info", "warning", "error", "critical"] = Field(
        "debug", description="Lowest level."
    )
    contains: str = Field(
        "", max_length=200, description="Only lines that contain this text, such as a URL; case is ignored."
    )
    after: int = Field(0, ge=0, lt=2**53, description="Only lines with higher numbers.")
    last: int | None = Field(None, ge=1, le=1000, description="Only this number of lines, the last ones.")


class LogPageQuery(LogQuery):
    """Parameters of one page of a log."""

    limit: int = Field(
        100, ge=1, le=1000, description="Maximum number of lines, the first ones; ignored if `last` is given."
    )


class LogStreamQuery(LogQuery):
    """Parameters of a response with all lines."""

    follow: bool = Field(
        False,
        description="Whether to continue with new lines until no node works on the run. An empty line is a keep-alive.",
    )


class ProblemDocument(BaseModel):
    """A refused request (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str | None = Field(None, description="What is wrong.")
    remedy: str | None = Field(None, description="What to do about it.")
    errors: list[dict[str, Any]] | None = Field(
        None, description="The field, message and remedy of each mistake."
    )
