"""ModuleKind: the part of a crawl in which an error arose, or to which a module belongs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, ClassVar

import msgspec

from skitter.errors import SkitterError, UsageError


class ModuleKind(StrEnum):
    """The four kinds of the seed."""

    DOWNLOADER = "downloader"
    """Fetching: no answer, a bad one, a status that is no page, robots.txt, redirects."""
    ANALYZER = "analyzer"
    """User code that reads pages, hooks included."""
    PIPELINE = "pipeline"
    """Items: processors and stores."""
    SCHEDULER = "scheduler"
    """The crawl itself: a record that cannot be read, seeds that fail, a frontier that is gone."""


class ModuleError(SkitterError):
    """What went wrong in a module; the message names it, and says what and where in one line."""

    def __init__(self, component: ModuleKind, module: str, message: str) -> None:
        super().__init__(f"{component} {module}: {message}")
        self.component = component
        self.module = module

    @property
    def root(self) -> BaseException:
        """The error of user code behind it."""
        return self.__cause__ or self


class Counts(msgspec.Struct):
    """What a module has done since it was registered."""

    called: int = 0
    accepted: int = 0
    """Calls whose input was valid."""
    completed: int = 0
    """Calls that succeeded."""
    handling: int = 0
    """Calls under way."""


class Module:
    """Base of the three kinds. ``id`` is any text that no other module of the crawl has; empty: one is given."""

    component: ClassVar[ModuleKind]

    def __init__(self, id: str = "") -> None:  # noqa: A002 - it is what it is called everywhere
        self.id = id
        self.counts = Counts()
        self.setbacks = 0
        """Failures since the last success."""
        self.turn = 0
        """Serial number of the last call among all modules of the crawl."""

    @contextmanager
    def at_work(self) -> Iterator[Counts]:
        """Count a call; whoever makes it counts whether its input is accepted."""
        counts = self.counts
        counts.called += 1
        counts.handling += 1
        try:
            yield counts
        except Exception:
            self.setbacks += 1
            raise
        else:
            counts.completed += 1
            self.setbacks = 0
        finally:
            counts.handling -= 1

    def extra(self) -> dict[str, Any]:
        """Return what a summary tells of this kind beyond its counts."""
        return {}


LoadBalancing = Callable[[Sequence[Module]], Module]
"""Chooses one of at least two modules of one kind; called for each piece of work, so it has to be quick."""

_MAX_FAILURES = 8
"""Failures in a row that count at most, so that a module whose hosts came back is asked again under load."""


def least_busy(modules: Sequence[Module]) -> Module:
    """Choose who has least in hand, then whose turn is longest ago.

    Failures in a row weigh like work in hand: a module that fails at once would look idle otherwise, and get all.
    A newcomer takes its share, not all work until its sums have caught up.
    """
    return min(modules, key=_load)


def _load(module: Module) -> tuple[int, int]:
    return module.counts.handling + min(module.setbacks, _MAX_FAILURES), module.turn


def seed_score(counts: Counts) -> int:
    """Return the score of gopcp.v2: called + 2 accepted + 4 completed + 16 handling."""
    return counts.called + 2 * counts.accepted + 4 * counts.completed + 16 * counts.handling


def lowest_score(score: Callable[[Counts], float] = seed_score) -> LoadBalancing:
    """Return a balance by a score of your own: the lowest wins, and of equals whose turn is longest ago."""

    def choose(modules: Sequence[Module]) -> Module:
        return min(modules, key=lambda module: (score(module.counts), module.turn))

    return choose


class ModuleRegistry:
    """Holds modules, and chooses one for each piece of work."""

    def __init__(self, modules: Iterable[Module] = (), balance: LoadBalancing = least_busy) -> None:
        self._balance = balance
        self._modules: dict[str, Module] = {}
        self._by_kind: dict[ModuleKind, list[Module]] = {kind: [] for kind in ModuleKind}
        self._turn = 0
        for module in modules:
            self.register(module)

    def register(self, module: Module) -> str:
        """Add a module; returns its id, such as ``downloader-2`` if it had none.

        Raises :class:`~skitter.errors.UsageError` for what is no module, and for an id that is taken.
        """
        if not isinstance(module, Module):
            raise UsageError(
                f"{type(module).__name__} {module!r:.60} is no module",
                remedy="register a Downloader, an Analyzer or a Pipeline",
            )
        if not module.id:
            module.id = self._free_id(module.component)
        if module.id in self._modules:
            raise UsageError(
                f"there is a module {module.id!r} already", remedy="give each module an id of its own"
            )
        self._modules[module.id] = module
        self._by_kind[module.component].append(module)
        return module.id

    def unregister(self, name: str) -> Module:
        """Take a module out; what it has in hand it finishes.

        Raises :class:`~skitter.errors.UsageError` if there is none of that id, or if it is the last of its kind:
        there is never a page without a module to take it.
        """
        module = self.get(name)
        kind = self._by_kind[module.component]
        if len(kind) == 1:
            raise UsageError(
                f"{name!r} is the last {module.component} of the crawl", remedy="register another one before"
            )
        kind.remove(module)
        del self._modules[name]
        return module

    def get(self, name: str) -> Module:
        """Return a module by its id. Raises :class:`~skitter.errors.UsageError` if there is none."""
        if name not in self._modules:
            raise UsageError(
                f"there is no module {name!r}", remedy=f"registered are {', '.join(self._modules) or 'none'}"
            )
        return self._modules[name]

    def of(self, kind: ModuleKind) -> list[Module]:
        """Return the modules of a kind, in the order of their registration."""
        return list(self._by_kind[kind])

    def all(self) -> list[Module]:
        """Return all modules by id."""
        return [self._modules[name] for name in sorted(self._modules)]

    def pick(self, kind: ModuleKind) -> Module:
        """Choose who gets the next piece of work of a kind of which there is at least one."""
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
