"""Callbacks: running user code of any of the four function kinds to its end."""

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


def find_callback(spider: Spider, name: str | None) -> Callable[..., Any]:
    """Return the spider's method of a name. Raises :class:`~skitter.errors.SpiderError`."""
    callback = getattr(spider, name or "parse", None)
    if not callable(callback):
        raise SpiderError(
            f"spider {spider.name!r} has no callback {name or 'parse'!r}",
            remedy="define the method, or name another one in the request",
        )
    found: Callable[..., Any] = callback
    return found


async def run_callback(callback: Callable[..., Any], *arguments: Any, **named: Any) -> list[Any]:
    """Call a coroutine function, async generator, generator or plain function; return all it gives.

    A plain function or coroutine may return one item or request, any iterable of them, or nothing.
    """
    return await results_of(callback(*arguments, **named))


async def results_of(given: Any) -> list[Any]:
    """Return all that a callback gives whose call returned ``given``."""
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
        f"callback gave {type(given).__name__} {given!r:.60}",
        remedy="yield items (dict, dataclass, attrs, pydantic) and requests",
    )


def describe(error: BaseException) -> str:
    """Return one line that names an error of user code and the place where it arose."""
    text = " ".join(str(error).split())
    line = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if isinstance(error, SkitterError):
        return line
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return line
    last = frames[-1]
    return f"{line} (line {last.lineno} of {last.filename.rpartition('/')[2]}, in {last.name})"
