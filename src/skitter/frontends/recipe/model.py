"""The structure of a recipe, and its JSON Schema for editors (``schema.json`` in this package).

The fields ``css``, ``xpath`` and ``json`` of a class select values. ``json`` is JMESPath: on a JSON page, or (with
``css`` or ``xpath``) on JSON text in a page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, field

Css = Annotated[str, Meta(min_length=1, description="CSS; `::text` takes text, `::attr(name)` an attribute.")]
XPath = Annotated[str, Meta(min_length=1, description="XPath 1.0.")]
Json = Annotated[str, Meta(min_length=1, description="JMESPath.")]
RegExp = Annotated[str, Meta(min_length=1, description="Python regular expression.")]
PageName = Annotated[str, Meta(min_length=1, description="A name from `pages`.")]
QueueName = Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$", description="Queue of the requests.")]
Text = Annotated[str, Meta(min_length=1)]
Language = Annotated[str, Meta(min_length=2)]
Count = Annotated[int, Meta(ge=1)]
Period = Annotated[float, Meta(gt=0)]
Plain = str | int | float | bool | None
TypeName = Literal["str", "int", "float", "bool", "date", "datetime", "url", "html", "markdown", "json"]


class Selection(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A selection: one of `css`, `xpath` and `json`, or `json` combined with one of the others."""

    css: Css | None = None
    xpath: XPath | None = None
    json: Json | None = None


class Field(Selection, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A field of an item. Steps: select, strip, replace, regexp, split, type, join, default, script."""

    value: Annotated[
        Plain, Meta(description="A constant, or text with {url} or {data.NAME}, instead of a selector.")
    ] = None
    main_content: Annotated[
        Literal["markdown", "text"] | None,
        Meta(description="The main content of the page in this format, instead of a selector."),
    ] = None
    type: Annotated[TypeName | None, Meta(description="Type of the value. Default: str.")] = None
    many: Annotated[bool, Meta(description="Return all matches as a list. Default: the first match.")] = False
    strip: Annotated[bool, Meta(description="Remove whitespace at both ends. Default: true.")] = True
    replace: Annotated[
        list[Annotated[list[str], Meta(min_length=2, max_length=2)]],
        Meta(description="Pairs of a regular expression and its replacement."),
    ] = []
    regexp: Annotated[
        RegExp | None,
        Meta(description="Keep the match of this expression: its first group, or the whole match."),
    ] = None
    split: Annotated[Text | None, Meta(description="Separator at which the text is split into a list.")] = (
        None
    )
    join: Annotated[
        str | None, Meta(description="Separator with which all matches are joined to one text.")
    ] = None
    format: Annotated[
        str | list[str] | None,
        Meta(description="Date format for strptime; several formats are tried in order."),
    ] = None
    decimal: Annotated[Literal[".", ","], Meta(description="Decimal mark of a number. Default: a point.")] = (
        "."
    )
    locale: Annotated[Language | None, Meta(description="Language of a date, such as fr.")] = None
    default: Annotated[
        Any,
        Meta(
            description="Value if nothing is found, or if the match cannot be converted. Default: null or []."
        ),
    ] = UNSET
    required: Annotated[bool, Meta(description="Fail the page if nothing is found. Default: false.")] = False
    fields: Annotated[
        dict[str, str | Field] | Literal["same"] | None,
        Meta(
            description="Fields of nested objects, one object per match. `same`: the fields of the enclosing object."
        ),
    ] = None
    script: Annotated[
        Text | None, Meta(description="JavaScript expression that computes the field from `value`.")
    ] = None


class Items(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Items of a page: one, or one per match of `each`."""

    fields: Annotated[dict[str, str | Field], Meta(min_length=1)]
    each: Annotated[str | Selection, Meta(description="Block that contains one item. Default: the page.")] = (
        ""
    )
    when: Annotated[str | Selection | None, Meta(description="Skip items in which this finds nothing.")] = (
        None
    )


class Range(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A range of integers."""

    from_: Annotated[int, Meta(description="First number.")] = field(name="from")
    to: Annotated[int, Meta(description="Last number (inclusive).")]
    step: Count = 1


Choices = dict[str, list[str | int] | Range]


class Form(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A form to fill in and send, including its hidden fields."""

    form: Annotated[Css, Meta(description="CSS of the form.")] = "form"
    fields: Annotated[
        dict[str, str | int | list[str]], Meta(description="Values by the name of the form field.")
    ] = {}
    each: Annotated[Choices, Meta(description="Send the form once per combination of these values.")] = {}
    submit: Annotated[
        str | bool,
        Meta(description="CSS of the button to press; false: no button. Default: the first button."),
    ] = True


class Follow(Selection, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Links to follow."""

    page: Annotated[PageName, Meta(description="Kind of the pages that the links lead to.")]
    each: Annotated[
        str | Selection | None, Meta(description="Blocks that contain a link and its `data`.")
    ] = None
    match: Annotated[
        str | list[str], Meta(description="Follow only URLs that match one of these regular expressions.")
    ] = []
    skip: Annotated[
        str | list[str], Meta(description="Skip URLs that match one of these regular expressions.")
    ] = []
    url: Annotated[
        Text | None, Meta(description="Template of the URL; {value} is the value that the selector found.")
    ] = None
    data: Annotated[
        dict[str, str | Field], Meta(description="Values that the request carries to its page.")
    ] = {}
    form: Annotated[Form | None, Meta(description="Send this form instead of following links.")] = None
    first: Annotated[
        Count | None,
        Meta(description="Maximum number of links to follow per page; the first ones are followed."),
    ] = None
    priority: int = 0
    queue: QueueName = ""
    headers: dict[str, str] = {}


class Paginate(Selection, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """How to find the next page of a list: by a link, a number or a cursor."""

    parameter: Annotated[
        Text | None, Meta(description="Parameter of the URL or the body that contains the number or cursor.")
    ] = None
    place: Annotated[Literal["query", "form", "json"], Meta(description="Place of the parameter.")] = "query"
    from_: Annotated[int, Meta(description="Number or offset of the first page. Default: 1.")] = field(
        name="from", default=1
    )
    step: Annotated[
        int, Meta(ge=1, description="Increment to the next page; for an offset: the page size.")
    ] = 1
    last: Annotated[int | None, Meta(description="Last number to request.")] = None
    total: Annotated[
        str | Selection | None,
        Meta(description="Selection of the total number of results, at which an offset ends."),
    ] = None
    cursor: Annotated[
        str | Selection | None,
        Meta(description="Selection of the cursor of the next page. The list ends when nothing is found."),
    ] = None


class RecipePage(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A kind of page: its items and its links."""

    format: Annotated[
        Literal["auto", "html", "xml", "json", "feed"],
        Meta(description="Format of the page. Default: according to its Content-Type."),
    ] = "auto"
    expect: Annotated[
        str | Selection | None,
        Meta(
            description="Fail the page if this finds nothing, for example on a ban page or after a new layout."
        ),
    ] = None
    fetch: Annotated[
        Literal["http", "browser", "adaptive"] | None,
        Meta(description="Fetcher of the pages. Default: that of the job."),
    ] = None
    wait_for: Annotated[
        str | dict[str, Any],
        Meta(description="In a browser: CSS of an element to wait for, or a wait action."),
    ] = ""
    actions: Annotated[
        list[dict[str, Any]],
        Meta(description="In a browser: what to do with the page, such as {do: click, selector: button}."),
    ] = []
    items: Items | list[Items] = []
    script: Annotated[
        Text | None,
        Meta(description="JavaScript that reads the page with ctx.output(item) and ctx.follow(url, {page})."),
    ] = None
    follow: list[str | Follow] = []
    next: Annotated[
        str | Paginate | None, Meta(description="Selection of the next page of the same kind.")
    ] = None


class Start(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A start of the crawl: a page, a sitemap or a script."""

    url: Text | None = None
    sitemap: Annotated[
        Text | None, Meta(description="URL of a sitemap, a sitemap index or a robots.txt.")
    ] = None
    script: Annotated[
        Text | None, Meta(description="JavaScript that makes requests with ctx.follow(url, {page}).")
    ] = None
    page: Annotated[PageName | None, Meta(description="Kind of the page. Default: the first of `pages`.")] = (
        None
    )
    each: Annotated[
        Choices,
        Meta(description="Values by name; one request per combination, with {NAME} in the URL and the body."),
    ] = {}
    match: Annotated[
        str | list[str],
        Meta(description="For a sitemap: follow only URLs that match one of these regular expressions."),
    ] = []
    skip: Annotated[
        str | list[str],
        Meta(description="For a sitemap: skip URLs that match one of these regular expressions."),
    ] = []
    method: Annotated[str, Meta(pattern="^[A-Za-z]+$")] = "GET"
    headers: dict[str, str] = {}
    body: str | None = None
    form: dict[str, str | int] | None = None
    json: Any = None
    data: Annotated[dict[str, Plain], Meta(description="Values that the request carries to its page.")] = {}
    priority: int = 0
    queue: QueueName = ""


class Login(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A form that is sent first. Its cookies are sent with all later requests to its host."""

    url: Annotated[str, Meta(min_length=1, description="URL of the page with the form.")]
    fields: Annotated[dict[str, str | int], Meta(min_length=1)]
    form: Annotated[
        Css | None, Meta(description="CSS of the form. Default: the first form with a password field.")
    ] = None
    submit: str | bool = True
    check: Annotated[
        str | Selection,
        Meta(description="Selection that must find something on the next page; otherwise the login failed."),
    ]


class Recipe(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A spider for skitter: its starts, its items and its links."""

    name: Annotated[str, Meta(min_length=1, description="Default name of the job.")]
    start: Annotated[str | Start | list[str | Start], Meta(description="Start of the crawl.")]
    pages: Annotated[dict[str, RecipePage], Meta(min_length=1, description="Kinds of pages by name.")]
    recipe: Annotated[Literal[1], Meta(description="Version of this format.")] = 1
    description: str = ""
    variables: Annotated[
        dict[str, str | int | float | bool | None],
        Meta(description="Values of ${NAME} in all texts; -a NAME=VALUE replaces them. null: required."),
    ] = {}
    allowed_domains: Annotated[
        Literal["any"] | list[str] | None,
        Meta(description="Domains to stay within. Default: the hosts of `start`."),
    ] = None
    languages: Annotated[
        list[str],
        Meta(
            description="Languages: each start is requested once per language, with {language} and Accept-Language."
        ),
    ] = []
    login: Login | None = None
    cookies: Annotated[
        dict[str, str], Meta(description="Cookies for all requests to the hosts of `start`.")
    ] = {}
    priority: Annotated[int, Meta(description="Added to the priority of every request.")] = 0
    reload: Annotated[
        Period | None,
        Meta(description="Length of a period in seconds; each page is fetched once per period."),
    ] = None
    settings: Annotated[dict[str, Any], Meta(description="Settings of the job, such as delay.")] = {}
    outputs: Annotated[list[str], Meta(description="Default outputs of the items.")] = []


def scripts_in(
    part: Any, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], str, bool]]:
    """Yield the scripts in a part of a recipe, each with its path and whether it is a rule (reads pages or starts the crawl)."""
    if isinstance(part, (Field, RecipePage, Start)) and part.script is not None:
        yield (*path, "script"), part.script, not isinstance(part, Field)
    if isinstance(part, Struct):
        nested: Iterable[tuple[str | int, Any]] = (
            (name, getattr(part, name)) for name in part.__struct_fields__
        )
    elif isinstance(part, dict):
        nested = part.items()
    else:
        nested = enumerate(part) if isinstance(part, list) else ()
    for place, inner in nested:
        yield from scripts_in(inner, (*path, place))


def reads_content(part: Any) -> bool:
    """Return whether a part of a recipe has a field with the main content of the page."""
    if isinstance(part, Field) and part.main_content is not None:
        return True
    if isinstance(part, Struct):
        part = [getattr(part, name) for name in part.__struct_fields__]
    nested = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    return any(map(reads_content, nested))


SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def make_schema() -> dict[str, Any]:
    """Generate the schema from the classes above."""
    return {"$schema": SCHEMA_DIALECT, "title": "skitter recipe", **msgspec.json.schema(Recipe)}


@cache
def published_schema() -> dict[str, Any]:
    """Return the published schema, ``schema.json``."""
    text = (files("skitter.frontends.recipe") / "schema.json").read_bytes()
    found: dict[str, Any] = msgspec.json.decode(text)
    return found


# msgspec inspects a type at its first conversion, and crashes the process if several threads do that at the same time.
# This decoder triggers the inspection while the module is imported under the import lock.
msgspec.json.Decoder(Recipe)
