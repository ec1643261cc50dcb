"""CSV: every reader of RFC 4180 can read it; only the types are lost."""

import csv
import io
import json

from hypothesis import given
from hypothesis import strategies as st

from skitter.store.formats import csv_chunks

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


def as_csv(items) -> bytes:
    lines = [json.dumps(item).encode() for item in items]
    return b"".join(csv_chunks(lambda: lines))


def test_columns_have_the_order_in_which_they_are_first_seen():
    assert as_csv([{"b": 1, "a": 2}, {"c": 3, "a": 4}]) == b"b,a,c\r\n1,2,\r\n,4,3\r\n"


def test_values_are_text_or_json_and_none_is_empty():
    item = {"t": 'a "b",\n', "n": None, "y": True, "f": 1e300, "l": [1, {"x": "ü"}], "big": 10**30}
    row = 'a ""b"",\n"'
    expected = f't,n,y,f,l,big\r\n"{row},,true,1e+300,"[1, {{""x"": ""\\u00fc""}}]",{10**30}\r\n'
    assert as_csv([item]).decode() == expected


def test_cells_that_contain_the_chosen_delimiter_are_quoted():
    lines = [json.dumps({"a": "x;y", "b": "1,5"}).encode()]
    assert b"".join(csv_chunks(lambda: lines, delimiter=";")) == b'a;b\r\n"x;y";1,5\r\n'


def test_no_items_produce_no_bytes():
    assert as_csv([]) == b""


def test_many_rows_come_in_pieces():
    text = b"x" * 1000
    pieces = list(csv_chunks(lambda: [b'{"n":"%b"}' % text] * 1000))
    assert len(pieces) == 4
    assert b"".join(pieces) == b"n\r\n" + 1000 * (text + b"\r\n")


@given(st.lists(st.dictionaries(texts, texts, min_size=1, max_size=4), max_size=6))
def test_any_texts_come_back_from_a_strict_reader(items):
    data = as_csv(items).decode()
    read = list(csv.DictReader(io.StringIO(data, newline=""), strict=True))
    assert [{k: v for k, v in row.items() if v} for row in read] == [
        {k: v for k, v in item.items() if v} for item in items
    ]
