"""The routes with which the console watches and controls jobs. They are the same for a service and for a single run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Protocol

import msgspec
from fastapi import Body, FastAPI, Query
from fastapi.responses import StreamingResponse

from skitter._utils.concurrency import wait_until_set
from skitter.errors import SkitterError
from skitter.observe.dead_letters import DeadLetterFilter
from skitter.service.api.access import Caller
from skitter.service.api.requests import (
    CallerParam,
    FailuresQuery,
    FailuresRequest,
    FollowQuery,
    HostsQuery,
    JobPath,
    JobsEventsQuery,
    JobsQuery,
    SettingsRequest,
)
from skitter.service.errors import NotFound
from skitter.service.inspection import Host, SteeringAction, declared_settings, select_hosts

_INTERVAL = 1.0
"""Time between two reads for a stream of events, in seconds."""
_REST = 4.0
"""A stream pauses for this many times the duration of its last read, so that watching never takes most of the CPU time
of a node."""
_KEEP_ALIVE = 10.0
"""Seconds without an event after which a comment is sent."""
_STREAM_SECONDS = 600.0
"""Seconds after which a stream ends. The browser connects again, and its session is checked again."""
EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"description": "Server-sent events", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
}  # fmt: skip
"""The OpenAPI description of a stream of events."""


class WatchedJobs(Protocol):
    """The jobs that the console shows: all jobs of a service, or the job of a single run.

    Every method with ``name`` raises :class:`~skitter.service.errors.NotFound` for an unknown job.
    """

    async def overview(
        self, contains: str, state: str | None, offset: int, limit: int | None, may_see: Callable[[str], bool], *,
        figures: bool,
    ) -> dict[str, Any]:  # fmt: skip
        """Return some jobs by name, the number of all selected jobs, and the number of jobs in each state."""

    async def status(self, name: str) -> dict[str, Any]:
        """Return everything known about a job. Counts are missing until its run has started."""

    async def watched(self, name: str) -> dict[str, Any]:
        """Return the same as :meth:`status`, and add a point to the history of the job.

        Everyone who watches a job gets the result of the same read, at most one per second.
        """

    async def history(self, name: str) -> list[dict[str, Any]]:
        """Return the figures of a job since a user started to watch it, oldest first."""

    async def hosts(self, name: str) -> list[Host]:
        """Return the hosts of a job, see :func:`~skitter.service.inspection.read_hosts`."""

    async def failures(
        self, name: str, after: int, limit: int, selection: DeadLetterFilter
    ) -> list[dict[str, Any]]:
        """Return the selected failed requests with ids above ``after``, sorted by id."""

    async def settle(
        self, name: str, ids: Sequence[int] | None, selection: DeadLetterFilter, *, again: bool
    ) -> int:
        """Queue failed requests again, or drop them, see :func:`~skitter.service.inspection.settle_failures`."""

    async def steer(self, name: str, action: SteeringAction) -> dict[str, Any]:
        """Pause, resume or stop a job. Return it as the API shows it."""

    async def change(self, name: str, limits: Mapping[str, Any], *, reset: bool) -> dict[str, Any]:
        """Change settings for all workers; return all changes in effect.

        Raises :class:`~skitter.errors.SkitterError` for a setting that cannot be changed, or an invalid value.
        """


def event_stream(
    read: Callable[[], Awaitable[Any]], leaving: asyncio.Event, *, follow: bool, first: bytes = b""
) -> StreamingResponse:
    """Return a response with an event each time the result of ``read`` changes.

    A store error does not end the stream: it is sent as an event ``problem``. The deletion of the job ends the stream.
    """

    async def events() -> AsyncIterator[bytes]:
        yield first
        began = sent_at = time.monotonic()
        last = b""
        while not leaving.is_set() and time.monotonic() - began < _STREAM_SECONDS:
            started = time.monotonic()
            try:
                event = encode_event("update", await read())
            except NotFound:
                yield encode_event("gone", {})
                return
            except SkitterError as error:
                event = encode_event("problem", {"detail": str(error), "remedy": error.remedy})
            now = time.monotonic()
            if event != last:
                last, sent_at = event, now
                yield event
            elif now - sent_at > _KEEP_ALIVE:
                sent_at = now
                yield b":\n\n"
            if not follow:
                return
            await wait_until_set(leaving, max(_INTERVAL, _REST * (now - started)))

    return StreamingResponse(events(), media_type="text/event-stream", headers={"x-accel-buffering": "no"})


def encode_event(name: str, data: Any) -> bytes:
    """Return a server-sent event (HTML standard, section 9.2). JSON has no line breaks, so one line holds it."""
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"


def add_watch_routes(app: FastAPI, jobs: WatchedJobs, leaving: asyncio.Event) -> None:
    """Add the routes that read jobs to an application. Streams end when ``leaving`` is set."""

    async def read_overview(query: JobsQuery, caller: Caller) -> dict[str, Any]:
        return await jobs.overview(
            query.contains, query.state, query.offset, query.limit, caller.may_use, figures=query.figures
        )

    @app.get("/jobs")
    async def list_jobs(query: Annotated[JobsQuery, Query()], caller: CallerParam) -> dict[str, Any]:
        """List the jobs, by name, with the number of all selected jobs and their states."""
        return await read_overview(query, caller)

    @app.get("/events", response_class=StreamingResponse, responses=EVENTS)
    async def overview(query: Annotated[JobsEventsQuery, Query()], caller: CallerParam) -> StreamingResponse:
        """Send the list of jobs as server-sent events `update`. With `follow`, the stream continues with each change."""
        return event_stream(lambda: read_overview(query, caller), leaving, follow=query.follow)

    @app.get("/jobs/{name}")
    async def job(name: JobPath) -> dict[str, Any]:
        """Return a job with its counts, its workers on all nodes and its changed settings."""
        return await jobs.status(name)

    @app.get("/jobs/{name}/events", response_class=StreamingResponse, responses=EVENTS)
    async def events(name: JobPath, follow: FollowQuery = False) -> StreamingResponse:
        """Send the history of a job while it was watched (`history`), then the job itself (`update`), as server-sent events."""
        history = encode_event("history", await jobs.history(name))
        return event_stream(lambda: jobs.watched(name), leaving, follow=follow, first=history)

    @app.get("/jobs/{name}/hosts")
    async def hosts(name: JobPath, query: Annotated[HostsQuery, Query()]) -> dict[str, Any]:
        """List the hosts of a job with their counts, and their number. All hosts are sorted, then one page is returned."""
        found = await jobs.hosts(name)
        return await asyncio.to_thread(
            select_hosts, found, query.order, query.contains, query.offset, query.limit
        )

    @app.get("/jobs/{name}/failures")
    async def failures(name: JobPath, query: Annotated[FailuresQuery, Query()]) -> dict[str, Any]:
        """List failed requests, sorted by id."""
        found = await jobs.failures(name, query.after, query.limit, query.filter())
        return {"failures": msgspec.to_builtins(found)}

    @app.get("/settings")
    async def settings() -> dict[str, Any]:
        """List the settings that jobs may have, with their types, defaults and bounds. `live`: can change during a run."""
        return {"settings": declared_settings()}


def add_steering_routes(app: FastAPI, jobs: WatchedJobs) -> None:
    """Add the routes that control running jobs to an application."""

    @app.post("/jobs/{name}/pause")
    async def pause(name: JobPath) -> dict[str, Any]:
        """Pause a job: it fetches nothing and starts no scheduled run until it is resumed."""
        return await jobs.steer(name, "pause")

    @app.post("/jobs/{name}/resume")
    async def resume(name: JobPath) -> dict[str, Any]:
        """Continue a run that was paused or stopped, or that has new requests since it ended."""
        return await jobs.steer(name, "resume")

    @app.post("/jobs/{name}/stop")
    async def stop(name: JobPath) -> dict[str, Any]:
        """Stop the current run before its end. Scheduled runs still start."""
        return await jobs.steer(name, "stop")

    @app.post("/jobs/{name}/failures/retry")
    async def retry(name: JobPath, body: Annotated[FailuresRequest, Body()]) -> dict[str, int]:
        """Queue failed requests again. If the run has ended, resume the job to fetch them."""
        return {"queued": await jobs.settle(name, body.ids, body.filter(), again=True)}

    @app.post("/jobs/{name}/failures/drop")
    async def drop(name: JobPath, body: Annotated[FailuresRequest, Body()]) -> dict[str, int]:
        """Drop failed requests. Their URLs stay known, so they are not fetched again."""
        return {"dropped": await jobs.settle(name, body.ids, body.filter(), again=False)}

    @app.patch("/jobs/{name}/settings")
    async def change(name: JobPath, body: SettingsRequest) -> dict[str, Any]:
        """Change limits of the current run on all nodes. Returns all changes in effect."""
        return {"changes": await jobs.change(name, body.settings, reset=body.reset)}
