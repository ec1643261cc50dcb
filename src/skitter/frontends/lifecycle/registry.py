"""Registry: the modules of a crawl, by kind and id."""

from __future__ import annotations

from collections.abc import Iterable

from skitter.errors import UsageError
from skitter.frontends.lifecycle.balance import Balance, least_in_hand
from skitter.frontends.lifecycle.component import Component
from skitter.frontends.lifecycle.module import Module


class Registry:
    """Holds modules, and chooses one for each piece of work."""

    def __init__(self, modules: Iterable[Module] = (), balance: Balance = least_in_hand) -> None:
        self._balance = balance
        self._modules: dict[str, Module] = {}
        self._by_kind: dict[Component, list[Module]] = {kind: [] for kind in Component}
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

    def of(self, kind: Component) -> list[Module]:
        """Return the modules of a kind, in the order of their registration."""
        return list(self._by_kind[kind])

    def all(self) -> list[Module]:
        """Return all modules by id."""
        return [self._modules[name] for name in sorted(self._modules)]

    def pick(self, kind: Component) -> Module:
        """Choose who gets the next piece of work of a kind of which there is at least one."""
        modules = self._by_kind[kind]
        chosen = modules[0] if len(modules) == 1 else self._balance(modules)
        self._turn += 1
        chosen.turn = self._turn
        return chosen

    def _free_id(self, kind: Component) -> str:
        number = len(self._by_kind[kind]) + 1
        while f"{kind}-{number}" in self._modules:
            number += 1
        return f"{kind}-{number}"
