"""Combinations: every way to choose one value of each list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from skitter.frontends.recipe.model import Range


def combinations(lists: Mapping[str, Sequence[Any] | Range]) -> Iterator[dict[str, Any]]:
    """Give each combination, the last list changing fastest; one empty one if there are no lists."""
    for values in product(*(_values(one) for one in lists.values())):
        yield dict(zip(lists, values, strict=True))


def _values(one: Sequence[Any] | Range) -> Sequence[Any]:
    return range(one.from_, one.to + 1, one.step) if isinstance(one, Range) else one
