"""JSON arrays, XML, Excel files and selected fields, checked with independent readers."""

import gzip
import io
import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree
from openpyxl import load_workbook
from pyarrow import parquet

from skitter.errors import StoreError
from skitter.store.excel import MAX_TEXT, write_excel
from skitter.store.formats import csv_chunks, json_chunks, xml_chunks
from skitter.store.merge import fill
from skitter.store.outputs import FORMATS, open_output

ITEMS = [
    {"title": "a < b & 'c'", "price": 1.5, "tags": ["x", "y"]},
    {"title": None, "more": {"a b": True, "1": 2}},
]
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def lines_of(items):
    return [json.dumps(item).encode() for item in items]


class Source:
    """Items as part files contain them."""

    def __init__(self, items):
        self._lines = lines_of(items)

    def lines(self):
        return iter(self._lines)

    def chunks(self):
        return iter([line + b"\n" for line in self._lines])


def written(kind, items):
    """Return the bytes of an output with this name, which may select fields."""
    file = io.BytesIO()
    fill(file, Source(items), open_output(kind)._format, kind)
    return file.getvalue()


@pytest.mark.parametrize("items", [[], ITEMS[:1], ITEMS])
def test_a_json_array_holds_the_items(items):
    text = b"".join(json_chunks(lines_of(items)))
    assert json.loads(text) == items
    assert text.count(b"\n") == (len(items) + 2 if items else 1)


def test_xml_has_the_form_of_scrapys_exporter():
    root = etree.fromstring(b"".join(xml_chunks(lines_of(ITEMS))))
    assert [root.tag, *(item.tag for item in root)] == ["items", "item", "item"]
    assert root[0].findtext("title") == "a < b & 'c'"
    assert root[0].findtext("price") == "1.5"
    assert [value.text for value in root[0].find("tags").iter("value")] == ["x", "y"]
    assert root[1].find("title").text is None
    assert root[1].find("more").findtext("a_b") == "true"
    assert root[1].find("more").findtext("_1") == "2"


@given(st.lists(st.dictionaries(texts, texts | st.lists(texts, max_size=2), max_size=3), max_size=4))
def test_any_item_becomes_well_formed_xml(items):
    root = etree.fromstring(b"".join(xml_chunks(lines_of(items))))
    assert len(root) == len(items)
    assert [len(item) for item in root] == [len(item) for item in items]


def test_an_item_that_is_deeply_nested_becomes_xml():
    value = "end"
    for _ in range(450):
        value = {"more": [value]}
    root = etree.fromstring(
        b"".join(xml_chunks(lines_of([{"deep": value}]))), etree.XMLParser(huge_tree=True)
    )
    assert root.xpath("string(//value[not(*)])") == "end"
    assert len(root.xpath("//more")) == 450


def sheets(data):
    book = load_workbook(io.BytesIO(data))
    return [[[cell.value for cell in row] for row in sheet.iter_rows()] for sheet in book.worksheets]


def test_excel_holds_the_values_and_texts_are_never_formulas():
    items = [{"a": "=1+1", "b": 2, "c": True}, {"b": 10**20, "d": ["x"], "a": "http://example.com/"}]
    (rows,) = sheets(written("x.xlsx", items))
    assert rows == [
        ["a", "b", "c", "d"],
        ["=1+1", 2, True, None],
        ["http://example.com/", str(10**20), None, '["x"]'],
    ]
    book = load_workbook(io.BytesIO(written("x.xlsx", items)))
    assert {cell.data_type for cell in book.active["A"]} == {"s"}


def test_an_excel_sheet_that_is_full_is_continued_and_long_texts_are_cut_with_a_warning(caplog):
    file = io.BytesIO()
    items = [{"n": n} for n in range(5)] + [{"n": "x" * (MAX_TEXT + 1)}]
    with caplog.at_level(logging.WARNING):
        write_excel(file, lambda: lines_of(items), (), max_rows=3)
    assert sheets(file.getvalue()) == [
        [["n"], [0], [1]], [["n"], [2], [3]], [["n"], [4], ["x" * MAX_TEXT]],
    ]  # fmt: skip
    assert caplog.records[0].args == ("1 text", MAX_TEXT)


def test_fields_for_which_an_excel_sheet_has_no_column_are_left_out_with_a_warning(caplog, monkeypatch):
    monkeypatch.setattr("skitter.store.excel.MAX_COLUMNS", 2)
    with caplog.at_level(logging.WARNING):
        found = sheets(written("x.xlsx", [{"a": 1, "b": 2}, {"c": 3, "a": 4}]))
    assert found == [[["a", "b"], [1, 2], [4, None]]]
    assert caplog.records[0].args == ("1 field", 2)


def test_without_items_an_excel_file_is_valid():
    assert sheets(written("x.xlsx?fields=a,b", [])) == [[["a", "b"]]]


def test_fields_are_chosen_and_ordered_in_every_format():
    given = "?fields=price,title,absent"
    assert written("x.csv" + given, ITEMS) == b"price,title,absent\r\n1.5,a < b & 'c',\r\n,,\r\n"
    assert [json.loads(line) for line in written("x.jsonl" + given, ITEMS).splitlines()] == [
        {"price": 1.5, "title": "a < b & 'c'"}, {"title": None},
    ]  # fmt: skip
    assert json.loads(written("x.json" + given, ITEMS)) == [
        {"price": 1.5, "title": "a < b & 'c'"},
        {"title": None},
    ]
    root = etree.fromstring(written("x.xml" + given, ITEMS))
    assert [element.tag for element in root[0]] == ["price", "title"]
    assert sheets(written("x.xlsx" + given, ITEMS))[0][0] == ["price", "title", "absent"]
    table = parquet.read_table(io.BytesIO(written("x.parquet" + given, ITEMS)))
    assert table.column_names[:2] == ["price", "title"]
    assert table.num_rows == 2
    assert gzip.decompress(written("x.csv.gz" + given, ITEMS)).startswith(b"price,title,absent\r\n")


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "xlsx"])
def test_a_chosen_field_that_no_item_has_is_logged_once_with_the_fields_of_the_items(caplog, kind):
    written(f"x.{kind}?fields=prize,title,pages", ITEMS)
    (record,) = caplog.records
    expected = "no item has the field prize, pages; items have the fields title, price, tags, more"
    assert (record.levelname, record.getMessage().partition(": ")[2]) == ("WARNING", expected)


def test_a_long_list_of_fields_is_cut(caplog):
    written("x.csv?fields=prize", [{f"field{number}": 1 for number in range(1000)}])
    assert "field49" in caplog.text and "field50" not in caplog.text


@pytest.mark.parametrize("items", [[], [{}], ITEMS, [{"title": 1}, {"price": None, "more": 1}]])
def test_a_field_that_some_items_lack_is_not_logged(caplog, items):
    written("x.csv?fields=title,price,more" if items and items[0] else "x.csv?fields=title", items)
    assert not caplog.records


@pytest.mark.parametrize("name", ["x.jsonl?duplicates=drop", "x.csv?duplicates=mark&fields=title"])
def test_a_search_for_near_duplicates_without_texts_is_logged(caplog, name):
    written(name, ITEMS)
    (record,) = caplog.records
    expected = "near duplicates were not searched, because no item has texts in the fields url and content"
    assert (record.levelname, record.getMessage().partition(": ")[2]) == ("WARNING", expected)


@pytest.mark.parametrize("items", [[], [*ITEMS, {"url": "http://h/", "content": "short"}]])
def test_a_search_for_near_duplicates_among_texts_is_not_logged(caplog, items):
    written("x.jsonl?duplicates=mark", items)
    assert not caplog.records


@pytest.mark.parametrize("shape", ["list", "object"])
@pytest.mark.parametrize("levels", [15, 60, 450])
def test_values_that_are_nested_too_deep_for_readers_of_parquet_become_json_text(shape, levels):
    value = "end"
    for _ in range(levels):
        value = [value] if shape == "list" else {"a": value}
    file = written("x.parquet", [{"value": value}, {"value": None}])
    found = parquet.read_table(io.BytesIO(file)).to_pylist()
    assert found[1] == {"value": None}
    inner = found[0]["value"]
    for _ in range(min(levels, 20)):
        inner = inner[0] if shape == "list" else inner["a"]
    if levels > 20:
        inner = json.loads(inner)
        for _ in range(levels - 20):
            inner = inner[0] if shape == "list" else inner["a"]
    assert inner == "end"


def test_a_csv_file_has_the_delimiter_that_its_output_names():
    assert written("x.csv?delimiter=tab", [{"a": 1, "b": "x y"}]) == b"a\tb\r\n1\tx y\r\n"
    with pytest.raises(StoreError) as refusal:
        open_output("items.csv?delimiter=;")
    assert refusal.value.field == "delimiter"
    assert "comma, semicolon or tab" in refusal.value.remedy


def test_a_csv_file_has_cells_of_the_form_that_its_output_names():
    item = {"tags": ["a", "b"], "seen": True}
    assert written("x.csv?cells=json", [item]) == b'tags,seen\r\n"[""a"", ""b""]",true\r\n'
    assert written("x.csv?cells=scrapy", [item]) == b'tags,seen\r\n"a,b",True\r\n'
    with pytest.raises(StoreError) as refusal:
        open_output("items.csv?cells=python")
    assert (refusal.value.field, refusal.value.remedy) == ("cells", "write json or scrapy")


def test_chosen_columns_are_read_once():
    reads = []
    assert (
        b"".join(csv_chunks(lambda: reads.append(1) or lines_of([{"b": 1}]), ["a", "b"])) == b"a,b\r\n,1\r\n"
    )
    assert reads == [1]


@pytest.mark.parametrize("suffix", sorted(FORMATS))
def test_every_suffix_is_a_file(suffix):
    assert open_output(f"items.{suffix}").path.name == f"items.{suffix}"


@pytest.mark.parametrize(
    ("target", "near"),
    [("items.docx", "xlsx"), ("items.jsonlx", "jsonl"), ("mongo://h/d/c", "mongodb"), ("items", "csv")],
)
def test_an_unknown_kind_of_output_is_answered_with_similar_ones(target, near):
    with pytest.raises(StoreError) as refusal:
        open_output(target)
    assert refusal.value.field == "output"
    assert near in refusal.value.remedy
    assert len(refusal.value.remedy) < 120
