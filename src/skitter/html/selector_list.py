"""Lists of selectors: what a query gave, in document order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from re import Pattern
from typing import TYPE_CHECKING, Any, overload

from skitter.html.query import compile_css

if TYPE_CHECKING:  # a selector makes lists, a list knows selectors by their methods only
    from skitter.html.selector import Selector


class SelectorList(Sequence["Selector"]):
    """Selectors in document order; its methods do the same with each of them and join the results."""

    __slots__ = ("_selectors",)

    def __init__(self, selectors: Iterable[Selector] = ()) -> None:
        self._selectors: Sequence[Selector] = list(selectors)

    def css(self, query: str) -> SelectorList:
        """Select by CSS from each."""
        compiled = compile_css(query)
        return _joined([selector.run(compiled) for selector in self])

    def xpath(
        self, query: str, namespaces: Mapping[str, str] | None = None, **variables: Any
    ) -> SelectorList:
        """Select by XPath from each."""
        return _joined([selector.xpath(query, namespaces, **variables) for selector in self])

    def jmespath(self, query: str, **options: Any) -> SelectorList:
        """Select by JMESPath from each."""
        return _joined([selector.jmespath(query, **options) for selector in self])

    def getall(self) -> list[Any]:
        """Return ``get()`` of each."""
        return [selector.get() for selector in self]

    def get(self, default: Any = None) -> Any:
        """Return ``get()`` of the first, or the default if there is none."""
        return self[0].get() if len(self) else default

    def extract(self) -> list[Any]:
        """Return ``get()`` of each: the older name of :meth:`getall`."""
        return self.getall()

    def extract_first(self, default: Any = None) -> Any:
        """Return ``get()`` of the first, or the default: the older name of :meth:`get`."""
        return self.get(default)

    @property
    def attrib(self) -> dict[str, str]:
        """The attributes of the first; empty if there is none."""
        return self[0].attrib if len(self) else {}

    def re(self, regex: str | Pattern[str], replace_entities: bool = True) -> list[str]:
        """Return the matches of a regular expression in each."""
        return [match for selector in self for match in selector.re(regex, replace_entities)]

    def re_first(
        self, regex: str | Pattern[str], default: str | None = None, replace_entities: bool = True
    ) -> str | None:
        """Return the first match in any, or the default."""
        found = (match for selector in self for match in selector.re(regex, replace_entities))
        return next(found, default)

    def links(self) -> list[str]:
        """Return the raw link of each that has one; see :attr:`Selector.link <skitter.html.selector.Selector.link>`."""
        return [link for selector in self if (link := selector.link) is not None]

    def __len__(self) -> int:
        return len(self._selectors)

    @overload
    def __getitem__(self, index: int) -> Selector: ...
    @overload
    def __getitem__(self, index: slice) -> SelectorList: ...
    def __getitem__(self, index: int | slice) -> Selector | SelectorList:
        if isinstance(index, slice):
            return SelectorList(self._selectors[index])
        return self._selectors[index]

    def __iter__(self) -> Iterator[Selector]:
        return iter(self._selectors)

    def __add__(self, other: Iterable[Selector]) -> SelectorList:
        return SelectorList([*self, *other])

    def __repr__(self) -> str:
        return repr(list(self))


class ValueList(SelectorList):
    """Text nodes or attribute values, each made a selector only when somebody looks at it alone."""

    __slots__ = ("_make", "_values")

    def __init__(self, values: list[str], make: Callable[[str], Selector]) -> None:
        self._values = values
        self._make = make

    def getall(self) -> list[str]:
        """Return the values."""
        return list(self._values)

    def get(self, default: Any = None) -> Any:
        """Return the first value, or the default if there is none."""
        return self._values[0] if self._values else default

    def links(self) -> list[str]:
        """Return the values, taken to be links."""
        return self.getall()

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def __getitem__(self, index: int) -> Selector: ...
    @overload
    def __getitem__(self, index: slice) -> SelectorList: ...
    def __getitem__(self, index: int | slice) -> Selector | SelectorList:
        if isinstance(index, slice):
            return ValueList(self._values[index], self._make)
        return self._make(self._values[index])

    def __iter__(self) -> Iterator[Selector]:
        return map(self._make, self._values)


def _joined(lists: Sequence[SelectorList]) -> SelectorList:
    if lists and all(isinstance(found, ValueList) for found in lists):
        values = [value for found in lists for value in found.getall()]
        return ValueList(values, lists[0]._make)  # type: ignore[attr-defined]
    return SelectorList([selector for found in lists for selector in found])
