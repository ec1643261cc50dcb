"""Model: what may stand in a recipe. The published JSON Schema is made from these classes.

Wherever a class has ``css``, ``xpath`` and ``json`` they select; ``json`` is JMESPath, on a JSON page or (after ``css``
or ``xpath``) on JSON text that was found in a page.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, field

Css = Annotated[str, Meta(min_length=1, description="CSS; `::text` takes text, `::attr(name)` an attribute.")]
XPath = Annotated[str, Meta(min_length=1, description="XPath 1.0.")]
Json = Annotated[str, Meta(min_length=1, description="JMESPath.")]
RegExp = Annotated[str, Meta(min_length=1, description="Regular expression of Python.")]
PageName = Annotated[str, Meta(min_length=1, description="One of the names in `pages`.")]
QueueName = Annotated[
    str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$", description="The queue in which its requests wait.")
]
Plain = str | int | float | bool | None
TypeName = Literal["str", "int", "float", "bool", "date", "datetime", "url", "html", "markdown", "json"]


class Selection(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Where to look: one of `css`, `xpath`, `json`, or `json` after one of the others."""

    css: Css | None = None
    xpath: XPath | None = None
    json: Json | None = None


class Field(Selection, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A field of an item. Steps: select, strip, replace, regexp, split, type, join, default, script."""

    value: Annotated[
        Plain, Meta(description="Instead of a selector: a constant, or text with {url}, {data.NAME}.")
    ] = None
    type: Annotated[TypeName, Meta(description="What the value is made; default str.")] | None = None
    many: Annotated[bool, Meta(description="All matches as a list; default: the first one.")] = False
    strip: Annotated[bool, Meta(description="Take white space off both ends; default true.")] = True
    replace: Annotated[
        list[Annotated[list[str], Meta(min_length=2, max_length=2)]],
        Meta(description="Pairs: a regular expression and what its matches become."),
    ] = []
    regexp: (
        Annotated[RegExp, Meta(description="Keep its match: the first group, or all if it has none.")] | None
    ) = None
    split: Annotated[str, Meta(min_length=1, description="Make a list at this separator.")] | None = None
    join: Annotated[str, Meta(description="Make one text of all matches, with this between them.")] | None = (
        None
    )
    format: (
        Annotated[str | list[str], Meta(description="Of a date, as in strptime; several are tried in order.")]
        | None
    ) = None
    decimal: Annotated[Literal[".", ","], Meta(description="Decimal mark of a number; default a point.")] = (
        "."
    )
    locale: (
        Annotated[str, Meta(min_length=2, description="Language in which a date is written, such as fr.")]
        | None
    ) = None
    default: Annotated[
        Any, Meta(description="When nothing is found, or what is found is not of its type; else null or [].")
    ] = UNSET
    required: Annotated[bool, Meta(description="No item without it: the page fails. Default false.")] = False
    fields: (
        Annotated[
            dict[str, str | Field] | Literal["same"],
            Meta(
                description="Fields of nested objects, one for each match; `same`: those of the object around it."
            ),
        ]
        | None
    ) = None
    script: Annotated[str, Meta(min_length=1, description="JavaScript expression over `value`.")] | None = (
        None
    )


class Items(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Items of a page: one, or one for each match of `each`."""

    fields: Annotated[dict[str, str | Field], Meta(min_length=1)]
    each: Annotated[str | Selection, Meta(description="What one item is made from; default: the page.")] = ""
    when: (
        Annotated[str | Selection, Meta(description="No item unless this finds something in it.")] | None
    ) = None


class Form(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A form to fill in and send, its hidden fields included."""

    form: Annotated[Css, Meta(description="The form.")] = "form"
    fields: Annotated[dict[str, str | int | list[str]], Meta(description="Values by field name.")] = {}
    each: Annotated[
        dict[str, list[str | int] | Range], Meta(description="Sent once for each combination of these.")
    ] = {}
    submit: Annotated[
        str | bool, Meta(description="The button to press (CSS), false for none; default: the first.")
    ] = True


class Range(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Numbers in a row."""

    from_: Annotated[int, Meta(description="The first one.")] = field(name="from")
    to: Annotated[int, Meta(description="The last one.")]
    step: Annotated[int, Meta(ge=1)] = 1


class Follow(Selection, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Links to follow."""

    page: Annotated[PageName, Meta(description="What they lead to.")]
    each: Annotated[str | Selection, Meta(description="Blocks that hold a link and its `data`.")] | None = (
        None
    )
    match: Annotated[
        str | list[str], Meta(description="Only URLs in which one of these regular expressions is found.")
    ] = []
    skip: Annotated[
        str | list[str], Meta(description="No URLs in which one of these regular expressions is found.")
    ] = []
    url: (
        Annotated[str, Meta(min_length=1, description="Makes the URL: {value} is what the selector found.")]
        | None
    ) = None
    data: Annotated[
        dict[str, str | Field], Meta(description="Values that travel with the link to its page.")
    ] = {}
    form: Annotated[Form | None, Meta(description="Send this form instead of following links.")] = None
    first: (
        Annotated[int, Meta(ge=1, description="Follow only so many links of a page, the first ones.")] | None
    ) = None
    priority: int = 0
    queue: QueueName = ""
    headers: dict[str, str] = {}


class Paginate(Selection, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """How to come to the next page of a list: a link, a number or a cursor."""

    parameter: (
        Annotated[
            str, Meta(min_length=1, description="Of the URL or the body: it gets the number or cursor.")
        ]
        | None
    ) = None
    place: Annotated[Literal["query", "form", "json"], Meta(description="Where it stands.")] = "query"
    from_: Annotated[int, Meta(description="Number of the first page, or its offset; default 1.")] = field(
        name="from", default=1
    )
    step: Annotated[int, Meta(ge=1, description="To the next page; of an offset the page size.")] = 1
    last: Annotated[int, Meta(description="The last number that is asked for.")] | None = None
    total: (
        Annotated[str | Selection, Meta(description="Finds how many there are; an offset ends there.")] | None
    ) = None
    cursor: (
        Annotated[str | Selection, Meta(description="Finds the cursor of the next page; none: the end.")]
        | None
    ) = None


class RecipePage(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A kind of page: what it holds, and where it leads."""

    format: Annotated[
        Literal["auto", "html", "xml", "json", "feed"],
        Meta(description="How it is read; default by its Content-Type."),
    ] = "auto"
    expect: (
        Annotated[
            str | Selection,
            Meta(description="The page fails unless this is found: a ban page, a new layout."),
        ]
        | None
    ) = None
    items: Items | list[Items] = []
    script: (
        Annotated[
            str, Meta(min_length=1, description="JavaScript rule: ctx.output(item), ctx.follow(url, {page})")
        ]
        | None
    ) = None
    follow: list[str | Follow] = []
    next: Annotated[str | Paginate | None, Meta(description="The next page of the same kind.")] = None


class Start(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Where to begin: a page, a sitemap or a script."""

    url: Annotated[str, Meta(min_length=1)] | None = None
    sitemap: (
        Annotated[str, Meta(min_length=1, description="A sitemap, an index of them, or a robots.txt.")] | None
    ) = None
    script: (
        Annotated[
            str, Meta(min_length=1, description="JavaScript that gives requests: ctx.follow(url, {page})")
        ]
        | None
    ) = None
    page: Annotated[PageName | None, Meta(description="Its kind; default: the first of `pages`.")] = None
    each: Annotated[
        dict[str, list[str | int] | Range],
        Meta(description="One request for each combination; {NAME} in it."),
    ] = {}
    match: Annotated[str | list[str], Meta(description="Of a sitemap: only URLs in which one is found.")] = []
    skip: Annotated[str | list[str], Meta(description="Of a sitemap: no URLs in which one is found.")] = []
    method: Annotated[str, Meta(pattern="^[A-Za-z]+$")] = "GET"
    headers: dict[str, str] = {}
    body: str | None = None
    form: dict[str, str | int] | None = None
    json: Any = None
    data: Annotated[dict[str, Plain], Meta(description="Values that travel to its page.")] = {}
    priority: int = 0
    queue: QueueName = ""


class Login(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A form that is sent before anything else; its cookies go with all later requests to that host."""

    url: Annotated[str, Meta(min_length=1, description="The page with the form.")]
    fields: Annotated[dict[str, str | int], Meta(min_length=1)]
    form: Annotated[Css, Meta(description="Default: the first form with a password field.")] | None = None
    submit: str | bool = True
    check: Annotated[
        str | Selection, Meta(description="Must be found on the page after it, else the login has failed.")
    ]


class Recipe(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A spider for skitter: where to start, what to take, what to follow."""

    name: Annotated[str, Meta(min_length=1, description="Name of the job unless another is given.")]
    start: Annotated[str | list[str | Start], Meta(description="Where to begin.")]
    pages: Annotated[dict[str, RecipePage], Meta(min_length=1, description="The kinds of pages, by name.")]
    recipe: Annotated[Literal[1], Meta(description="Version of this format.")] = 1
    description: str = ""
    variables: Annotated[
        dict[str, str | int | float | bool | None],
        Meta(description="Stand for ${NAME} in all texts; -a NAME=VALUE sets them; null: has to be set."),
    ] = {}
    allowed_domains: Annotated[
        Literal["any"] | list[str] | None, Meta(description="Default: the hosts of `start`.")
    ] = None
    languages: Annotated[
        list[str], Meta(description="Each start once a language: {language}, Accept-Language.")
    ] = []
    login: Login | None = None
    cookies: Annotated[
        dict[str, str], Meta(description="Sent to the hosts of `start` with every request.")
    ] = {}
    priority: Annotated[int, Meta(description="Added to that of every request.")] = 0
    reload: (
        Annotated[float, Meta(gt=0, description="Fetch pages anew in each period of so many seconds.")] | None
    ) = None
    settings: Annotated[dict[str, Any], Meta(description="Settings of the job, such as delay.")] = {}
    outputs: Annotated[list[str], Meta(description="Where items go unless the command line says.")] = []


SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def make_schema() -> dict[str, Any]:
    """Make the schema from the model."""
    return {"$schema": SCHEMA_DIALECT, "title": "skitter recipe", **msgspec.json.schema(Recipe)}


@cache
def published_schema() -> dict[str, Any]:
    """Return the schema that is published with this version."""
    text = (files("skitter.frontends.recipe") / "schema.json").read_bytes()
    found: dict[str, Any] = msgspec.json.decode(text)
    return found
