"""Suggests a recipe for a page: the blocks that repeat, their fields, and the next page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from skitter.frontends.recipe.blocks import BlockField, RepeatedBlocks, find_blocks
from skitter.frontends.recipe.compiled_recipe import compile_recipe
from skitter.frontends.recipe.fields import to_datetime, to_float
from skitter.frontends.recipe.page_context import PageContext, PageError, read_feed
from skitter.frontends.recipe.source import RecipeSource
from skitter.plugins import need
from skitter.response import Response
from skitter.web.urls import host_of

_NEXT_CSS = (
    "a[rel~=next]",
    "link[rel~=next]",
    "li.next a",
    ".next a",
    "a.next",
    ".pagination-next a",
    "a.next-page",
)
_NEXT_WORDS = re.compile(
    r"(?:next|older|more|weiter|nächste|suivante?|siguiente|avanti|volgende|próxim[ao])\b.{0,8}|[\u203a\u00bb\u2192>]+",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"[^\w]{0,3}\s*[-+]?\d[\d.,\s]*[^\w]{0,3}|\D{0,4}\d+[.,]\d{2}\D{0,4}")
_DECIMAL_COMMA = re.compile(r",(?!\d{3}(?:\D|$))\d")
"""A comma that is not followed by three digits is a decimal mark."""
_NAMES = {"h1": "title", "h2": "title", "h3": "title", "h4": "title", "a": "title", "time": "date", "p": "text",
          "li": "text", "td": "cell", "span": "text", "div": "text"}  # fmt: skip
_MAX_FIELDS = 12


def suggest_recipe(response: Response) -> str:
    """Return a recipe for a page as YAML text. The recipe is valid, and finds items on the page.

    Raises :class:`~skitter.frontends.recipe.page_context.PageError` if nothing can be found on the page.
    """
    yaml = need("yaml", "recipes", "recipes")
    recipe = {
        "name": _name(response.url),
        "start": response.url,
        "pages": {"page": _page(response)},
    }
    text: str = yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True, width=110)
    _try_out(text, response)
    return f"# Suggested by `skitter recipe from {response.url}`: give the fields better names.\n{text}"


def _name(url: str) -> str:
    """Return the last part of a URL's path that contains a letter, or its host."""
    words = [word for word in urlsplit(url).path.split("/") if re.search(r"[A-Za-z]", word)]
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", words[-1].rsplit(".", 1)[0] if words else "").strip("-.")
    return name or re.sub(r"[^A-Za-z0-9.-]+", "-", host_of(url))


def _try_out(text: str, response: Response) -> None:
    compiled = compile_recipe(RecipeSource.of_text(text, "the suggestion"))
    reader = compiled.pages["page"]
    items = [
        item
        for item in reader.read(PageContext(response, "page", {}, form=reader.format))
        if isinstance(item, dict)
    ]
    values = [value for item in items for value in item.values()]
    if all(value is None or value == "" or isinstance(value, list) for value in values):
        raise PageError(f"nothing was found in {response.url}", remedy="write the recipe yourself")


def _page(response: Response) -> dict[str, Any]:
    if "json" in response.content_type:
        return _json_page(response)
    if response.is_xml or "rss" in response.content_type or "atom" in response.content_type:
        return _feed_page(response)
    root = response.xpath("/*")
    if not root:
        raise PageError(f"{response.url} has no content", remedy="name an HTML page, a feed or a JSON API")
    from parsel import Selector  # noqa: PLC0415 - only suggestions traverse its tree

    blocks = find_blocks(Selector(response.text).root)
    page: dict[str, Any] = {"items": _of_blocks(blocks) if blocks is not None else _of_page(response)}
    following = _next(response)
    if following is not None:
        page["next"] = following
    return page


# --- HTML ---------------------------------------------------------------------------------------------------


def _of_blocks(blocks: RepeatedBlocks) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    head = _headings(blocks)
    for field in blocks.fields[:_MAX_FIELDS]:
        name = head.get(field.css) or _name_of(field)
        fields[_unused(name, fields)] = _field(field)
    return {"each": blocks.css, "fields": fields}


def _headings(blocks: RepeatedBlocks) -> Mapping[str, str]:
    """Return the column names of a table by the query of the cells."""
    if blocks.elements[0].tag != "tr":
        return {}
    table = next(blocks.elements[0].iterancestors("table"), None)
    heads = [] if table is None else table.xpath(".//th")
    names = [re.sub(r"\W+", "_", "".join(head.itertext()).strip().lower()).strip("_") for head in heads]
    return {f"td:nth-child({place})": name for place, name in enumerate(names, 1) if name}


def _name_of(field: BlockField) -> str:
    if field.kind == "link":
        return "url"
    if field.kind == "image":
        return "image"
    label = _NAMES.get(field.label, field.label)
    return re.sub(r"\W+", "_", label).strip("_").lower() or "text"


def _unused(name: str, taken: Mapping[str, Any]) -> str:
    candidates = (name, *(f"{name}_{number}" for number in range(2, 100)))
    return next(candidate for candidate in candidates if candidate not in taken)


def _field(field: BlockField) -> str | dict[str, Any]:
    query = {"css": field.css} if field.css else {"xpath": "."}
    if field.kind in {"link", "image"}:
        return {**query, "type": "url"}
    kind = _type_of(field.values)
    if kind is None:
        return field.css or query
    return {**query, **kind, "default": None}


def _type_of(values: Sequence[str]) -> dict[str, str] | None:
    """Return the type of a field with its options. ``None`` for text."""
    if all(_NUMBER.fullmatch(value) for value in values):
        decimal = "," if any(_DECIMAL_COMMA.search(value) for value in values) else "."
        marked = {} if decimal == "." else {"decimal": decimal}
        are_integers = all(decimal not in value and to_float(value, decimal).is_integer() for value in values)
        return {"type": "int" if are_integers else "float"} | marked
    try:
        for value in values:
            to_datetime(value)
    except ValueError:
        return None
    return {"type": "date"}


def _of_page(response: Response) -> dict[str, Any]:
    """Return the usual fields of a page (title, description, text) that this page has."""
    usual = {
        "title": "h1" if response.css("h1") else "title",
        "description": "meta[name=description]::attr(content)",
        "text": {
            "css": next(
                (selector for selector in ("main", "article", "body") if response.css(selector)), "body"
            ),
            "type": "markdown",
        },
    }
    found = {
        name: query for name, query in usual.items() if not isinstance(query, str) or response.css(query)
    }
    return {"fields": {**found, "url": {"value": "{url}"}}}


def _next(response: Response) -> str | dict[str, str] | None:
    for css in _NEXT_CSS:
        links = response.css(css)
        if len(links) and links[0].link:
            return css
    for link in response.css("a[href]"):
        text = " ".join("".join(link.css("::text").getall()).split())
        if _NEXT_WORDS.fullmatch(text) and '"' not in text:
            return {"xpath": f'//a[normalize-space()="{text}"]'}
    return None


# --- JSON and feeds -----------------------------------------------------------------------------------------


def _json_page(response: Response) -> dict[str, Any]:
    value = PageContext(response, "page", {}, form="json").root
    path, objects = max(_lists_in(value, ""), key=lambda found: len(found[1]), default=("", []))
    if not objects:
        if not isinstance(value, dict):
            raise PageError(f"{response.url} contains no objects", remedy="write the recipe yourself")
        return {"format": "json", "items": {"fields": _json_fields([value])}}
    page: dict[str, Any] = {
        "format": "json",
        "items": {"each": path or "[]", "fields": _json_fields(objects)},
    }
    if isinstance(value, dict):
        for name in ("next", "next_page", "next_url", "nextPage", "nextUrl"):
            if isinstance(value.get(name), str) and value[name].startswith(("http://", "https://", "/")):
                page["next"] = _quoted(name)
                break
    return page


def _lists_in(value: Any, path: str) -> list[tuple[str, list[dict[str, Any]]]]:
    if isinstance(value, list):
        return [(path, value)] if value and all(isinstance(element, dict) for element in value) else []
    if not isinstance(value, dict):
        return []
    return [
        found
        for name, inner in value.items()
        for found in _lists_in(inner, f"{path}.{_quoted(name)}".lstrip("."))
    ]


def _json_fields(objects: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name in dict.fromkeys(name for fields in objects for name in fields):
        plain = re.sub(r"\W+", "_", name).strip("_") or "field"
        deep = any(isinstance(values.get(name), (dict, list)) for values in objects)
        query = _quoted(name)
        fields[_unused(plain, fields)] = {"json": query, "type": "json"} if deep else query
    return fields


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else f'"{escaped}"'


def _feed_page(response: Response) -> dict[str, Any]:
    if not read_feed(response)["entries"]:
        raise PageError(f"{response.url} is not a feed with entries", remedy="write the recipe yourself")
    names = ("title", "published", "author")
    fields: dict[str, Any] = {name: name for name in names}
    fields["url"] = {"json": "link", "type": "url"}
    fields["summary"] = {"json": "summary", "type": "markdown"}
    fields["tags"] = {"json": "tags", "many": True}
    return {"format": "feed", "items": {"each": "entries", "fields": fields}}
