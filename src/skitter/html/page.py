"""One HTML text: the engine's tree of it, and parsel's where it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skitter.html.engine import Engine
from skitter.html.parsel_adapter import parsel_selector
from skitter.html.query import CssQuery, Take

if TYPE_CHECKING:
    import parsel


class Page:
    """One HTML text and its two trees."""

    __slots__ = ("_twin", "document", "engine", "text")

    def __init__(self, text: str, engine: Engine) -> None:
        self.text = text
        self.engine = engine
        self.document = engine.parse(text)
        self._twin: parsel.Selector | None = None

    def twin(self) -> parsel.Selector:
        """Return parsel's selector of the same text, parsed when first asked for."""
        if self._twin is None:
            self._twin = parsel_selector(text=self.text, type="html")
        return self._twin

    def take(self, query: CssQuery, nodes: list[Any]) -> list[str]:
        """Return the texts or attribute values that a query takes from the elements it matched."""
        engine = self.engine
        if query.take is Take.ATTRIBUTE:
            return [value for node in nodes if (value := engine.attribute(node, query.attribute)) is not None]
        nested = len(nodes) > 1 and any(engine.first(node, query.native) is not None for node in nodes)
        if query.take is Take.DEEP_TEXT:
            tops = engine.outermost(nodes) if nested else nodes
            return [text for node in tops for text in engine.deep_texts(node)]
        if nested:
            return engine.nested_texts(nodes)
        return [text for node in nodes for text in engine.texts(node)]


def reparsed(html: str, tag: str) -> parsel.Selector:
    """Return parsel's selector of one element, made from its outer HTML alone."""
    page = parsel_selector(text=html, type="html")
    element = next(page.root.iter(tag), None)
    return page if element is None else parsel_selector(root=element, type="html")
