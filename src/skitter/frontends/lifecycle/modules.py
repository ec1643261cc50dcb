"""Modules of a managed crawl: their kinds, base class and counts, their registry, and load balancing among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, ClassVar

import msgspec

from skitter.errors import SkitterError, UsageError


class ModuleKind(StrEnum):
    """Kinds of modules, and components of a crawl that errors come from."""

    DOWNLOADER = "downloader"
    """Fetching: no answer, an error status, robots.txt, redirects."""
    ANALYZER = "analyzer"
    """User code that reads pages, including hooks."""
    PIPELINE = "pipeline"
    """Processors of items, and stores."""
    SCHEDULER = "scheduler"
    """The crawl itself: undecodable records, failing seeds, an unavailable frontier. No modules are of this kind."""


class ModuleError(SkitterError):
    """An error in a module. The message is one line with the module and the cause."""

    def __init__(self, component: ModuleKind, module: str, message: str) -> None:
        super().__init__(f"{component} {module}: {message}")
        self.component = component
        self.module = module

    @property
    def root(self) -> BaseException:
        """The error of user code that caused this one."""
        return self.__cause__ or self


class Counts(msgspec.Struct):
    """Counts of the calls of a module since it was registered."""

    called: int = 0
    accepted: int = 0
    """Calls with valid input."""
    completed: int = 0
    """Successful calls."""
    handling: int = 0
    """Calls in progress."""


class Module:
    """Base of downloaders, analyzers and pipelines. ``id`` is unique in the crawl; empty: it is generated."""

    component: ClassVar[ModuleKind]

    def __init__(self, id: str = "") -> None:  # noqa: A002 - the usual name
        self.id = id
        self.counts = Counts()
        self.failures = 0
        """Number of consecutive failures."""
        self.turn = 0
        """Serial number of the last call, counted over all modules of the crawl."""

    @contextmanager
    def working(self) -> Iterator[Counts]:
        """Count a call. The caller counts accepted input."""
        counts = self.counts
        counts.called += 1
        counts.handling += 1
        try:
            yield counts
        except Exception:
            self.failures += 1
            raise
        else:
            counts.completed += 1
            self.failures = 0
        finally:
            counts.handling -= 1

    def extra(self) -> dict[str, Any]:
        """Return further values for the summary."""
        return {}


LoadBalancing = Callable[[Sequence[Module]], Module]
"""Chooses one of at least two modules of a kind. Called for each piece of work, so it must be fast."""

_MAX_FAILURES = 8
"""Maximum number of consecutive failures that count, so that a module that works again gets work under load."""


def least_busy(modules: Sequence[Module]) -> Module:
    """Choose the module with the least work in progress; of equals, the least recently used one.

    Consecutive failures count like work in progress; otherwise a module that fails at once would look idle and get all
    work. A new module gets its share, because past work does not count.
    """
    return min(modules, key=_load)


def _load(module: Module) -> tuple[int, int]:
    return module.counts.handling + min(module.failures, _MAX_FAILURES), module.turn


def seed_score(counts: Counts) -> int:
    """Return the score of gopcp: called + 2 accepted + 4 completed + 16 handling."""
    return counts.called + 2 * counts.accepted + 4 * counts.completed + 16 * counts.handling


def lowest_score(score: Callable[[Counts], float] = seed_score) -> LoadBalancing:
    """Return load balancing by a score: choose the module with the lowest score; of equals, the least recently used one."""

    def choose(modules: Sequence[Module]) -> Module:
        return min(modules, key=lambda module: (score(module.counts), module.turn))

    return choose


class ModuleRegistry:
    """Stores the modules of a crawl, and chooses one for each piece of work."""

    def __init__(self, modules: Iterable[Module] = (), balance: LoadBalancing = least_busy) -> None:
        self._balance = balance
        self._modules: dict[str, Module] = {}
        self._by_kind: dict[ModuleKind, list[Module]] = {kind: [] for kind in ModuleKind}
        self._turn = 0
        for module in modules:
            self.register(module)

    def register(self, module: Module) -> str:
        """Add a module. Return its id, such as ``downloader-2`` if it had none.

        Raises :class:`~skitter.errors.UsageError` for another type of object, and for an id that is taken.
        """
        if not isinstance(module, Module):
            raise UsageError(
                f"{module!r:.60} ({type(module).__name__}) is not a module",
                remedy="register a Downloader, an Analyzer or a Pipeline",
                field="module",
            )
        if not module.id:
            module.id = self._free_id(module.component)
        if module.id in self._modules:
            raise UsageError(
                f"a module {module.id!r} is already registered",
                remedy="give each module a unique id",
                field="id",
            )
        self._modules[module.id] = module
        self._by_kind[module.component].append(module)
        return module.id

    def unregister(self, name: str) -> Module:
        """Remove a module. It finishes its work in progress.

        Raises :class:`~skitter.errors.UsageError` for an unknown id, and for the last module of a kind, so that every page
        always has a module.
        """
        module = self.get(name)
        kind = self._by_kind[module.component]
        if len(kind) == 1:
            raise UsageError(
                f"{name!r} is the last {module.component} of the crawl",
                remedy="register another one first",
                field="id",
            )
        kind.remove(module)
        del self._modules[name]
        return module

    def get(self, name: str) -> Module:
        """Return a module by its id. Raises :class:`~skitter.errors.UsageError` for an unknown id."""
        if name not in self._modules:
            raise UsageError(
                f"unknown module {name!r}",
                remedy=f"use one of: {', '.join(self._modules)}"
                if self._modules
                else "register a module first",
                field="id",
            )
        return self._modules[name]

    def of(self, kind: ModuleKind) -> list[Module]:
        """Return the modules of a kind in the order of registration."""
        return list(self._by_kind[kind])

    def all(self) -> list[Module]:
        """Return all modules, sorted by id."""
        return [self._modules[name] for name in sorted(self._modules)]

    def pick(self, kind: ModuleKind) -> Module:
        """Choose the module of a kind for the next piece of work. The kind must have a module."""
        modules = self._by_kind[kind]
        chosen = modules[0] if len(modules) == 1 else self._balance(modules)
        self._turn += 1
        chosen.turn = self._turn
        return chosen

    def _free_id(self, kind: ModuleKind) -> str:
        number = len(self._by_kind[kind]) + 1
        while f"{kind}-{number}" in self._modules:
            number += 1
        return f"{kind}-{number}"
