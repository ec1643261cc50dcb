"""Hooks: user code at named points of the worker's loop, answering with a HookAction.

Several hooks may stand at one point; they run in the order of their registration, each may be a plain
function or a coroutine function. The first answer other than ``CONTINUE`` decides and the later hooks of the
point are not asked. An exception in a hook is an outcome of that request: it fails with the hook's error.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from skitter.errors import SpiderError
from skitter.request import Request

if TYPE_CHECKING:  # the owner of a fleet reads no pages
    from skitter.response import Response


class HookAction(StrEnum):
    """What a hook decides. ``None`` counts as ``CONTINUE``."""

    CONTINUE = "continue"
    RETRY = "retry"
    """Try this request again later: the attempt counts and the back-off applies."""
    DROP = "drop"
    """Finish this request without output."""
    IGNORE = "ignore"
    """Take no notice of the error: a bad status goes to the callback like a page, a failed fetch or
    callback is finished without output and without a dead letter."""
    STOP = "stop"
    """Go on with this request, and stop the crawl gracefully after what is in hand."""
    FAIL = "fail"
    """Hand this request back and fail the crawl: it ends with an error, and a rerun resumes."""


log = logging.getLogger("skitter.crawl")

POINTS = (
    "before_request", "before_send", "on_headers", "after_request", "before_save", "after_save", "on_error",
    "on_start", "on_stop",
)  # fmt: skip
"""
``before_request(request)``
    Before the fetch. May return another :class:`~skitter.request.Request`, which is fetched instead; the
    frontier keeps the one that was queued, and a retry starts from that. May raise
    :class:`~skitter.errors.DeferRequest`.
``before_send(request)``
    Later still: robots.txt allows it and the fetch begins next. Answers as ``before_request`` does.
``on_headers(response)``
    Status and headers have come, the body has not; ``DROP`` and ``RETRY`` leave it unread.
``after_request(response)``
    After the fetch, whatever the status, before retry rules and callback. May return another
    :class:`~skitter.response.Response`, which takes its place.
``before_save(response, items)``
    After the callback; ``items`` is a list that may be changed in place.
``after_save(response, items)``
    When the items are durable, before the request is committed.
``on_error(request, error)``
    At each failed attempt, before the retry rules. The answer is not looked at where nothing is left to decide:
    a record that cannot be read, robots.txt, a redirect that leads nowhere, an item that no store takes.
``on_start(worker)``, ``on_stop(worker)``
    At the beginning and the end of a worker process; the answer is not looked at.
"""

Hook = Callable[..., Any]
Subject = TypeVar("Subject", "Request", "Response")


class Hooks:
    """The hooks of one worker, by point."""

    def __init__(self) -> None:
        self._hooks: dict[str, list[Hook]] = {point: [] for point in POINTS}

    def register(self, point: str, hook: Hook) -> None:
        """Add a hook at a point. Raises :class:`~skitter.errors.SpiderError` for an unknown point."""
        if point not in self._hooks:
            raise SpiderError(
                f"there is no hook point {point!r}", remedy=f"the points are {', '.join(POINTS)}"
            )
        self._hooks[point].append(hook)

    def register_all(self, owner: object) -> None:
        """Add every method of an object (a spider, a hook collection) that is named like a point."""
        for point in POINTS:
            hook = getattr(owner, point, None)
            if callable(hook):
                self.register(point, hook)

    def __getitem__(self, point: str) -> list[Hook]:
        return self._hooks[point]

    async def ask(self, point: str, *arguments: Any) -> HookAction:
        """Run the hooks of a point; returns the first decision."""
        for hook in self._hooks[point]:
            answer = await call(hook, *arguments)
            if answer is not None and answer is not HookAction.CONTINUE:
                return _signal(answer, hook)
        return HookAction.CONTINUE

    async def tell(self, request: Request, error: BaseException) -> None:
        """Let all of ``on_error`` hear of a failure that stands; an error in a hook changes nothing about it."""
        for hook in self._hooks["on_error"]:
            try:
                await call(hook, request, error)
            except (Exception, SystemExit):
                log.exception("%s: hook on_error", request.url)

    async def rewrite(self, request: Request, point: str = "before_request") -> tuple[Request, HookAction]:
        """Run ``before_request`` or ``before_send``; each hook gets the request as the one before it left it."""
        return await self._pass_on(point, request)

    async def revise(self, response: Response) -> tuple[Response, HookAction]:
        """Run ``after_request``; each hook gets the response as the one before it left it."""
        return await self._pass_on("after_request", response)

    async def _pass_on(self, point: str, subject: Subject) -> tuple[Subject, HookAction]:
        for hook in self._hooks[point]:
            answer = await call(hook, subject)
            if isinstance(answer, type(subject)):
                subject = answer
            elif answer is not None and answer is not HookAction.CONTINUE:
                return subject, _signal(answer, hook)
        return subject, HookAction.CONTINUE


async def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a plain or a coroutine function."""
    answer = function(*arguments)
    return await answer if inspect.isawaitable(answer) else answer


def _signal(answer: object, hook: Hook) -> HookAction:
    try:
        return HookAction(answer)  # type: ignore[arg-type]
    except ValueError:
        name = getattr(hook, "__qualname__", repr(hook))
        raise SpiderError(
            f"hook {name} answered {answer!r}", remedy="answer with a HookAction, or with nothing"
        ) from None
