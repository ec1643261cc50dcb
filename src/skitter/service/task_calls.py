"""TaskCalls: the calls of the API about the tasks of a job."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import msgspec
from fastapi import FastAPI, Response
from fastapi.responses import StreamingResponse

from skitter.frontends.tasks.changes import TaskState
from skitter.service.bodies import TaskBody
from skitter.service.calls import LINES, AfterQuery, LimitQuery, NamePath, TaskPath, lines_of
from skitter.service.checks import next_start
from skitter.service.counter import Counter
from skitter.service.desk import Desk


def add_task_calls(app: FastAPI, desk: Desk, counter: Counter) -> None:
    """Add them to an application."""

    @app.get("/jobs/{name}/tasks")
    async def tasks(name: NamePath) -> dict[str, Any]:
        """List the tasks of a job of tasks."""
        return {"tasks": [_task(standing) for standing in await desk.tasks(name)]}

    @app.post("/jobs/{name}/tasks", status_code=201)
    async def add_task(name: NamePath, body: TaskBody) -> dict[str, str]:
        """Give a job of tasks one more, also while it runs. It is called what its recipe is called."""
        return {"task": await desk.add_task(name, body.recipe, body.arguments, body.schedule, body.outputs)}

    @app.get("/jobs/{name}/tasks/{task}/items")
    async def task_items(
        name: NamePath, task: TaskPath, after: AfterQuery = None, limit: LimitQuery = 100
    ) -> Response:
        """Return items of one task that was added with outputs, as those of a job."""
        page = await counter.items(await desk.job(name), None, after, limit, await desk.task(name, task))
        return Response(msgspec.json.encode(page), media_type="application/json")

    @app.get("/jobs/{name}/tasks/{task}/items.jsonl", response_class=StreamingResponse, responses=LINES)
    async def all_task_items(name: NamePath, task: TaskPath) -> StreamingResponse:
        """Return all items of one task that was added with outputs, one JSON text a line."""
        standing = await desk.task(name, task)
        return await lines_of(partial(counter.items, await desk.job(name), None, task=standing))

    @app.post("/jobs/{name}/tasks/{task}/pause")
    async def pause_task(name: NamePath, task: TaskPath) -> dict[str, Any]:
        """Fetch nothing more of a task until it is resumed; the others go on. It begins no rounds."""
        return _task(await desk.change_task(name, task, "pause"))

    @app.post("/jobs/{name}/tasks/{task}/resume")
    async def resume_task(name: NamePath, task: TaskPath) -> dict[str, Any]:
        """Go on with a task that was paused: within seconds."""
        return _task(await desk.change_task(name, task, "resume"))

    @app.delete("/jobs/{name}/tasks/{task}", status_code=204)
    async def close_task(name: NamePath, task: TaskPath) -> None:
        """Close a task: what is queued of it is dropped, what is in hand finished. Its name stays taken."""
        await desk.change_task(name, task, "close")
        await counter.drop_task(await desk.job(name), task)


def _task(standing: TaskState) -> dict[str, Any]:
    return {
        "task": standing.task,
        "state": standing.state,
        "arguments": standing.variables,
        "outputs": standing.outputs,
        "schedule": standing.schedule,
        "reload": standing.reload,
        "rounds": len(standing.recrawls),
        "due": next_start(standing.schedule, time.time()) if standing.state == "open" else None,
    }
