"""The routes of tasks and logs, and responses with many items."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Query, Response
from fastapi.responses import StreamingResponse

from skitter.frontends.tasks.changes import TaskState
from skitter.secrets import stored_arguments
from skitter.service.api.requests import (
    AfterQuery,
    CallerParam,
    LimitQuery,
    LogPageQuery,
    LogQuery,
    LogStreamQuery,
    NamePath,
    TaskPath,
    TaskRequest,
)
from skitter.service.errors import ApiError, NotFound
from skitter.service.items import ItemPage
from skitter.service.jobs import JobService
from skitter.service.logs import LogView, NumberedLine, as_json_lines, as_text, line_fields
from skitter.service.models import next_start
from skitter.service.queries import JobQueries

_BATCH_SIZE = 1000
"""Items in one read."""
_JSON_LINES_TYPE = "application/x-ndjson"
JSON_LINES: dict[int | str, dict[str, Any]] = {
    200: {"description": "JSON Lines", "content": {_JSON_LINES_TYPE: {"schema": {"type": "string"}}}}
}
"""The OpenAPI description of a response with one JSON text per line."""
TEXT: dict[int | str, dict[str, Any]] = {
    200: {"description": "Text", "content": {"text/plain": {"schema": {"type": "string"}}}}
}
"""The OpenAPI description of a response in plain text."""


async def item_lines(read: Callable[..., Awaitable[ItemPage]]) -> StreamingResponse:
    """Stream all items that ``read`` returns page by page. The first page is read before, so that its errors are reported."""
    first = await read(after=None, limit=_BATCH_SIZE)

    async def lines() -> AsyncIterator[bytes]:
        page = first
        while page.items:
            yield b"".join(bytes(item) + b"\n" for item in page.items)
            page = await read(after=page.next, limit=_BATCH_SIZE)

    return StreamingResponse(lines(), media_type=_JSON_LINES_TYPE)


def add_task_routes(app: FastAPI, jobs: JobService, queries: JobQueries) -> None:
    """Add the routes of tasks to an application."""

    @app.get("/jobs/{name}/tasks")
    async def tasks(name: NamePath) -> dict[str, Any]:
        """List the tasks of a job."""
        return {"tasks": [_task_view(task) for task in await jobs.tasks.all(name)]}

    @app.post("/jobs/{name}/tasks", status_code=201)
    async def add_task(name: NamePath, body: TaskRequest, caller: CallerParam) -> dict[str, str]:
        """Add a task to a job, which may be running: a recipe, whose name the task gets, or a task of a spider."""
        caller.need(body.recipe)
        match body.recipe, body.spider, body.task:
            case str(recipe), None, None:
                added = await jobs.tasks.add(name, recipe, body.arguments, body.schedule, body.outputs)
            case None, str(spider), str(task) if not body.arguments:
                added = await jobs.tasks.add_python(name, spider, task, body.schedule, body.outputs)
            case _:
                raise ApiError(
                    "a task is a recipe, or a task of a spider without arguments",
                    remedy="give either recipe, or spider and task",
                    field="recipe",
                )
        return {"task": added}

    @app.get("/jobs/{name}/tasks/{task}/items")
    async def task_items(
        name: NamePath, task: TaskPath, after: AfterQuery = None, limit: LimitQuery = 100
    ) -> Response:
        """Return items of one task that was added with `outputs`, like the items of a job."""
        found = await jobs.tasks.get(name, task)
        page = await queries.items(name, None, after, limit, found)
        return Response(msgspec.json.encode(page), media_type="application/json")

    @app.get("/jobs/{name}/tasks/{task}/items.jsonl", response_class=StreamingResponse, responses=JSON_LINES)
    async def all_task_items(name: NamePath, task: TaskPath) -> StreamingResponse:
        """Return all items of one task that was added with `outputs`, one JSON text per line."""
        found = await jobs.tasks.get(name, task)
        run = await queries.run_with_items(name, None)  # a new run may start during the response
        return await item_lines(partial(queries.items, name, run, task=found))

    @app.post("/jobs/{name}/tasks/{task}/pause")
    async def pause_task(name: NamePath, task: TaskPath) -> dict[str, Any]:
        """Pause a task: it fetches nothing and starts no recrawls until it is resumed. Other tasks continue."""
        return _task_view(await jobs.tasks.change(name, task, "pause"))

    @app.post("/jobs/{name}/tasks/{task}/resume")
    async def resume_task(name: NamePath, task: TaskPath) -> dict[str, Any]:
        """Continue a paused task, within seconds."""
        return _task_view(await jobs.tasks.change(name, task, "resume"))

    @app.delete("/jobs/{name}/tasks/{task}", status_code=204)
    async def close_task(name: NamePath, task: TaskPath) -> None:
        """Close a task: its queued requests are dropped, requests in progress are finished. Its name can be used again."""
        closed = await jobs.tasks.change(name, task, "close")
        await queries.drop_task(name, closed.task)


def _task_view(task: TaskState) -> dict[str, Any]:
    return {
        "task": task.name,
        "state": task.state,
        "arguments": stored_arguments(task.variables),
        "outputs": task.outputs,
        "schedule": task.schedule,
        "reload": task.reload,
        "recrawls": len(task.recrawls),
        "due": next_start(task.schedule, time.time()) if task.state == "open" else None,
    }


def add_log_routes(app: FastAPI, jobs: JobService, leaving: asyncio.Event) -> None:
    """Add the routes of logs to an application. Responses that follow a log end when ``leaving`` is set."""

    async def open_view(name: str, query: LogQuery) -> tuple[str, LogView]:
        run = await _run_with_log(jobs, name, query.run)
        return run, LogView(partial(jobs.config.log, run), query.level, query.contains)

    async def stream(
        name: str, query: LogStreamQuery, encode: Callable[[list[NumberedLine]], bytes], kind: str
    ) -> StreamingResponse:
        run, view = await open_view(name, query)
        first = await view.page(query.after, last=query.last)
        is_active = partial(_is_active, jobs, name, run)
        batches = view.follow(first, leaving, is_active) if query.follow else view.rest(first)
        return StreamingResponse((encode(lines) async for lines in batches), media_type=kind)

    @app.get("/jobs/{name}/log")
    async def log(name: NamePath, query: Annotated[LogPageQuery, Query()]) -> Response:
        """Return lines of the log of a run, in the order in which they arrived. Pass `next` as `after` of the next call."""
        run, view = await open_view(name, query)
        page = await view.page(query.after, query.limit, last=query.last)
        shown = {"run": run, "lines": [line_fields(*line) for line in page.lines], "next": page.next}
        return Response(msgspec.json.encode(shown), media_type="application/json")

    @app.get("/jobs/{name}/log.jsonl", response_class=StreamingResponse, responses=JSON_LINES)
    async def log_lines(name: NamePath, query: Annotated[LogStreamQuery, Query()]) -> StreamingResponse:
        """Return all lines available now, one JSON text per line. With `follow`, the response continues with new lines."""
        return await stream(name, query, as_json_lines, _JSON_LINES_TYPE)

    @app.get("/jobs/{name}/log.txt", response_class=StreamingResponse, responses=TEXT)
    async def log_text(name: NamePath, query: Annotated[LogStreamQuery, Query()]) -> StreamingResponse:
        """Return the log as text. A message of several lines is indented from its second line."""
        return await stream(name, query, as_text, "text/plain; charset=utf-8")


async def _run_with_log(jobs: JobService, name: str, run: str | None) -> str:
    """Return the requested run. Raises :class:`NotFound` if its log is not kept."""
    job = await jobs.records.job(name)
    if job.run is None:
        raise NotFound(f"job {name!r} has no run yet", remedy="start it, or wait for its schedule")
    chosen = run or job.run.id
    if chosen not in {job.run.id, *job.logs}:
        raise NotFound(
            f"job {name!r} has no log of run {chosen!r}",
            remedy="choose a run from `logs` of GET /jobs/NAME",
            field="run",
        )
    return chosen


async def _is_active(jobs: JobService, name: str, run: str) -> bool:
    """Return whether more lines may arrive in the log of a run."""
    try:
        job = await jobs.records.job(name)
    except NotFound:
        return False
    if job.run is not None and job.run.id == run and job.is_active:
        return True
    return any(run in status.running for status in (await jobs.records.nodes()).values())
