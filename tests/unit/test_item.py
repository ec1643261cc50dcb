"""Items: their types, and their stored form."""

import dataclasses
import datetime as dt
import decimal
import enum
import ipaddress
import json
import types
import uuid
from pathlib import Path
from typing import TypedDict

import attrs
import msgspec
import pydantic
import pydantic_core
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skitter.errors import StoreError
from skitter.html.selector import Selector
from skitter.item import class_paths, encode_item, is_item, item_fields, item_kind, pack_items, unpack_items
from skitter.request import Request


@dataclasses.dataclass
class Page:
    url: str
    tags: list = dataclasses.field(default_factory=list)


@attrs.define
class Author:
    name: str
    page: object = None


class Product(pydantic.BaseModel):
    name: str
    price: decimal.Decimal = decimal.Decimal("9.90")
    seen: dt.date = dt.date(2026, 11, 21)


class Linked(pydantic.BaseModel):
    link: pydantic.HttpUrl


class Point(msgspec.Struct):
    x: int


class Row(TypedDict):
    a: int


class Colour(enum.Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("item", "fields"),
    [
        ({"a": 1}, {"a": 1}),
        (Row(a=1), {"a": 1}),
        (types.MappingProxyType({"a": 1}), {"a": 1}),
        (Page("u", ["x"]), {"url": "u", "tags": ["x"]}),
        (Author("n", Page("u")), {"name": "n", "page": {"url": "u", "tags": []}}),
        (Product(name="n"), {"name": "n", "price": "9.90", "seen": "2026-11-21"}),
        (Linked(link="https://h.test"), {"link": "https://h.test/"}),
        (Point(1), {"x": 1}),
        ({"inner": Product(name="n"), "list": [Author("a")]},
         {"inner": {"name": "n", "price": "9.90", "seen": "2026-11-21"}, "list": [{"name": "a", "page": None}]}),
    ],
)  # fmt: skip
def test_every_kind_of_item_is_written_with_its_fields(item, fields):
    assert is_item(item)
    assert json.loads(encode_item(item)) == fields
    assert item_fields(item) == fields


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, None), (True, True), (1.5, 1.5), (2**70, 2**70), ("é\n", "é\n"), (b"\x00\xff", "AP8="),
        (decimal.Decimal("1.10"), "1.10"), (dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC), "2026-01-02T03:04:05Z"),
        (dt.time(1, 2), "01:02:00"), (uuid.UUID(int=1), str(uuid.UUID(int=1))), (Path("/a/b"), "/a/b"),
        (Colour.RED, "red"), ((1, 2), [1, 2]), ({1}, [1]), ({1: 2}, {"1": 2}),
        (pydantic.HttpUrl("https://h.example"), "https://h.example/"), (ipaddress.ip_address("::1"), "::1"),
        (pydantic_core.Url("ftp://h.example/f"), "ftp://h.example/f"), (ipaddress.ip_network("10.0.0.0/8"), "10.0.0.0/8"),
    ],
)  # fmt: skip
def test_values_beyond_json_have_one_form(value, written):
    assert json.loads(encode_item({"v": value})) == {"v": written}
    fields = item_fields({"v": value})
    assert fields == {"v": tuple(written) if isinstance(value, tuple) else written}


def test_a_line_break_in_a_value_does_not_break_the_line():
    assert b"\n" not in encode_item({"a": "x\ny\r\n\u2028", "b\n": 1})


def test_half_a_character_is_replaced_rather_than_losing_the_item():
    item = {"t": "cut \ud83d", "l": ["\udc00"], "ok\ud800": 1}
    assert json.loads(encode_item(item)) == {
        "t": "cut \ufffd",
        "l": ["\ufffd"],
        "ok\ufffd": 1,
    }


@pytest.mark.parametrize(
    ("item", "field", "kind"),
    [
        ({"a": 1, "b": object()}, "field b ", "object"),
        ({"a": [1, {"c": 1j}]}, "field a.1.c ", "complex"),
        (Page("u", [print]), "field tags.0 ", "builtin"),
        (Author("n", Author("m", object())), "field page.page ", "object"),
        ({"title": Selector("<p>x</p>").css("p")}, "field title ", "selector"),
        ({"title": Selector("<p>x</p>").css("p")[0]}, "field title ", "selector"),
    ],
)
def test_a_value_that_cannot_be_written_is_named_with_its_field(item, field, kind):
    for write in (encode_item, item_fields):
        with pytest.raises(StoreError) as caught:
            write(item)
        assert field in str(caught.value)
        assert kind in str(caught.value)
        assert caught.value.remedy


def test_keys_are_the_same_strings_whatever_types_of_values_are_kept():
    day, number = dt.date(2026, 1, 2), uuid.UUID(int=7)
    item = {"prices": {day: [{number: day}], b"x": 1, decimal.Decimal("1.5"): 2, 3: 4}}
    expected = {"2026-01-02": [{str(number): day}], "eA==": 1, "1.5": 2, "3": 4}
    assert item_fields(item, keep=(bytes, dt.date, decimal.Decimal, uuid.UUID)) == {"prices": expected}
    assert unpack_items(pack_items([item])) == [{"prices": expected}]
    assert list(json.loads(encode_item(item))["prices"]) == list(expected)
    with pytest.raises(StoreError, match="prices"):
        item_fields({"prices": {(day,): 1}}, keep=(dt.date,))


def test_a_key_that_is_not_a_string_and_an_endless_item_are_rejected():
    endless = {}
    endless["self"] = endless
    for item in ({(1, 2): 3}, {True: 3}, endless):
        for write in (encode_item, item_fields):
            with pytest.raises(StoreError):
                write(item)


@pytest.mark.parametrize(
    "other", ["text", 1, None, [{"a": 1}], ("a",), {1}, object(), Page, Request("http://h/"), b"x"]
)
def test_other_objects_are_not_items(other):
    assert not is_item(other)


@pytest.mark.parametrize("other", ["text", [1], 5])
def test_an_object_that_is_not_an_item_is_not_written(other):
    for write in (encode_item, item_fields):
        with pytest.raises(StoreError, match="not an item"):
            write(other)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_plain_items_come_back_as_they_were(item):
    encoded = encode_item(item)
    assert json.loads(encoded) == item
    assert item_fields(item) == item
    assert b"\n" not in encoded


class Book(dict):
    pass


class LongPage(Page):
    pass


@pytest.mark.parametrize(
    ("item", "paths"),
    [
        ({"a": 1}, ["builtins.dict"]),
        (Book(a=1), [f"{__name__}.Book", "builtins.dict"]),
        (LongPage("http://h/"), [f"{__name__}.LongPage", f"{__name__}.Page"]),
    ],
)
def test_a_stored_item_keeps_the_paths_of_its_classes(item, paths):
    assert list(class_paths(item)) == paths
    (stored,) = unpack_items(pack_items([item]))
    assert list(class_paths(stored)) == paths
    assert item_kind(stored) == item_kind(item)
    (again,) = unpack_items(pack_items([stored]))  # an item that waits for a second file
    assert (list(class_paths(again)), item_kind(again)) == (paths, item_kind(item))


def test_an_item_that_an_older_version_stored_has_the_name_of_its_class():
    fields = msgspec.msgpack.encode({"a": 1})
    found = unpack_items(msgspec.msgpack.encode([("Book", fields), ("", fields)]))
    assert [class_paths(item) for item in found] == [("Book",), ("builtins.dict",)]


def test_the_module_of_a_class_in_a_spider_file_has_the_name_of_the_file():
    kind = type("Book", (dict,), {"__module__": "skitter_spider_shop"})
    assert class_paths(kind())[0] == "shop.Book"
