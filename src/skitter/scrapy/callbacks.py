"""Names of the callbacks of Scrapy's requests, so that a stored request can find its callback again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scrapy import Spider


def callback_name(spider: Spider, callback: Callable[..., Any]) -> str:
    """Return a name by which :func:`find_callback` finds a callback.

    A callback is a method of the spider, also a static one, a function that a module of its classes defines or imports, or
    a method of an object that is an attribute of the spider. Raises :class:`ValueError` for any other callback, such as a
    lambda.
    """
    name = getattr(callback, "__name__", "")  # a functools.partial has no name
    for candidate in (name, *_other_names(spider, callback, name)):
        try:
            if find_callback(spider, candidate) == callback:
                return candidate
        except ValueError:
            continue
    shown = repr(name) if name else f"{callback!r:.100}"
    raise ValueError(f"{shown} is neither a method of the spider nor a function in its module")


def find_callback(spider: Spider, name: str) -> Callable[..., Any]:
    """Return the callback with a name. Raises :class:`ValueError` if there is none.

    A name never leads to code that is out of reach of the spider: anyone who can write to a shared queue chooses it.
    """
    found: Callable[..., Any] | None
    attribute, _, method_name = name.rpartition(".")
    if attribute:
        method = getattr(_attributes(spider).get(attribute), method_name, None)
        found = method if isinstance(method, MethodType) else None
    elif hasattr(spider, name):
        found = getattr(spider, name)
    else:
        functions = (vars(module).get(name) for module in _modules(spider))
        found = next((function for function in functions if isinstance(function, FunctionType)), None)
    if callable(found):
        return found
    raise ValueError(f"callback {name!r} not found in {spider}")


def _attributes(spider: Spider) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for owner in (*reversed(type(spider).__mro__), spider):
        found |= vars(owner)
    return found


def _other_names(spider: Spider, callback: Callable[..., Any], method_name: str) -> Iterator[str]:
    """Yield other names that a callback may have, because a decorator or an import has renamed it, or an object holds it."""
    function = callback.__func__ if isinstance(callback, MethodType) else callback
    for name, value in _attributes(spider).items():
        if getattr(value, "__func__", value) is function:  # methods of a class are functions
            yield name
        elif isinstance(callback, MethodType) and value is callback.__self__:
            yield f"{name}.{method_name}"
    for module in _modules(spider):
        for name, value in vars(module).items():
            if value is callback:
                yield name


def _modules(spider: Spider) -> Iterator[Any]:
    for kind in type(spider).__mro__:
        if kind.__module__ in sys.modules and kind.__module__ != "builtins":
            yield sys.modules[kind.__module__]
