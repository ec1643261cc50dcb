"""The ASGI application of a node, with the routes of recipes and jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response, Security
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.security import HTTPBearer

from skitter._version import VERSION
from skitter.errors import SkitterError
from skitter.fetch.signatures import DIRECTORY_PATH, DIRECTORY_TYPE, SigningKey
from skitter.observe.metrics import expose
from skitter.service.api.access import ApiTokens
from skitter.service.api.auth import AuthContext, AuthMiddleware
from skitter.service.api.problems import add_handlers
from skitter.service.api.recipe_routes import add_recipe_routes
from skitter.service.api.requests import (
    AfterQuery,
    CallerParam,
    JobRequest,
    LimitQuery,
    NamePath,
    ProblemDocument,
    RunQuery,
    ScheduleRequest,
    SeedsRequest,
)
from skitter.service.api.responses import DescribedApi
from skitter.service.api.routes import JSON_LINES, TEXT, add_log_routes, add_task_routes, item_lines
from skitter.service.api.session_routes import add_audit_route, add_session_routes
from skitter.service.api.watch_routes import add_steering_routes, add_watch_routes
from skitter.service.audit import AuditLog
from skitter.service.console import add_console
from skitter.service.jobs import JobService
from skitter.service.models import JobRecord, job_of
from skitter.service.node import Node
from skitter.service.queries import JobQueries, view
from skitter.service.sessions import Sessions

_PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": ProblemDocument, "description": text, "content": {"application/problem+json": {}}}
    for status, text in {
        400: "The body is not valid", 401: "No valid token", 403: "Not allowed with this token", 404: "Not found", 409: "Conflict with the current state",
        408: "The body did not arrive in time", 413: "The body is too large", 429: "Too many requests", 422: "The request is invalid", 503: "The store is unavailable",
    }.items()
}  # fmt: skip
_FEATURES = ("jobs", "runs", "items", "log", "recipes", "nodes", "audit")
"""The parts of the console that a service offers."""


def make_app(
    jobs: JobService,
    node: Node,
    tokens: ApiTokens,
    *,
    max_body: int,
    max_rate: float | None = None,
    signing_key: SigningKey | None = None,
) -> AuthMiddleware:
    """Return the application of a node. The node runs as long as the application. The store must be open.

    ``max_body``: maximum size of a request body, in bytes.
    ``max_rate``: maximum requests per second of each token; ``None`` for no limit.
    ``signing_key``: key of signed requests. The node publishes its public key.
    """

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        stopping = asyncio.Event()
        work = asyncio.create_task(node.work(stopping))
        try:
            yield
        finally:
            stopping.set()
            with suppress(asyncio.CancelledError):
                await work

    app = DescribedApi(
        title="skitter", version=VERSION, lifespan=lifespan, docs_url=None, redoc_url=None, redirect_slashes=False,
        description="Jobs, recipes and tasks of a service. Every node responds in the same way."
        " Every call except /health needs a token.",
        dependencies=[Security(HTTPBearer(auto_error=False, description="A token from the operator."))],
        responses=_PROBLEMS,
    )  # fmt: skip
    add_handlers(app)
    queries = JobQueries(jobs)
    _add_general_routes(app, jobs, queries)
    if signing_key is not None:
        _add_key_directory(app, signing_key)
    add_recipe_routes(app, jobs)
    _add_job_routes(app, jobs)
    _add_crawl_routes(app, queries)
    add_task_routes(app, jobs, queries)
    add_log_routes(app, jobs, node.leaving)
    add_watch_routes(app, queries, node.leaving)
    add_steering_routes(app, queries)
    add_console(app)
    context = AuthContext(
        tokens, Sessions(jobs.store), AuditLog(lambda: jobs.config.audit(node.name), node.name)
    )
    add_session_routes(app, context, _FEATURES)
    add_audit_route(app, context.audit)
    return AuthMiddleware(app, context, max_body, max_rate)


def _add_general_routes(app: FastAPI, jobs: JobService, queries: JobQueries) -> None:
    @app.get("/health")
    async def health() -> dict[str, str]:
        """Report whether this node can reach its store. Needs no token."""
        try:
            await jobs.store.get("recipes", "")
        except SkitterError:
            return JSONResponse({"status": "the store is unavailable"}, 503)  # type: ignore[return-value]
        return {"status": "ok"}

    @app.get("/nodes")
    async def nodes(caller: CallerParam) -> dict[str, Any]:
        """List the live nodes with the runs on them. A node that dies disappears after ten seconds."""
        found = []
        for name, status in (await jobs.records.nodes()).items():
            shown = msgspec.to_builtins(status)
            del shown["format"]
            shown["running"] = [run for run in shown["running"] if caller.may_use(job_of(run))]
            shown["errors"] = {
                run: error for run, error in shown["errors"].items() if caller.may_use(job_of(run))
            }
            found.append({"name": name, **shown})
        return {"nodes": found}

    @app.get("/metrics", response_class=Response, responses=TEXT)
    async def metrics(request: Request) -> Response:
        """Return the metrics of all jobs in Prometheus text format, or OpenMetrics. Every node returns the same."""
        samples = await queries.samples()
        body, content_type = expose(samples, request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})


def _add_key_directory(app: FastAPI, key: SigningKey) -> None:
    @app.get(DIRECTORY_PATH, response_class=Response, include_in_schema=False)
    async def key_directory(request: Request) -> Response:
        """Return the public key of signed requests, signed for the host of the request. Needs no token."""
        headers = key.sign_directory(request.headers.get("host", ""))
        return Response(key.directory(), headers={"content-type": DIRECTORY_TYPE, **headers})


def _add_job_routes(app: FastAPI, jobs: JobService) -> None:
    @app.post("/jobs", status_code=201)
    async def add_job(body: JobRequest, caller: CallerParam) -> dict[str, Any]:
        """Create a job, and start its first run, unless it has a schedule."""
        caller.need(body.name, body.recipe)
        job = JobRecord(
            name=body.name, recipe=body.recipe or "", spider=body.spider or "", tasks=body.tasks,
            arguments=body.arguments, settings=body.settings, workers=body.workers,
            queues=body.queues, schedule=body.schedule,
        )  # fmt: skip
        start = not body.schedule if body.start is None else body.start
        return await _shown(jobs, await jobs.add_job(job, start=start))

    @app.delete("/jobs/{name}", status_code=204)
    async def delete_job(name: NamePath) -> None:
        """Delete a job with its frontier, items and logs. The nodes stop working on it within seconds."""
        await jobs.delete(name)

    @app.put("/jobs/{name}/schedule")
    async def schedule(name: NamePath, body: ScheduleRequest) -> dict[str, Any]:
        """Change the schedule of new runs. If it is empty, runs start only on request. The current run continues."""
        return await _shown(jobs, await jobs.reschedule(name, body.schedule))

    @app.post("/jobs/{name}/start")
    async def start(name: NamePath) -> dict[str, Any]:
        """Start a new run. The items of the previous run are kept. The items of the run before it are erased."""
        return await _shown(jobs, await jobs.start(name))


def _add_crawl_routes(app: FastAPI, queries: JobQueries) -> None:
    @app.get("/jobs/{name}/items")
    async def items(
        name: NamePath, after: AfterQuery = None, limit: LimitQuery = 100, run: RunQuery = None
    ) -> Response:
        """Return items in the order in which their pages first arrived. `next` is null if no more items are available yet."""
        page = await queries.items(name, run, after, limit)
        return Response(msgspec.json.encode(page), media_type="application/json")

    @app.get("/jobs/{name}/items.jsonl", response_class=StreamingResponse, responses=JSON_LINES)
    async def all_items(name: NamePath, run: RunQuery = None) -> StreamingResponse:
        """Return all items available now, one JSON text per line."""
        chosen = await queries.run_with_items(name, run)  # a new run may start during the response
        return await item_lines(partial(queries.items, name, chosen))

    @app.post("/jobs/{name}/seeds")
    async def seeds(name: NamePath, body: SeedsRequest) -> dict[str, int]:
        """Add seeds: all of them, or none if one is invalid or out of scope. If the run has ended, resume the job."""
        result = await queries.add(name, body.seeds, body.priority, body.callback)
        return {
            "added": result.added, "known": result.known, "banned": result.banned, "over_budget": result.over_budget,
        }  # fmt: skip


async def _shown(jobs: JobService, job: JobRecord) -> dict[str, Any]:
    return view(job, await jobs.records.nodes())
