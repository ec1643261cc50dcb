"""The console of a single run: the part of the API that needs no service, on loopback, in its own thread."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from fastapi import FastAPI

from skitter._version import VERSION
from skitter.frontier.records import JobState
from skitter.observe.dead_letters import DeadLetterFilter
from skitter.run.job import JobFolder
from skitter.run.job_access import change_settings, changes_of, job_status, live_frontier, open_frontier
from skitter.service.api.access import ApiTokens
from skitter.service.api.auth import CONSOLE, AsgiApp, AuthContext, AuthMiddleware
from skitter.service.api.problems import add_handlers
from skitter.service.api.session_routes import add_session_routes
from skitter.service.api.watch_routes import add_steering_routes, add_watch_routes
from skitter.service.audit import AuditLog
from skitter.service.console import add_console
from skitter.service.errors import Conflict, NotFound
from skitter.service.inspection import (
    FigureHistory,
    Host,
    SteeringAction,
    frontier_view,
    list_failures,
    read_hosts,
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
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve()), name="console", daemon=True
        )
        self._thread.start()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._server.serve([self._listener])

    def close(self) -> None:
        """Stop serving."""
        self._server.should_exit = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the event loop has just ended
                self._loop.call_soon_threadsafe(self._leaving.set)
        self._thread.join()
        self._listener.close()


class RunView:
    """The job of a run as the console shows it. Implements :class:`~skitter.service.api.watch_routes.WatchedJobs`."""

    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder
        self._history = FigureHistory()

    async def overview(
        self, contains: str, state: str | None, _offset: int, _limit: int | None, _may_see: object, *,
        figures: bool,
    ) -> dict[str, Any]:  # fmt: skip
        """Return the job, if it is selected."""
        del figures
        job = await self._job()
        found = [job] if contains in job["name"] and state in {None, job["state"]} else []
        return {"jobs": found, "total": len(found), "states": {job["state"]: 1}}

    async def _job(self) -> dict[str, Any]:
        """Return the job, and add a point to its history."""
        name = self._folder.job
        if not self._folder.exists():
            return {"name": name, "state": "new", "run": None}
        found = await job_status(self._folder)
        spec = self._folder.read()
        shown: dict[str, Any] = {
            "name": name, "state": found.state, "spider": Path(found.spider).name, "recipe": "", "tasks": False,
            "settings": msgspec.to_builtins(spec.settings), "workers": spec.workers,
            "run": {"id": name, "reason": ""}, "node_errors": {}, "figures": None,
        }  # fmt: skip
        if found.counts is not None:
            shown["figures"] = self._history.add(found.counts, found.workers)
            shown |= frontier_view(found)
        return shown

    def _named(self, name: str) -> JobFolder:
        """Return the folder of the job. Raises :class:`~skitter.service.errors.NotFound` for another job."""
        if name != self._folder.job or not self._folder.exists():
            raise NotFound(f"job {name!r:.80} does not exist", remedy="list the jobs with GET /jobs")
        return self._folder

    async def status(self, name: str) -> dict[str, Any]:
        self._named(name)
        return await self._job()

    watched = status

    async def history(self, name: str) -> list[dict[str, Any]]:
        self._named(name)
        return list(self._history.points)

    async def hosts(self, name: str) -> list[Host]:
        return await read_hosts(self._named(name))

    async def failures(
        self, name: str, after: int, limit: int, selection: DeadLetterFilter
    ) -> list[dict[str, Any]]:
        return await list_failures(self._named(name), after, limit, selection)

    async def settle(
        self, name: str, ids: Sequence[int] | None, selection: DeadLetterFilter, *, again: bool
    ) -> int:
        async with open_frontier(self._named(name)) as opened:
            return await settle_failures(opened.frontier.dead_letters, ids, selection, again=again)

    async def steer(self, name: str, action: SteeringAction) -> dict[str, Any]:
        async with live_frontier(self._named(name)) as live:
            if live is None:
                raise Conflict(
                    f"job {name!r} is not running", remedy=f"continue it with `skitter resume {name}`"
                )
            await live.frontier.control.set_state(_STATES[action])
        return await self._job()

    async def change(self, name: str, limits: Mapping[str, Any], *, reset: bool) -> dict[str, Any]:
        changes = changes_of(limits)
        async with open_frontier(self._named(name)) as opened:
            return (await change_settings(opened.frontier, changes, reset=reset)).to_dict()


_STATES = {"pause": JobState.PAUSED, "resume": JobState.RUNNING, "stop": JobState.STOPPING}


def _make_app(folder: JobFolder, tokens: ApiTokens, leaving: asyncio.Event) -> AsgiApp:
    app = FastAPI(title="skitter", version=VERSION, docs_url=None, redoc_url=None, redirect_slashes=False)
    add_handlers(app)
    add_console(app)
    jobs = RunView(folder)
    add_watch_routes(app, jobs, leaving)
    add_steering_routes(app, jobs)
    context = AuthContext(
        tokens,
        Sessions(SqliteKeyValueStore(Path(":memory:"))),
        AuditLog(lambda: SqliteAppendLog(folder.path / "console-audit.log")),
    )
    add_session_routes(app, context, ("jobs",))
    return AuthMiddleware(app, context, _MAX_BODY)
