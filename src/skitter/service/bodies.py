"""Bodies: what callers of the API send, with all that can be checked without looking at anything else."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from skitter.service.nouns import NAME

Name = Annotated[str, Field(pattern=f"^{NAME}$", max_length=64)]
QueueName = Annotated[str, Field(pattern="^[A-Za-z0-9_-]{1,64}$")]
_Id = Annotated[int, Field(ge=0, lt=2**63)]
Values = Annotated[dict[str, JsonValue], Field(max_length=200)]


class Body(BaseModel):
    """Base: unknown fields are refused, since they are mistakes."""

    model_config = ConfigDict(extra="forbid", strict=True)


class JobBody(Body):
    """A job. One of ``recipe``, ``spider`` and ``tasks`` says what it runs."""

    name: Name
    recipe: Name | None = Field(None, description="Name of an uploaded recipe.")
    spider: str | None = Field(
        None, max_length=500, description="FILE.py or FILE.py:Class in the folder of spiders of the nodes."
    )
    tasks: bool = Field(False, description="It holds many recipes, added as its tasks, and waits for more.")
    arguments: Values = Field({}, description="Variables of the recipe, arguments of the spider.")
    settings: Values = Field({}, description="Settings of the crawl, as in the manual.")
    workers: int = Field(1, ge=1, le=64, description="Processes on each node.")
    queues: dict[QueueName, Annotated[int, Field(ge=0, le=64)]] = Field(
        {},
        max_length=64,
        description="Queues that are served, each with the number of processes on each node that it has for itself;"
        " 0: those of `workers` serve it. Without any, `workers` processes serve all queues.",
    )
    schedule: str = Field("", max_length=200, description="Five cron fields, UTC: when new runs begin.")
    start: bool | None = Field(None, description="Begin at once; by default, if there is no schedule.")


class ScheduleBody(Body):
    """When new runs of a job begin."""

    schedule: str = Field(max_length=200, description="Five cron fields, UTC; empty: at no time.")


class TaskBody(Body):
    """A task: a recipe with its variables."""

    recipe: Name
    arguments: Values = {}
    schedule: str = Field(
        "", max_length=200, description="Five cron fields, UTC: when it begins a round; none before."
    )
    outputs: list[Name] = Field(
        [],
        max_length=20,
        description="Where its items go, by the names that the operator gave (`serve --task-output`); `items` is always"
        " there: a list of its items alone, GET /jobs/NAME/tasks/TASK/items. Without any: where those of the job go.",
    )


class SeedsBody(Body):
    """Seeds: URLs, or objects with ``url`` and other fields of a request."""

    seeds: list[Annotated[str, Field(max_length=8192)] | dict[str, JsonValue]] = Field(
        min_length=1, max_length=10_000
    )
    priority: int = Field(0, ge=-(2**31), lt=2**31)
    callback: str | None = Field(None, max_length=200)


class ChangesBody(Body):
    """Settings that are to hold from now on."""

    settings: Values
    reset: bool = Field(False, description="Forget earlier changes.")


class IdsBody(Body):
    """Which failures are meant: those with these ids, or, without ids, all."""

    ids: list[_Id] | None = Field(None, max_length=10_000)


class Problem(BaseModel):
    """A refusal (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str | None = None
    remedy: str | None = Field(None, description="What to do about it.")
    errors: list[dict[str, Any]] | None = Field(
        None, description="field, message and remedy of each mistake."
    )
