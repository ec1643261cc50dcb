"""Parts: what a name in a setting or on the command line stands for.

A frontier, an output, a fetcher or a source is named in one of these ways, tried in this order:

* a name that is built in, or that another package offers by an entry point of the kind's group,
* a dotted path, ``package.module:Name``,
* in the settings of a spider also by the object itself.

After a name and a colon stands what the part is to be told: ``sqlite:PATH``, ``file:proxies.txt``.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from skitter.errors import SkitterError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from skitter.errors import UsageError

_DOTTED = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)(?::(.*))?", re.DOTALL)


class PluginKind(msgspec.Struct, frozen=True):
    """One kind of replaceable part."""

    what: str
    """For messages: ``frontier``, ``output`` ..."""
    group: str
    """Of the entry points by which other packages offer such parts."""
    built_in: Mapping[str, Any]
    error: type[SkitterError]
    """Raised for a part that is there and cannot be loaded."""

    def named(self, name: str) -> Any | None:
        """Return what a plain name stands for, or ``None``."""
        if name in self.built_in:
            return self.built_in[name]
        for point in _offered(self.group).select(name=name):
            try:
                return point.load()
            except (ImportError, AttributeError) as error:
                raise self.error(
                    f"{self.what} kind {name!r} cannot be loaded from {point.value}: {error}",
                    remedy="install the package that provides it again, with its dependencies",
                ) from error
        return None

    def at_path(self, text: str) -> tuple[Any, str] | None:
        """Return what stands at a dotted path and what the text says after it, or ``None``.

        Raises the kind's error if the module is there and cannot be imported, or lacks the name.
        """
        found = _DOTTED.fullmatch(text)
        if found is None or not _exists(found[1]):
            return None
        try:
            return getattr(importlib.import_module(found[1]), found[2]), found[3] or ""
        except AttributeError:
            raise self.error(
                f"{self.what} {text!r}: module {found[1]} has no {found[2]!r}",
                remedy="write package.module:Name",
            ) from None
        except Exception as error:
            raise self.error(
                f"{self.what} {text!r}: module {found[1]} cannot be imported: {error}",
                remedy="correct the module",
            ) from error

    def find(self, text: str) -> tuple[Any, str]:
        """Return what ``NAME``, ``NAME:REST`` or a dotted path stands for, and the rest of the text.

        Raises the kind's error for a text that stands for nothing, with the names that are known.
        """
        name, _, rest = text.partition(":")
        part = self.named(name.lower())
        found = (part, rest) if part is not None else self.at_path(text)
        if found is None:
            raise self.error(
                f"{self.what} {text!r} is of no known kind",
                remedy=f"known are {', '.join(self.known())}; or write package.module:Name. If an installed package"
                f" provides {name!r}, its installation is out of date: install it again",
            )
        return found

    def known(self) -> list[str]:
        """Return the names that are built in or installed."""
        return sorted({*self.built_in, *(point.name for point in _offered(self.group))})


def _offered(group: str) -> EntryPoints:
    # Most jobs name only built-in parts, and need not wait for the machinery that reads installed packages.
    from importlib.metadata import entry_points  # noqa: PLC0415 - as said

    return entry_points(group=group)


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # a parent that is no package
        return False


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
