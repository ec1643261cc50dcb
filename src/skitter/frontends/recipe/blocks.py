"""Finds the blocks that repeat on a page, and the fields that they have in common."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec

_MIN_BLOCKS = 3
"""Minimum number of similar elements that form a list."""
_MIN_SHARE = 0.6
"""Minimum share of the blocks that contain a field."""
_NAME = re.compile(r"-?[A-Za-z_][\w-]*")
_NOISE = frozenset({"odd", "even", "first", "last", "active", "selected", "current", "clearfix"})
_AROUND = frozenset({"nav", "header", "footer", "head", "select", "svg"})
_UNFIT = frozenset({"script", "style", "br", "option", "link", "meta"})
_INLINE = frozenset({"b", "strong", "i", "em", "span", "small", "br", "mark", "code", "sup", "sub"})


class BlockField(msgspec.Struct):
    """A field that the blocks have in common: its query within a block, and its values."""

    css: str
    tag: str
    label: str
    """A name from the page: an itemprop or a class, otherwise the tag."""
    kind: str
    """``text``, ``link`` or ``image``."""
    values: list[str]


class RepeatedBlocks(msgspec.Struct):
    """Similar elements, and the query that finds them."""

    css: str
    elements: list[Any]
    fields: list[BlockField]


def find_blocks(root: Any) -> RepeatedBlocks | None:
    """Return the most significant repeated blocks below an lxml element, or ``None`` if no blocks repeat."""
    best: RepeatedBlocks | None = None
    best_score = 0.0
    for elements in _groups(root):
        fields = _fields_of(elements)
        score = len(elements) * sum(_weight(field, len(elements)) for field in fields)
        if fields and score > best_score:
            css = _query_for(elements, root)
            if css is not None:
                best, best_score = RepeatedBlocks(css, elements, fields), score
    return best


def classes_of(element: Any) -> list[str]:
    """Return the classes of an element that are usable in a query and not just for styling."""
    names = (element.get("class") or "").split()
    return [
        name
        for name in names
        if _NAME.fullmatch(name) and name.lower() not in _NOISE and not re.search(r"\d{3}", name)
    ]


def text_in(element: Any) -> str:
    """Return the text of an element with whitespace collapsed."""
    return " ".join("".join(element.itertext()).split())


def _groups(root: Any) -> Iterator[list[Any]]:
    for parent in root.iter():
        if not isinstance(parent.tag, str) or parent.tag in _AROUND:
            continue
        if any(above.tag in _AROUND for above in parent.iterancestors()):
            continue
        alike: dict[tuple[str, tuple[str, ...]], list[Any]] = defaultdict(list)
        for child in parent:
            if isinstance(child.tag, str) and child.tag not in _UNFIT:
                alike[child.tag, tuple(classes_of(child))].append(child)
        yield from (elements for elements in alike.values() if len(elements) >= _MIN_BLOCKS)


def _weight(field: BlockField, blocks: int) -> float:
    """Return the weight of a field: long and distinct values weigh more than labels and buttons."""
    different = len(set(field.values)) / blocks
    length = min(sum(map(len, field.values)) / max(1, len(field.values)), 80)
    return different * (1 + length / 20)


def _query_for(elements: list[Any], root: Any) -> str | None:
    """Return the shortest query that finds these elements and no others."""
    own = _step(elements[0])
    candidates = [own]
    parts = [own]
    for above in elements[0].iterancestors():
        if above is root.getparent() or above.tag in {"html", "body"}:
            break
        if above.get("id") and _NAME.fullmatch(above.get("id")):
            parts = [f"#{above.get('id')}", *parts]
            candidates.append(" > ".join(parts))
            break
        parts = [_step(above), *parts]
        candidates.append(" > ".join(parts))
    candidates.append(" > ".join(["body", *parts]))
    targets = set(elements)
    for css in candidates:
        if set(root.cssselect(css)) == targets:
            return css
    return None


def _step(element: Any) -> str:
    return ".".join([element.tag, *classes_of(element)[:2]])


# --- fields of a block ------------------------------------------------------------------------------------


def _fields_of(elements: list[Any]) -> list[BlockField]:
    parts: dict[tuple[str, str], dict[int, tuple[Any, str]]] = defaultdict(dict)
    for place, element in enumerate(elements):
        for css, kind, inner, value in _parts_of(element):
            parts[css, kind].setdefault(place, (inner, value))
    found: list[BlockField] = []
    for (css, kind), by_place in parts.items():
        values = [value for _, value in by_place.values()]
        if len(by_place) < max(2, _MIN_SHARE * len(elements)) or len(set(values)) == 1:
            continue
        if any(other.kind == kind and other.values == values for other in found):
            continue  # of several fields with the same values, keep the first, which is the outermost one
        first = next(iter(by_place.values()))[0]
        found.append(BlockField(css, first.tag, _label(first), kind, values))
    return found


def _parts_of(block: Any) -> Iterator[tuple[str, str, Any, str]]:
    if block.tag == "tr":
        for place, cell in enumerate(block.findall("td"), 1):
            yield f"td:nth-child({place})", "text", cell, text_in(cell)
        return
    for inner in block.iter():
        if not isinstance(inner.tag, str) or inner.tag in {"script", "style"}:
            continue
        css = _within(inner, block)
        if inner.tag == "a" and inner.get("href"):
            yield css, "link", inner, inner.get("href")
        if inner.tag == "img" and inner.get("src"):
            yield css, "image", inner, inner.get("src")
        elif _is_leaf(inner) and (text := text_in(inner)):
            yield css, "text", inner, text


def _is_leaf(element: Any) -> bool:
    """Return whether an element contains text and no markup other than inline markup."""
    if element.tag in {"a", "time"}:
        return True
    inner = [descendant.tag for descendant in element.iterdescendants() if isinstance(descendant.tag, str)]
    has_text = bool((element.text or "").strip())
    return has_text and all(tag in _INLINE or tag == "a" for tag in inner)


def _within(element: Any, block: Any) -> str:
    if element is block:
        return ""
    steps = [_step(element)]
    if not classes_of(element):
        for above in element.iterancestors():
            if above is block:
                break
            steps = [_step(above), *steps]
            if classes_of(above):
                break
    return " ".join(steps)


def _label(element: Any) -> str:
    marked = element.get("itemprop")
    if marked and _NAME.fullmatch(marked):
        return str(marked)
    names = classes_of(element)
    return names[-1] if names else str(element.tag)
