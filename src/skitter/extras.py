"""Extras: packages that only some features need, imported when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from skitter.errors import UsageError


def need(module: str, extra: str, purpose: str) -> Any:
    """Import a package of an optional dependency.

    Raises :class:`~skitter.errors.UsageError` that names the extra to install if it is missing.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise UsageError(
            f"{purpose} need the package {error.name or module}",
            remedy=f"install it: pip install 'skitter[{extra}]'",
        ) from None
