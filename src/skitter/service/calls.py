"""Calls: what the calls of the API have in common: their parameters, and answers of many items."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any

from fastapi import Path, Query
from fastapi.responses import StreamingResponse

from skitter.service.items import ItemPage
from skitter.service.nouns import NAME

NamePath = Annotated[str, Path(pattern=f"^{NAME}$", max_length=64)]
TaskPath = Annotated[str, Path(max_length=200)]
AfterQuery = Annotated[
    str | None, Query(pattern=r"^[0-9]{1,15}\.[0-9]{1,9}$", description="`next` of the answer before.")
]
RunQuery = Annotated[str | None, Query(max_length=100, description="Another run than the newest.")]
LimitQuery = Annotated[int, Query(ge=1, le=1000)]
_ITEMS_AT_ONCE = 1000
_JSON_LINES = "application/x-ndjson"
LINES: dict[int | str, dict[str, Any]] = {
    200: {"description": "Items", "content": {_JSON_LINES: {"schema": {"type": "string"}}}}
}


async def lines_of(read: Callable[..., Awaitable[ItemPage]]) -> StreamingResponse:
    """Return all items that ``read`` gives page by page; the first before anything is answered, for what it may refuse."""
    first = await read(after=None, limit=_ITEMS_AT_ONCE)

    async def lines() -> AsyncIterator[bytes]:
        page = first
        while page.items:
            yield b"".join(bytes(item) + b"\n" for item in page.items)
            page = await read(after=page.next, limit=_ITEMS_AT_ONCE)

    return StreamingResponse(lines(), media_type=_JSON_LINES)
