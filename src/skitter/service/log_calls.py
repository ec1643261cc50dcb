"""LogCalls: the calls of the API about the logs of jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from fastapi import FastAPI, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from skitter.service.calls import LINES, NamePath
from skitter.service.desk import Desk
from skitter.service.errors import Missing
from skitter.service.log_view import LogView, Numbered, as_json_lines, as_page, as_text

_TEXT: dict[int | str, dict[str, Any]] = {
    200: {"description": "Lines", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


class LogQuery(BaseModel):
    """Which lines are meant."""

    run: str | None = Field(None, max_length=100, description="Another run than the newest: one of `logs`.")
    level: Literal["debug", "info", "warning", "error", "critical"] = Field(
        "debug", description="Least severity."
    )
    contains: str = Field(
        "", max_length=200, description="Only lines with this text, such as a URL, in lower or upper case."
    )
    after: int = Field(0, ge=0, lt=2**53, description="Only lines with higher numbers.")
    last: int | None = Field(None, ge=1, le=1000, description="Only so many of them, the last ones.")


class PageQuery(LogQuery):
    """Those of one answer."""

    limit: int = Field(
        100, ge=1, le=1000, description="Only so many of them, the first ones, unless `last` is given."
    )


class StreamQuery(LogQuery):
    """Those of an answer that has no bound."""

    follow: bool = Field(
        False, description="Go on with what comes until nobody works on the run. An empty line: nothing came."
    )


def add_log_calls(app: FastAPI, desk: Desk, leaving: asyncio.Event) -> None:
    """Add them to an application; what is followed ends when ``leaving`` is set."""

    async def view_of(name: str, query: LogQuery) -> tuple[str, LogView]:
        run = await _run_of(desk, name, query.run)
        return run, LogView(partial(desk.ground.log, run), query.level, query.contains)

    async def stream(
        name: str, query: StreamQuery, form: Callable[[list[Numbered]], bytes], kind: str
    ) -> StreamingResponse:
        run, view = await view_of(name, query)
        first = await view.first(query.after, query.last)
        at_work = partial(_is_at_work, desk, name, run)
        pieces = view.follow(first, leaving, at_work) if query.follow else view.rest(first)
        return StreamingResponse((form(lines) async for lines in pieces), media_type=kind)

    @app.get("/jobs/{name}/log")
    async def log(name: NamePath, query: Annotated[PageQuery, Query()]) -> Response:
        """Return lines of the log of a run, in the order in which they came. `next` is `after` of the next call."""
        run, view = await view_of(name, query)
        if query.last is None:
            page = await view.page(query.after, query.limit)
        else:
            page = await view.last(query.after, query.last)
        return Response(msgspec.json.encode(as_page(run, page)), media_type="application/json")

    @app.get("/jobs/{name}/log.jsonl", response_class=StreamingResponse, responses=LINES)
    async def log_lines(name: NamePath, query: Annotated[StreamQuery, Query()]) -> StreamingResponse:
        """Return all lines that are there by now, and, to who follows, all that come; one JSON text a line."""
        return await stream(name, query, as_json_lines, "application/x-ndjson")

    @app.get("/jobs/{name}/log.txt", response_class=StreamingResponse, responses=_TEXT)
    async def log_text(name: NamePath, query: Annotated[StreamQuery, Query()]) -> StreamingResponse:
        """Return the same for people. What is said in several lines of text is indented from the second on."""
        return await stream(name, query, as_text, "text/plain; charset=utf-8")


async def _run_of(desk: Desk, name: str, run: str | None) -> str:
    """Return the run that is meant. Raises :class:`Missing` for one whose log is not kept."""
    job = await desk.job(name)
    if job.run is None:
        raise Missing(f"job {name!r} has not begun yet", remedy="start it, or wait for its schedule")
    chosen = run or job.run.id
    if chosen not in {job.run.id, *job.logs}:
        raise Missing(
            f"job {name!r} has no log of run {chosen!r}", remedy="`logs` of GET /jobs/NAME names those it has"
        )
    return chosen


async def _is_at_work(desk: Desk, name: str, run: str) -> bool:
    """Tell whether a run may have more to say."""
    try:
        job = await desk.job(name)
    except Missing:
        return False
    if job.run is not None and job.run.id == run and job.is_active:
        return True
    return any(run in note.running for note in (await desk.nodes()).values())
