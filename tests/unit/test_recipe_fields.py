"""Fields: from the content of a page to the value of an item."""

import msgspec
import pytest

from recipe_runs import compile_text
from skitter import Request, Response
from skitter.content import extraction
from skitter.frontends.recipe.fields import to_json
from skitter.frontends.recipe.page_context import PageContext, PageError
from skitter.frontends.recipe.source import RecipeError
from skitter.item import encode_item

PAGE = """<!doctype html><base href="http://x/base/"><h1> A <b>long</b>
  title </h1><p class="price">from 1,234.50 €</p><p class="de">1.234,50 €</p><p class="neg">\u22125 °C</p>
<ul><li>one</li><li> </li><li>two</li></ul><span class="mark"></span><span class="no">No</span><i class="yes">sure</i>
<a href="a/b?x=1#f">link</a><img src="/i.png"><a name="nowhere">x</a><div><p>Some <em>rich</em> text</p></div>
<time>2026-03-05T10:00:00+01:00</time><time>Thu, 05 Mar 2026 10:00:00 GMT</time><time>05.03.2026</time>
<script type="application/ld+json">{"name": "thing", "tags": ["a", "b"], "price": "7.5", "n": 3}</script>
<p class="stamp">1772704800</p><p class="big">9007199254740993</p><b class="tags">x, y ,z</b>"""


def item_of(fields, body=PAGE, kind="text/html; charset=utf-8", data=None, page="page"):
    """Read one item from a page with the fields of a recipe."""
    recipe = {"name": "x", "start": "http://x/", "pages": {page: {"items": {"fields": fields}}}}
    reader = compile_text(msgspec.json.encode(recipe).decode(), "r.yaml").pages[page]
    response = Response(
        "http://x/p",
        headers={"content-type": kind},
        body=body.encode(),
        request=Request("http://x/p", depth=2),
    )
    (item,) = reader.read(PageContext(response, page, data or {}, form=reader.format))
    return msgspec.json.decode(encode_item(item))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("h1", "A long title"),
        ({"css": "h1::text", "many": True}, ["A", "title"]),
        ({"css": "h1::text", "strip": False}, " A "),
        ({"css": "h1", "type": "html"}, "<h1> A <b>long</b>\n  title </h1>"),
        ({"css": "h1", "regexp": r"(\w+)$"}, "title"),
        ({"css": "h1", "regexp": "never"}, None),
        ({"css": "h1", "regexp": "never", "default": "none"}, "none"),
        ({"css": "h1", "replace": [["long", "short"], [r"\s+", "-"]]}, "A-short-title"),
        ({"css": ".price", "type": "float"}, 1234.5),
        ({"css": ".de", "type": "float", "decimal": ","}, 1234.5),
        ({"css": ".neg", "type": "int"}, -5),
        ({"css": ".big", "type": "int"}, 9007199254740993),
        ({"css": ".price", "type": "int", "default": -1}, -1),
        ({"css": "h1", "type": "float", "default": 0}, 0),
        ({"css": "li", "many": True}, ["one", "two"]),
        ({"css": "li", "join": ", "}, "one, two"),
        ({"css": "li"}, "one"),
        ({"css": "td", "many": True}, []),
        ({"css": "td", "many": True, "default": ["none"]}, ["none"]),
        ({"css": "td", "join": " "}, None),
        ({"css": ".mark", "type": "bool"}, True),
        ({"css": ".no", "type": "bool"}, False),
        ({"css": ".yes", "type": "bool"}, True),
        ({"css": ".absent", "type": "bool"}, False),
        ({"css": "a", "type": "url"}, "http://x/base/a/b?x=1"),
        ({"css": "img::attr(src)", "type": "url"}, "http://x/i.png"),
        ({"css": "a", "type": "url", "many": True}, ["http://x/base/a/b?x=1"]),
        ({"css": "div", "type": "markdown"}, "Some *rich* text"),
        ({"css": "time", "type": "datetime"}, "2026-03-05T10:00:00+01:00"),
        ({"xpath": "//time[2]", "type": "datetime"}, "2026-03-05T10:00:00Z"),
        ({"xpath": "//time[3]", "type": "date", "format": ["%Y", "%d.%m.%Y"]}, "2026-03-05"),
        ({"css": ".stamp", "type": "datetime"}, "2026-03-05T10:00:00Z"),
        ({"css": "script::text", "json": "name"}, "thing"),
        ({"css": "script::text", "json": "tags", "many": True}, ["a", "b"]),
        ({"css": "script::text", "json": "tags", "type": "json"}, ["a", "b"]),
        ({"css": "script::text", "json": "price", "type": "float"}, 7.5),
        ({"css": "script::text", "json": "n"}, 3),
        ({"css": "script::text", "json": "n", "type": "str"}, "3"),
        ({"css": ".tags", "split": ","}, ["x", "y", "z"]),
        ({"xpath": "count(//li)", "type": "int"}, 3),
        ({"value": 5}, 5),
        ({"value": "at {url}, depth {depth}"}, "at http://x/p, depth 2"),
        ({"value": "{data.rank}"}, 7),
        ({"value": "{data.nothing}", "default": "-"}, "-"),
        ({"value": "{url}", "regexp": "/(.)$"}, "p"),
        ({"fields": {"a": "h1", "b": {"css": ".neg", "type": "int"}}}, {"a": "A long title", "b": -5}),
        ({"css": "li", "many": True, "fields": {"t": {"xpath": "."}}}, [{"t": "one"}, {"t": None}, {"t": "two"}]),
    ],
)  # fmt: skip
def test_a_field_yields(field, value):
    assert item_of({"f": field}, data={"rank": 7}) == {"f": value}


@pytest.mark.parametrize(
    ("field", "detail"),
    [
        ({"css": "td", "required": True}, "'td'"),
        ({"css": "h1", "type": "float"}, "'A long title'"),
        ({"css": ".price", "type": "int"}, "'from 1,234.50 €'"),
        ({"css": "h1", "type": "date"}, "'A long title'"),
        ({"css": "h1", "type": "date", "format": "%Y"}, "%Y"),
        ({"css": "h1", "json": "a"}, "JSON"),
    ],
)
def test_a_missing_field_fails_the_page_and_is_named(field, detail):
    with pytest.raises(PageError) as caught:
        item_of({"f": field})
    assert caught.value.field == "f"
    assert detail in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "n"),
        ("deep.value", 1.5),
        ("list", "a"),
        ({"json": "list", "type": "json"}, ["a", "b"]),
        ({"json": "list", "many": True}, ["a", "b"]),
        ({"json": "yes", "type": "bool"}, True),
        ("yes", True),
        ("nothing", None),
        ({"json": "people", "many": True, "fields": {"n": "name"}}, [{"n": "p"}, {"n": "q"}]),
        ({"json": "when", "type": "date"}, "2026-03-05"),
        ({"json": "link", "type": "url"}, "http://x/y"),
        ({"json": "html", "type": "markdown"}, "**b**"),
        ({"json": "number", "type": "float", "decimal": ","}, 1.5),
    ],
)
def test_a_field_of_a_json_page_yields(field, value):
    body = """{"name": "n", "deep": {"value": 1.5}, "list": ["a", "b"], "yes": true, "nothing": null,
        "people": [{"name": "p"}, {"name": "q"}], "when": "2026-03-05T00:00:00Z", "link": "/y", "html": "<b>b</b>",
        "number": "1,5"}"""
    recipe = {
        "name": "x",
        "start": "http://x/",
        "pages": {"p": {"format": "json", "items": {"fields": {"f": field}}}},
    }
    reader = compile_text(msgspec.json.encode(recipe).decode(), "r.yaml").pages["p"]
    response = Response("http://x/p", headers={"content-type": "application/json"}, body=body.encode())
    (item,) = reader.read(PageContext(response, "p", {}, form="json"))
    assert msgspec.json.decode(encode_item(item)) == {"f": value}


def test_css_on_a_json_page_is_an_error():
    with pytest.raises(PageError, match="'h1'"):
        item_of({"f": "h1"}, body="{}", kind="application/json")


def test_fields_see_those_above_them():
    assert item_of({"a": "h1", "b": {"value": "{item.a}!"}}) == {"a": "A long title", "b": "A long title!"}


def test_a_field_has_the_main_content_of_the_page():
    pytest.importorskip("trafilatura", reason="trafilatura is not installed")
    body = "<nav><a href=/>Home</a></nav><main><h1>Title</h1><p>A text with <b>bold</b> words.</p></main>"
    fields = {"both": {"main_content": "markdown"}, "plain": {"main_content": "text", "regexp": "A .*"}}
    assert item_of(fields, body) == {
        "both": "# Title\n\nA text with **bold** words.", "plain": "A text with bold words.",
    }  # fmt: skip
    assert item_of({"none": {"main_content": "text", "default": ""}}, "<title>x</title>") == {"none": ""}


def test_a_page_whose_main_content_cannot_be_extracted_has_the_default_or_fails():
    pytest.importorskip("trafilatura", reason="trafilatura is not installed")
    body = "<html><body><p>" + "x" * (extraction.MAX_CHARACTERS + 1)
    assert item_of({"text": {"main_content": "markdown", "default": "-"}}, body) == {"text": "-"}
    with pytest.raises(PageError, match="field text: too_large: "):
        item_of({"text": {"main_content": "markdown"}}, body)


def test_main_content_excludes_other_sources_of_a_value():
    for other in ({"css": "p"}, {"value": 1}, {"fields": {"a": "p"}}):
        with pytest.raises(RecipeError, match="main_content excludes selectors, value and fields"):
            item_of({"text": {"main_content": "text", **other}})


def test_json_that_is_nested_too_deeply_is_invalid():
    with pytest.raises(ValueError, match="invalid JSON"):
        to_json("[" * 100_000 + "]" * 100_000)
