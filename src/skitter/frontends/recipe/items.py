"""Items: what a page gives: one, or one for each block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from skitter.frontends.recipe.context import Context
from skitter.frontends.recipe.fields import ObjectReader
from skitter.frontends.recipe.finder import Finder
from skitter.frontends.recipe.model import Items
from skitter.frontends.recipe.workshop import Workshop


class ItemReader:
    """Reads one kind of item from a page."""

    def __init__(self, items: Items, workshop: Workshop) -> None:
        self._each = Finder(items.each, workshop.at("each")) if items.each else None
        self._when = None if items.when is None else Finder(items.when, workshop.at("when"))
        self._object = ObjectReader(items.fields, workshop.at("fields"))

    @property
    def uses_scripts(self) -> bool:
        """Whether a field has a script."""
        return self._object.uses_scripts

    def read(self, context: Context) -> Iterator[dict[str, Any]]:
        """Give the items. Raises :class:`~skitter.frontends.recipe.context.PageError`."""
        nodes = [context.root] if self._each is None else self._each.find(context.root)
        for node in nodes:
            if self._when is None or self._when.find(node):
                yield self._object.read(node, context)
