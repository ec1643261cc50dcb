"""Recorder: keeps the answers to the sub-requests of a page whose URLs match a pattern."""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.async_api import Page, Response

_BODY_TIMEOUT = 5.0
"""Seconds to wait at the end of a page for bodies that are still arriving."""


class Recorder:
    """Records from its creation to :meth:`stop`. ``pattern``: regular expression that is searched in the URL."""

    def __init__(self, page: Page, pattern: str) -> None:
        self._page = page
        self._pattern = re.compile(pattern)
        self._found: list[asyncio.Task[dict[str, Any] | None]] = []
        page.on("response", self._on_response)

    def _on_response(self, response: Response) -> None:
        if self._pattern.search(response.url) and not response.request.is_navigation_request():
            self._found.append(asyncio.ensure_future(_read(response)))

    async def finish(self) -> list[dict[str, Any]]:
        """Return what has been recorded so far. An answer without an end is left out, and so is a redirect."""
        if self._found:
            await asyncio.wait(self._found, timeout=_BODY_TIMEOUT)
        answers = [task.result() for task in self._found if task.done() and not task.cancelled()]
        for task in self._found:
            task.cancel()
        return [answer for answer in answers if answer is not None]

    def stop(self) -> None:
        """Record nothing more."""
        self._page.remove_listener("response", self._on_response)


async def _read(response: Response) -> dict[str, Any] | None:
    with contextlib.suppress(Exception):  # Playwright has no body of a redirect, and of a page that is gone
        return {"url": response.url, "status": response.status, "body": await response.body()}
    return None
