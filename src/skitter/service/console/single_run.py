"""The console of a single run: the part of the API that needs no service, on loopback, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import threading
from pathlib import Path
from typing import Annotated, Any

import msgspec
import uvicorn
from fastapi import FastAPI, Query
from fastapi.responses import StreamingResponse

from skitter._version import VERSION
from skitter.frontier.records import JobState
from skitter.observe.dead_letters import DeadLetterFilter
from skitter.run.control import change_settings, changes_of, job_status, live_frontier, open_frontier
from skitter.run.job import JobFolder
from skitter.service.api.access import ApiTokens
from skitter.service.api.auth import CONSOLE, AsgiApp, AuthContext, AuthMiddleware
from skitter.service.api.problems import add_handlers
from skitter.service.api.requests import (
    FailuresQuery,
    FailuresRequest,
    FollowQuery,
    HostsQuery,
    JobsEventsQuery,
    SettingsRequest,
)
from skitter.service.api.session_routes import add_session_routes
from skitter.service.api.watch_routes import encode_event, event_stream
from skitter.service.audit import AuditLog
from skitter.service.console import add_console
from skitter.service.errors import Conflict, NotFound
from skitter.service.inspection import (
    FigureHistory,
    declared_settings,
    frontier_view,
    list_failures,
    read_hosts,
    select_hosts,
    settle_failures,
)
from skitter.service.sessions import Sessions
from skitter.service.storage.sqlite import SqliteAppendLog, SqliteKeyValueStore

_MAX_BODY = 1 << 20


class RunConsole:
    """Serves the console of a run on loopback until it is closed. ``url`` contains a token that opens one session."""

    def __init__(self, folder: JobFolder) -> None:
        token = secrets.token_urlsafe(32)
        self._leaving = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}{CONSOLE}/#token={token}"
        config = uvicorn.Config(
            _make_app(folder, ApiTokens.single_use(token), self._leaving), log_config=None, access_log=False,
            server_header=False, lifespan="off", timeout_graceful_shutdown=2,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="console", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            await self._server.serve([self._listener])

        asyncio.run(serve())

    def close(self) -> None:
        """Stop serving."""
        self._server.should_exit = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has just ended
                self._loop.call_soon_threadsafe(self._leaving.set)
        self._thread.join()
        self._listener.close()


class RunView:
    """The job of a run as the console shows it."""

    def __init__(self, folder: JobFolder) -> None:
        self.folder = folder
        self.history = FigureHistory()

    async def job(self) -> dict[str, Any]:
        """Return the job, and add a point to its history."""
        name = self.folder.job
        if not self.folder.exists():
            return {"name": name, "state": "new", "run": None}
        found = await job_status(self.folder)
        spec = self.folder.read()
        shown: dict[str, Any] = {
            "name": name, "state": found.state, "spider": Path(found.spider).name, "recipe": "", "tasks": False,
            "settings": msgspec.to_builtins(spec.settings), "workers": spec.workers,
            "run": {"id": name, "reason": ""}, "node_errors": {}, "figures": None,
        }  # fmt: skip
        if found.counts is not None:
            shown["figures"] = self.history.add(found.counts, found.workers)
            shown |= frontier_view(found)
        return shown

    def named(self, name: str) -> JobFolder:
        """Return the folder of the job. Raises :class:`~skitter.service.errors.NotFound` for another job."""
        if name != self.folder.job or not self.folder.exists():
            raise NotFound(f"job {name!r:.80} does not exist", remedy="list the jobs with GET /jobs")
        return self.folder


def _make_app(folder: JobFolder, tokens: ApiTokens, leaving: asyncio.Event) -> AsgiApp:
    app = FastAPI(title="skitter", version=VERSION, docs_url=None, redoc_url=None, redirect_slashes=False)
    add_handlers(app)
    add_console(app)
    run = RunView(folder)
    _add_reading(app, run, leaving)
    _add_steering(app, run)
    context = AuthContext(
        tokens,
        Sessions(SqliteKeyValueStore(Path(":memory:"))),
        AuditLog(lambda: SqliteAppendLog(folder.path / "console-audit.log")),
    )
    add_session_routes(app, context, lambda: ("jobs",))
    return AuthMiddleware(app, context, _MAX_BODY)


def _add_reading(app: FastAPI, run: RunView, leaving: asyncio.Event) -> None:
    async def overview(state: str | None, contains: str) -> dict[str, Any]:
        job = await run.job()
        found = [job] if contains in job["name"] and state in {None, job["state"]} else []
        return {"jobs": found, "total": len(found), "states": {job["state"]: 1}}

    @app.get("/jobs")
    async def jobs(query: Annotated[JobsEventsQuery, Query()]) -> dict[str, Any]:
        return await overview(query.state, query.contains)

    @app.get("/events")
    async def jobs_events(query: Annotated[JobsEventsQuery, Query()]) -> StreamingResponse:
        return event_stream(lambda: overview(query.state, query.contains), leaving, follow=query.follow)

    @app.get("/jobs/{name}")
    async def job(name: str) -> dict[str, Any]:
        run.named(name)
        return await run.job()

    @app.get("/jobs/{name}/events")
    async def events(name: str, follow: FollowQuery = False) -> StreamingResponse:
        run.named(name)
        return event_stream(
            run.job, leaving, follow=follow, first=encode_event("history", list(run.history.points))
        )

    @app.get("/jobs/{name}/hosts")
    async def hosts(name: str, query: Annotated[HostsQuery, Query()]) -> dict[str, Any]:
        found = await read_hosts(run.named(name))
        return select_hosts(found, query.order, query.contains, query.offset, query.limit)

    @app.get("/jobs/{name}/failures")
    async def failures(name: str, query: Annotated[FailuresQuery, Query()]) -> dict[str, Any]:
        selection = DeadLetterFilter(query.kind, query.contains)
        found = await list_failures(run.named(name), query.after, query.limit, selection)
        return {"failures": msgspec.to_builtins(found)}

    @app.get("/settings")
    async def settings() -> dict[str, Any]:
        return {"settings": declared_settings()}


def _add_steering(app: FastAPI, run: RunView) -> None:
    async def settle(name: str, body: FailuresRequest, *, again: bool) -> int:
        async with open_frontier(run.named(name)) as opened:
            letters = opened.frontier.dead_letters
            return await settle_failures(
                letters, body.ids, DeadLetterFilter(body.kind, body.contains), again=again
            )

    async def set_state(name: str, state: JobState) -> dict[str, Any]:
        async with live_frontier(run.named(name)) as live:
            if live is None:
                raise Conflict(
                    f"job {name!r} is not running", remedy=f"continue it with `skitter resume {name}`"
                )
            await live.frontier.control.set_state(state)
        return await run.job()

    @app.post("/jobs/{name}/failures/retry")
    async def retry(name: str, body: FailuresRequest) -> dict[str, int]:
        return {"queued": await settle(name, body, again=True)}

    @app.post("/jobs/{name}/failures/drop")
    async def drop(name: str, body: FailuresRequest) -> dict[str, int]:
        return {"dropped": await settle(name, body, again=False)}

    @app.post("/jobs/{name}/pause")
    async def pause(name: str) -> dict[str, Any]:
        return await set_state(name, JobState.PAUSED)

    @app.post("/jobs/{name}/resume")
    async def resume(name: str) -> dict[str, Any]:
        return await set_state(name, JobState.RUNNING)

    @app.post("/jobs/{name}/stop")
    async def stop(name: str) -> dict[str, Any]:
        return await set_state(name, JobState.STOPPING)

    @app.patch("/jobs/{name}/settings")
    async def change(name: str, body: SettingsRequest) -> dict[str, Any]:
        changes = changes_of(body.settings)
        async with open_frontier(run.named(name)) as opened:
            changed = await change_settings(opened.frontier, changes, reset=body.reset)
        return {"changes": changed.to_dict()}
