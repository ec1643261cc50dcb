"""Request bodies and parameters of the API, with all checks that depend only on the request."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from skitter.service.models import NAME

Name = Annotated[str, Field(pattern=f"^{NAME}$", max_length=64)]
QueueName = Annotated[str, Field(pattern="^[A-Za-z0-9_-]{1,64}$")]
Values = Annotated[dict[str, JsonValue], Field(max_length=200)]
NamePath = Annotated[str, Path(pattern=f"^{NAME}$", max_length=64)]
TaskPath = Annotated[str, Path(max_length=200)]
AfterQuery = Annotated[
    str | None, Query(pattern=r"^[0-9]{1,15}\.[0-9]{1,9}$", description="`next` of the previous answer.")
]
RunQuery = Annotated[
    str | None, Query(max_length=100, description="Id of a run. Default: the newest run of the job.")
]
LimitQuery = Annotated[int, Query(ge=1, le=1000, description="Maximum number of items.")]


class RequestBody(BaseModel):
    """Base of all request bodies. Unknown fields are rejected because they are mistakes."""

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
    schedule: str = Field(
        "",
        max_length=200,
        description="When new runs start: five cron fields, in UTC. Empty: only on request.",
    )
    start: bool | None = Field(
        None, description="Whether to start a run at once. Default: yes, unless there is a schedule."
    )


class ScheduleRequest(RequestBody):
    """A new schedule of a job."""

    schedule: str = Field(
        max_length=200, description="When new runs start: five cron fields, in UTC. Empty: only on request."
    )


class TaskRequest(RequestBody):
    """A new task: a recipe with its variables."""

    recipe: Name
    arguments: Values = Field({}, description="Variables of the recipe.")
    schedule: str = Field(
        "",
        max_length=200,
        description="When the task starts a round: five cron fields, in UTC. The task waits for the first time.",
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


class FailuresRequest(RequestBody):
    """Failed requests, by id."""

    ids: list[Annotated[int, Field(ge=0, lt=2**63)]] | None = Field(
        None, max_length=10_000, description="Ids of the failures. Default: all failures."
    )


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
        description="Whether to continue with new lines until no node works on the run. An empty line is a sign of life.",
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
