"""Values of classes that are derived from built-in ones, in items, requests and JSON bodies."""

import datetime as dt
import decimal
import json

import lxml.html
import pytest

from skitter.item import encode_item, item_fields, pack_items, unpack_items
from skitter.request import Request, as_builtin, decode_request, encode_request, fingerprint


class Text(str):
    __slots__ = ()

    def __str__(self):
        return "another text"


class Integer(int):
    pass


class Number(float):
    pass


class Data(bytes):
    pass


class Amount(decimal.Decimal):
    pass


class Moment(dt.datetime):
    """As pandas and pendulum derive their classes."""


class Day(dt.date):
    pass


class Span(dt.timedelta):
    pass


NOON = dt.datetime(2026, 1, 2, 12, 0, 0, 5, tzinfo=dt.timezone(dt.timedelta(hours=2)))
DERIVED = [
    (lxml.html.fromstring("<p>of lxml</p>").xpath("//p/text()")[0], "of lxml"),
    (Text("a"), "a"),
    (Integer(3), 3),
    (Number(1.5), 1.5),
    (Data(b"\x00"), b"\x00"),
    (Amount("1.10"), decimal.Decimal("1.10")),
    (Moment(2026, 1, 2, 12, 0, 0, 5, tzinfo=NOON.tzinfo), NOON),
    (Day(2026, 1, 2), dt.date(2026, 1, 2)),
    (Span(1, 2, 3), dt.timedelta(1, 2, 3)),
]


@pytest.mark.parametrize(("value", "builtin"), DERIVED)
def test_an_item_is_written_as_with_the_built_in_value(value, builtin):
    assert type(value) is not type(builtin)
    assert encode_item({"v": value}) == encode_item({"v": builtin})
    assert item_fields({"v": [value]}) == item_fields({"v": [builtin]})
    found = unpack_items(pack_items([{"v": value}]))[0]["v"]
    assert (found, type(found)) == (builtin, type(builtin))


@pytest.mark.parametrize(
    ("value", "builtin"), [pair for pair in DERIVED if isinstance(pair[1], (str, int, float))]
)
def test_a_request_is_stored_as_with_the_built_in_value(value, builtin):
    found, expected = (
        Request("http://h/", meta={"v": [each]}, cb_kwargs={"v": each}, fingerprint_keys=("v",))
        for each in (value, builtin)
    )
    assert encode_request(found) == encode_request(expected)
    assert fingerprint(found, 1) == fingerprint(expected, 1)
    assert (
        Request.json("http://h/", {"v": value}).body
        == json.dumps({"v": builtin}, separators=(",", ":")).encode()
    )


def test_texts_of_a_derived_class_can_be_headers_and_cookies():
    request = Request("http://h/", headers={"X-A": Text("a")}, cookies={"c": Text("b")}, session=Text("s"))
    stored = decode_request("http://h/", encode_request(request))
    assert (stored.headers, stored.cookies, stored.session) == ({"X-A": "a"}, {"c": "b"}, "s")


@pytest.mark.parametrize("value", [True, None, object(), [1]])
def test_other_values_are_refused(value):
    with pytest.raises(TypeError, match=type(value).__name__):
        as_builtin(value)
