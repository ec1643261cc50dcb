"""Plugins: the objects that names in settings and on the command line refer to.

A frontier, an output, a fetcher or a source is named in one of these ways, tried in this order:

* the name of a built-in plugin, or of a plugin that another package registers as an entry point,
* a dotted path, ``package.module:Name``,
* in the settings of a spider, also the object itself.

An argument may follow the name after a colon: ``sqlite:PATH``, ``file:proxies.txt``.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from skitter.errors import SkitterError, UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

FILE_MODULE = "skitter_spider_"
"""Prefix of the name of a spider file's module. The rest is the name of the file."""

_DOTTED = r"(?s)([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)(?::(.*))?"  # compiled at its first use


class PluginKind(msgspec.Struct, frozen=True):
    """One kind of plugin."""

    what: str
    """Name of the kind in messages: ``frontier``, ``output`` ..."""
    group: str
    """Group of the entry points with which other packages register plugins of this kind."""
    built_in: Mapping[str, Any]
    """The built-in plugins by name. A string ``package.module:Name`` is loaded on first use."""
    error: type[SkitterError]
    """Class of the error that is raised for a plugin that cannot be loaded."""

    def named(self, name: str) -> Any | None:
        """Return the plugin with a plain name, or ``None``."""
        if name in self.built_in:
            part = self.built_in[name]
            return import_path(part) if isinstance(part, str) else part
        for point in _offered(self.group).select(name=name):
            try:
                return point.load()
            except Exception as error:
                raise self.error(
                    f"{self.what} kind {name!r} cannot be loaded from {point.value}: {error}",
                    remedy="install the package that provides it again, with its dependencies",
                ) from error
        return None

    def is_own(self, name: str) -> bool:
        """Return whether a plugin with a plain name belongs to skitter."""
        own = f"{__name__.partition('.')[0]}."
        return name in self.built_in or any(
            point.value.startswith(own) for point in _offered(self.group).select(name=name)
        )

    def at_path(self, text: str) -> tuple[Any, str] | None:
        """Return the object at a dotted path and the argument after it, or ``None`` if the text has another form.

        Raises an error of the kind if the module exists but cannot be imported, or lacks the name.
        """
        found = re.fullmatch(_DOTTED, text)
        if found is None:
            return None
        try:
            module = _import_if_present(found[1])
        except Exception as error:
            raise self.error(
                f"{self.what} {text!r}: module {found[1]} cannot be imported: {error}",
                remedy="correct the module",
            ) from error
        if module is None:
            return None
        try:
            return getattr(module, found[2]), found[3] or ""
        except AttributeError:
            raise self.error(
                f"{self.what} {text!r}: module {found[1]} has no {found[2]!r}",
                remedy="write package.module:Name",
            ) from None

    def find(self, text: str) -> tuple[Any, str]:
        """Return the plugin for ``NAME``, ``NAME:ARGUMENT`` or a dotted path, and the argument.

        Raises an error of the kind for an unknown name; the remedy lists the known names.
        """
        name, _, rest = text.partition(":")
        part = self.named(name.lower())
        found = (part, rest) if part is not None else self.at_path(text)
        if found is None:
            raise self.error(
                f"unknown {self.what}: {text!r}",
                remedy=f"use one of: {', '.join([*self.known(), 'package.module:Name'])}; or install the package"
                f" that provides {name!r}",
            )
        return found

    def known(self) -> list[str]:
        """Return the names of built-in and installed plugins."""
        return sorted({*self.built_in, *(point.name for point in _offered(self.group))})


@functools.cache  # a search takes 15 to 30 ms with 280 installed packages
def _offered(group: str) -> EntryPoints:
    """Return the entry points of the packages that are installed at the time of the first call."""
    # Most jobs only use built-in plugins, and should not wait for the import of importlib.metadata.
    from importlib.metadata import entry_points  # noqa: PLC0415 - see the comment above

    return entry_points(group=group)


def import_path(path: str) -> Any:
    """Return the object ``package.module:Name``."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def _import_if_present(name: str) -> ModuleType | None:
    """Import a module; ``None`` if there is no such module. Raises the errors of a module that cannot be imported."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Any other name is that of a module which this module or its package imports.
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            return None
        raise


@contextmanager
def needing(extra: str, purpose: str, kind: type[SkitterError] = UsageError) -> Iterator[None]:
    """Context manager for the imports of an optional dependency.

    If a package is missing, raises ``kind`` (default: :class:`~skitter.errors.UsageError`), which names the extra to
    install.
    """
    try:
        yield
    except ImportError as error:
        raise kind(
            f"{purpose}: the package {error.name} is missing",
            remedy=f'in the clone of skitter: pip install ".[{extra}]"',
        ) from error


def need(module: str, extra: str, purpose: str) -> Any:
    """Import an optional package that has no type information. Raises the same errors as :func:`needing`."""
    with needing(extra, purpose):
        return importlib.import_module(module)
