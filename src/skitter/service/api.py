"""API: the HTTP face of a service, on every node the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Annotated, Any

import msgspec
from fastapi import Body, FastAPI, Query, Request, Response, Security
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.security import HTTPBearer

from skitter._version import VERSION
from skitter.errors import SkitterError
from skitter.service.access import App, Gate, Tokens
from skitter.service.bodies import ChangesBody, IdsBody, JobBody, Problem, ScheduleBody, SeedsBody
from skitter.service.calls import LINES, AfterQuery, LimitQuery, NamePath, RunQuery, lines_of
from skitter.service.counter import Counter, view
from skitter.service.desk import Desk
from skitter.service.errors import Refusal
from skitter.service.log_calls import add_log_calls
from skitter.service.node import Node
from skitter.service.nouns import Job, Recipe
from skitter.service.problems import add_handlers
from skitter.service.task_calls import add_task_calls

_PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": text, "content": {"application/problem+json": {}}}
    for status, text in {
        400: "The body cannot be read", 401: "No token", 404: "There is no such thing", 409: "Not in this state",
        413: "The body is too large", 422: "The call does not fit", 503: "The store is away",
    }.items()
}  # fmt: skip
_RECIPE_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            kind: {"schema": {"type": "string"}}
            for kind in ("application/yaml", "application/toml", "text/plain")
        },
    }
}


def make_app(desk: Desk, node: Node, tokens: Tokens, *, largest: int) -> App:
    """Return the application of a node, which works while the application lives; the store is open already."""

    @asynccontextmanager
    async def live(_app: FastAPI) -> AsyncIterator[None]:
        stopping = asyncio.Event()
        work = asyncio.create_task(node.work(stopping))
        try:
            yield
        finally:
            stopping.set()
            with suppress(asyncio.CancelledError):
                await work

    app = FastAPI(
        title="skitter", version=VERSION, lifespan=live, docs_url=None, redoc_url=None, redirect_slashes=False,
        description="Jobs, recipes and tasks of a service of skitter nodes. Every node answers the same. /health alone needs"
        " no token.",
        dependencies=[Security(HTTPBearer(auto_error=False, description="A token of the operator."))],
        responses=_PROBLEMS,
    )  # fmt: skip
    add_handlers(app)
    counter = Counter(desk)
    _add_general(app, desk)
    _add_recipes(app, desk)
    _add_jobs(app, desk, counter)
    _add_steering(app, desk)
    _add_work(app, desk, counter)
    add_task_calls(app, desk, counter)
    add_log_calls(app, desk, node.leaving)
    return Gate(app, tokens, largest)


def _add_general(app: FastAPI, desk: Desk) -> None:
    @app.get("/health")
    async def health() -> dict[str, str]:
        """Tell whether this node reaches its store. Needs no token."""
        try:
            await desk.records.get("recipes", "")
        except SkitterError:
            return JSONResponse({"status": "the store is away"}, 503)  # type: ignore[return-value]
        return {"status": "ok"}

    @app.get("/nodes")
    async def nodes() -> dict[str, Any]:
        """List the nodes that are there, with what runs on them. One that dies is missing after ten seconds."""
        return {"nodes": [{"name": name, **_plain(note)} for name, note in (await desk.nodes()).items()]}


def _add_recipes(app: FastAPI, desk: Desk) -> None:
    @app.get("/recipes")
    async def recipes() -> dict[str, Any]:
        """List the recipes."""
        return {"recipes": [_without_text(recipe) for recipe in await desk.recipes()]}

    @app.put(
        "/recipes/{name}",
        status_code=201,
        openapi_extra=_RECIPE_BODY,
        responses={200: {"description": "Replaced"}},
    )
    async def put_recipe(name: NamePath, request: Request, response: Response) -> dict[str, Any]:
        """Upload a recipe, or replace it: its text as body, TOML if the content type says so, else YAML."""
        try:
            text = (await request.body()).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise Refusal(
                f"the recipe is no UTF-8: {error.reason}", remedy="send UTF-8", field="body"
            ) from None
        is_toml = "toml" in request.headers.get("content-type", "")
        recipe = Recipe(name=name, text=text, syntax="toml" if is_toml else "yaml")
        response.status_code = 201 if await desk.put_recipe(recipe) else 200
        return _without_text(recipe)

    @app.get("/recipes/{name}")
    async def recipe(name: NamePath) -> dict[str, Any]:
        """Return a recipe with its text."""
        found: dict[str, Any] = _plain(await desk.recipe(name))
        return found

    @app.delete("/recipes/{name}", status_code=204)
    async def delete_recipe(name: NamePath) -> None:
        """Forget a recipe that no job names."""
        await desk.delete_recipe(name)


def _add_jobs(app: FastAPI, desk: Desk, counter: Counter) -> None:
    async def shown(job: Job) -> dict[str, Any]:
        return view(job, await desk.nodes())

    @app.get("/jobs")
    async def jobs() -> dict[str, Any]:
        """List the jobs."""
        notes = await desk.nodes()
        return {"jobs": [view(job, notes) for job in await desk.jobs()]}

    @app.post("/jobs", status_code=201)
    async def add_job(body: JobBody) -> dict[str, Any]:
        """Add a job, and begin it unless it has a schedule."""
        job = Job(
            name=body.name, recipe=body.recipe or "", spider=body.spider or "", tasks=body.tasks,
            arguments=body.arguments, settings=body.settings, workers=body.workers,
            queues=body.queues, schedule=body.schedule,
        )  # fmt: skip
        start = not body.schedule if body.start is None else body.start
        return await shown(await desk.add_job(job, start=start))

    @app.get("/jobs/{name}")
    async def job(name: NamePath) -> dict[str, Any]:
        """Return a job with its counts, its workers on all nodes and its changed settings."""
        return await counter.status(await desk.job(name))

    @app.delete("/jobs/{name}", status_code=204)
    async def delete_job(name: NamePath) -> None:
        """Forget a job, its frontier and its items. The nodes let go of it within seconds."""
        await desk.delete(name)


def _add_steering(app: FastAPI, desk: Desk) -> None:
    async def shown(job: Job) -> dict[str, Any]:
        return view(job, await desk.nodes())

    @app.put("/jobs/{name}/schedule")
    async def schedule(name: NamePath, body: ScheduleBody) -> dict[str, Any]:
        """Change when new runs of a job begin; an empty schedule: only when they are started. A run under way goes on."""
        return await shown(await desk.reschedule(name, body.schedule))

    @app.post("/jobs/{name}/start")
    async def start(name: NamePath) -> dict[str, Any]:
        """Begin a new run; items of the one before are kept, of those before that not."""
        return await shown(await desk.start(name))

    @app.post("/jobs/{name}/pause")
    async def pause(name: NamePath) -> dict[str, Any]:
        """Fetch nothing more until it is resumed, and begin no scheduled run."""
        return await shown(await desk.pause(name))

    @app.post("/jobs/{name}/resume")
    async def resume(name: NamePath) -> dict[str, Any]:
        """Go on with a run that was paused or stopped, or that has got more to do since it ended."""
        return await shown(await desk.resume(name))

    @app.post("/jobs/{name}/stop")
    async def stop(name: NamePath) -> dict[str, Any]:
        """End the run where it is. Scheduled runs begin all the same."""
        return await shown(await desk.stop(name))


def _add_work(app: FastAPI, desk: Desk, counter: Counter) -> None:
    @app.get("/jobs/{name}/items")
    async def items(
        name: NamePath,
        after: AfterQuery = None,
        limit: LimitQuery = 100,
        run: RunQuery = None,
    ) -> Response:
        """Return items in the order in which their pages first came. `next` is null when there are no more by now."""
        page = await counter.items(await desk.job(name), run, after, limit)
        return Response(msgspec.json.encode(page), media_type="application/json")

    @app.get("/jobs/{name}/items.jsonl", response_class=StreamingResponse, responses=LINES)
    async def all_items(name: NamePath, run: RunQuery = None) -> StreamingResponse:
        """Return all items that are there by now, one JSON text a line."""
        return await lines_of(partial(counter.items, await desk.job(name), run))

    @app.get("/jobs/{name}/failures")
    async def failures(
        name: NamePath,
        after: Annotated[int, Query(ge=0, lt=2**53)] = 0,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        kind: Annotated[
            str | None, Query(max_length=100, description="Such as timeout or status/404.")
        ] = None,
    ) -> dict[str, Any]:
        """List requests that were given up, by id, those after an id."""
        return {"failures": _plain(await counter.failures(await desk.job(name), after, limit, kind))}

    @app.post("/jobs/{name}/failures/retry")
    async def retry(name: NamePath, body: Annotated[IdsBody, Body()]) -> dict[str, int]:
        """Queue failures again. A run that has ended takes them up when it is resumed."""
        return {"queued": await counter.settle(await desk.job(name), body.ids, again=True)}

    @app.post("/jobs/{name}/failures/drop")
    async def drop(name: NamePath, body: Annotated[IdsBody, Body()]) -> dict[str, int]:
        """Forget failures. Their URLs stay known."""
        return {"dropped": await counter.settle(await desk.job(name), body.ids, again=False)}

    @app.post("/jobs/{name}/seeds")
    async def seeds(name: NamePath, body: SeedsBody) -> dict[str, int]:
        """Add seeds: all, or, if one is wrong or out of scope, none. A run that has ended takes them up when it is resumed."""
        result = await counter.add(await desk.job(name), body.seeds, body.priority, body.callback)
        return {"added": result.added, "known": result.known, "banned": result.banned}

    @app.patch("/jobs/{name}/settings")
    async def change(name: NamePath, body: ChangesBody) -> dict[str, Any]:
        """Change limits of the run at once, on all nodes. Answers with all changes that hold."""
        return {"changes": await counter.change(await desk.job(name), body.settings, reset=body.reset)}


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value)


def _without_text(recipe: Recipe) -> dict[str, Any]:
    return {"name": recipe.name, "syntax": recipe.syntax, "stored": recipe.stored}
