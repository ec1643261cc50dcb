"""Hooks: user code at named points of the loop of a worker. A hook returns a HookAction.

Several hooks may be registered for one point. They run in the order of registration; each may be a plain function or a
coroutine function. The first result other than ``CONTINUE`` decides, and the remaining hooks of the point do not run.
If a hook raises an exception, the request fails with it.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from skitter.errors import SpiderError
from skitter.request import Request
from skitter.worker.callbacks import callable_name, check_arguments, find_method

if TYPE_CHECKING:  # a process without workers does not need it
    from skitter.response import Response


class HookAction(StrEnum):
    """The decision of a hook. ``None`` means ``CONTINUE``."""

    CONTINUE = "continue"
    RETRY = "retry"
    """Retry the request later. The attempt counts, and the backoff applies."""
    DROP = "drop"
    """Finish the request without items and links."""
    IGNORE = "ignore"
    """Ignore the error: a response with an error status is passed to the callback; a failed fetch or callback is
    finished without items and without a dead letter."""
    STOP = "stop"
    """Continue with the request, and stop the crawl gracefully after the requests in progress."""
    FAIL = "fail"
    """Put the request back into the queue, and fail the crawl: it ends with an error, and the next run resumes it."""


log = logging.getLogger("skitter.crawl")

POINTS = (
    "before_request", "before_send", "on_headers", "after_request", "before_save", "after_save", "on_error",
    "on_start", "on_stop",
)  # fmt: skip
"""
``before_request(request)``
    Before the fetch. May return another :class:`~skitter.request.Request`, which is fetched instead. The frontier
    keeps the original request, and a retry starts from it. May raise :class:`~skitter.errors.DeferRequest`.
``before_send(request)``
    Right before the fetch, when robots.txt allows it. Returns the same values as ``before_request``.
``on_headers(response)``
    When the status and the headers have arrived, but not the body. ``DROP`` and ``RETRY`` leave the body unread.
``after_request(response)``
    After the fetch, with any status, before the retry rules and the callback. May return another
    :class:`~skitter.response.Response`, which replaces the original.
``before_save(response, items)``
    After the callback. ``items`` is a list that may be changed in place. Items that it removes are counted as
    ``dropped_items/hook``.
``after_save(response, items)``
    When the items are durable, before the request is committed.
``on_error(request, error)``
    After each failed attempt, before the retry rules. ``request.retries`` is the number of retries so far, and
    ``request.is_last_attempt`` says whether the rules let the request fail. The result is ignored for errors whose
    outcome is fixed: an unreadable record, an unavailable robots.txt, an invalid redirect, an item that a store rejects.
``on_start(worker)``, ``on_stop(worker)``
    At the start and the end of a worker process. The result is ignored.
"""

_ARGUMENTS = {
    "before_save": ("response", "items"), "after_save": ("response", "items"), "on_error": ("request", "error"),
    "on_headers": ("response",), "after_request": ("response",), "on_start": ("worker",), "on_stop": ("worker",),
}  # fmt: skip
"""The arguments of the hooks that do not receive a request alone."""

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
                f"unknown hook point: {point!r}", remedy=f"use one of {', '.join(POINTS)}", field="point"
            )
        self._hooks[point].append(hook)

    def register_all(self, owner: object) -> None:
        """Register every method of an object (a spider, a hook collection) whose name is a hook point.

        Raises :class:`~skitter.errors.SpiderError` for a method that takes other arguments.
        """
        for point in POINTS:
            hook = find_method(owner, point)
            if hook is not None:
                check_arguments(
                    hook, f"hook {callable_name(hook)}", point, _ARGUMENTS.get(point, ("request",))
                )
                self.register(point, hook)

    def __getitem__(self, point: str) -> list[Hook]:
        return self._hooks[point]

    async def run(self, point: str, *arguments: Any) -> HookAction:
        """Run the hooks of a point. Return the first decision."""
        for hook in self._hooks[point]:
            result = await call(hook, *arguments)
            if result is not None and result is not HookAction.CONTINUE:
                return _action(result, hook)
        return HookAction.CONTINUE

    async def report_error(self, request: Request, error: BaseException) -> None:
        """Call all ``on_error`` hooks for a failure that is final. Errors in the hooks are only logged."""
        for hook in self._hooks["on_error"]:
            try:
                await call(hook, request, error)
            except (Exception, SystemExit):
                log.exception("%s: hook on_error", request.url)

    async def revise(self, point: str, subject: Subject) -> tuple[Subject, HookAction]:
        """Run hooks that may replace the request or the response. Each receives the result of the previous one."""
        for hook in self._hooks[point]:
            result = await call(hook, subject)
            if isinstance(result, type(subject)):
                subject = result
            elif result is not None and result is not HookAction.CONTINUE:
                return subject, _action(result, hook)
        return subject, HookAction.CONTINUE


async def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a plain or a coroutine function."""
    result = function(*arguments)
    return await result if inspect.isawaitable(result) else result


def _action(result: object, hook: Hook) -> HookAction:
    try:
        return HookAction(result)  # type: ignore[arg-type]
    except ValueError:
        remedy = "return a HookAction or None"
        if isinstance(result, list):
            remedy += "; to replace items in before_save, change the list in place: items[:] = [...]"
        raise SpiderError(f"hook {callable_name(hook)} returned {result!r}", remedy=remedy) from None
