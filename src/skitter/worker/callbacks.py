"""Callbacks: finds and runs the functions of a spider, whatever their kind."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import AsyncIterable, Callable, Iterable
from types import GeneratorType
from typing import Any

from skitter.errors import SkitterError, SpiderError
from skitter.item import is_item
from skitter.links import Links, SkippedLinks
from skitter.request import Request
from skitter.spider import Spider


def find_method(owner: object, name: str) -> Callable[..., Any] | None:
    """Return the method of an object of user code (a spider, a hook collection) by its name, if it has one."""
    method = getattr(owner, name, None)
    return method if callable(method) else None


def callable_name(function: Callable[..., Any]) -> str:
    """Return the name of a function of user code, for messages. Other callable objects may have none."""
    return getattr(function, "__qualname__", repr(function))


def find_callback(spider: Spider, name: str | None) -> Callable[..., Any]:
    """Return the callback of a spider by its name (default ``parse``). Raises :class:`~skitter.errors.SpiderError`."""
    callback = find_method(spider, name or "parse")
    if callback is None:
        raise SpiderError(
            f"spider {spider.name!r} has no callback {name or 'parse'!r}",
            remedy="define the method, or use another one in the request",
            field="callback",
        )
    return callback


async def run_callback(callback: Callable[..., Any], *arguments: Any, **named: Any) -> list[Any]:
    """Call a coroutine function, async generator, generator or plain function. Return all its results.

    A plain function or coroutine may return one item or request, an iterable of them, or ``None``.
    """
    return await results_of(callback(*arguments, **named))


async def results_of(given: Any) -> list[Any]:
    """Return all results of a callback whose call returned ``given``."""
    if given.__class__ is GeneratorType:
        return list(given)
    if inspect.isawaitable(given):
        given = await given
    if isinstance(given, AsyncIterable):
        return [one async for one in given]
    if given is None:
        return []
    if isinstance(given, (Request, Links, SkippedLinks)) or is_item(given):
        return [given]
    if isinstance(given, Iterable) and not isinstance(given, (str, bytes)):
        return list(given)
    raise SpiderError(
        f"a callback returned an unsupported {type(given).__name__}: {given!r:.60}",
        remedy="yield items (dict, dataclass, attrs, pydantic) and requests",
    )


def describe(error: BaseException) -> str:
    """Return one line with an error of user code and the place where it was raised."""
    text = " ".join(str(error).split())
    line = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if isinstance(error, SkitterError):
        return line
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return line
    last = frames[-1]
    return f"{line} (line {last.lineno} of {last.filename.rpartition('/')[2]}, in {last.name})"
