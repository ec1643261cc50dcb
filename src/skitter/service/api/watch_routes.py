"""The routes with which the console watches jobs: events of jobs, their hosts, the settings that exist."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Query
from fastapi.responses import StreamingResponse

from skitter.errors import SkitterError
from skitter.service.api.requests import CallerParam, FollowQuery, HostsQuery, JobsEventsQuery, NamePath
from skitter.service.errors import NotFound
from skitter.service.inspection import declared_settings, select_hosts
from skitter.service.jobs import JobService
from skitter.service.queries import JobQueries

_INTERVAL = 1.0
"""Seconds between two readings for a stream of events."""
_REST = 4.0
"""A stream pauses for this many times the duration of its last reading, so that watching never takes most of the CPU
of a node."""
_KEEP_ALIVE = 10.0
"""Seconds without an event after which a comment is sent."""
_STREAM_SECONDS = 600.0
"""Seconds after which a stream ends. The browser connects again, and its session is checked again."""
EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"description": "Server-sent events", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
}  # fmt: skip
"""The OpenAPI description of a stream of events."""


def event_stream(
    read: Callable[[], Awaitable[Any]], leaving: asyncio.Event, *, follow: bool, first: bytes = b""
) -> StreamingResponse:
    """Return a response with an event whenever ``read`` returns something else than before.

    An error of the store ends no stream: it is sent as an event ``problem``. A deleted job ends it.
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
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(leaving.wait(), max(_INTERVAL, _REST * (now - started)))

    return StreamingResponse(events(), media_type="text/event-stream", headers={"x-accel-buffering": "no"})


def encode_event(name: str, data: Any) -> bytes:
    """Return a server-sent event (HTML standard, section 9.2). JSON has no line breaks, so one line holds it."""
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"


def add_watch_routes(app: FastAPI, jobs: JobService, queries: JobQueries, leaving: asyncio.Event) -> None:
    """Add the routes to an application. Streams end when ``leaving`` is set."""

    @app.get("/events", response_class=StreamingResponse, responses=EVENTS)
    async def overview(query: Annotated[JobsEventsQuery, Query()], caller: CallerParam) -> StreamingResponse:
        """Send the list of jobs as server-sent events `update`. With `follow`, the stream continues with each change."""

        async def read() -> dict[str, Any]:
            return await queries.overview(
                query.contains, query.state, query.offset, query.limit, caller.may_use, figures=query.figures
            )

        return event_stream(read, leaving, follow=query.follow)

    @app.get("/jobs/{name}/events", response_class=StreamingResponse, responses=EVENTS)
    async def events(name: NamePath, follow: FollowQuery = False) -> StreamingResponse:
        """Send the history of a job while it was watched (`history`), then the job itself (`update`), as server-sent events."""
        points = queries.history(await jobs.records.job(name))

        async def read() -> dict[str, Any]:
            return await queries.watched(await jobs.records.job(name))

        return event_stream(read, leaving, follow=follow, first=encode_event("history", points))

    @app.get("/jobs/{name}/hosts")
    async def hosts(name: NamePath, query: Annotated[HostsQuery, Query()]) -> dict[str, Any]:
        """List the hosts of a job with their counts, and their number. All hosts are judged, then one page is returned."""
        found = await queries.hosts(await jobs.records.job(name))
        return await asyncio.to_thread(
            select_hosts, found, query.order, query.contains, query.offset, query.limit
        )

    @app.get("/settings")
    async def settings() -> dict[str, Any]:
        """List the settings that jobs may have, with their types, defaults and bounds. `live`: can change during a run."""
        return {"settings": declared_settings()}
