"""Extras: packages that only some features need, imported when they are first used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from skitter.errors import SkitterError, UsageError


@contextmanager
def needing(extra: str, purpose: str, kind: type[SkitterError] = UsageError) -> Iterator[None]:
    """Stand around the imports of an optional dependency.

    Raises ``kind``, :class:`~skitter.errors.UsageError` by default, which names the extra to install, if a package
    is missing.
    """
    try:
        yield
    except ImportError as error:
        raise kind(
            f"{purpose}: the package {error.name} is missing", remedy=f'pip install "skitter[{extra}]"'
        ) from error


def need(module: str, extra: str, purpose: str) -> Any:
    """Import a package of an optional dependency that has no types; raises as :func:`needing` does."""
    with needing(extra, purpose):
        return import_module(module)
