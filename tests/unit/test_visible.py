"""Text of pages is harmless in terminals, logs, spreadsheets and file names."""

import csv
import io
import json
import logging
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skitter._utils.visible import VisibleFormatter, visible, visible_line
from skitter.cli.console import aligned, complain
from skitter.cli.tables import to_json
from skitter.errors import StoreError
from skitter.frontends.collector.response import file_name_of
from skitter.item import encode_item, without_surrogates
from skitter.observe.figures import listed
from skitter.run.process import JsonFormatter
from skitter.store.formats import csv_chunks
from skitter.store.outputs import open_output

HOSTILE = "a\x1b[2J\x07\x9b\r\u202eb\u2028\ud800"
SHOWN = "a\\u001b[2J\\u0007\\u009b\\u000d\\u202eb\\u2028\\ud800"


@given(st.text())
def test_no_control_character_is_printed(text):
    for shown, allowed in ((visible(text), "\n\t"), (visible_line(text), "")):
        assert not [
            char for char in shown if unicodedata.category(char) in {"Cc", "Cs"} and char not in allowed
        ]
        assert not [
            char
            for char in shown
            if unicodedata.bidirectional(char)
            in {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
        ]


def test_ordinary_text_is_printed_unchanged():
    text = "Zubehör, 全, שלום\n\t“x”"
    assert visible(text) == text


def test_tables_messages_and_figures_are_harmless(capsys):
    assert aligned([("a", HOSTILE + "\n"), ("bb", "c")]) == f"a   {SHOWN}\\n\nbb  c"
    complain(HOSTILE)
    in_one_line = SHOWN.replace("\\u000d", " ").replace("\\u2028", " ")  # both count as white space
    assert capsys.readouterr().err == f"skitter: {in_one_line}\n"
    assert listed({HOSTILE: 1}) == f"{SHOWN} 1"


def test_json_for_programs_keeps_its_values():
    value = {"error": "a\x1b\u202e\u2028é"}
    assert visible(to_json(value)) == to_json(value)
    assert json.loads(to_json(value)) == value


def record(message, error=None):
    exc_info = (type(error), error, None) if error else None
    return logging.LogRecord("skitter.x", logging.ERROR, "", 0, message, (), exc_info)


def test_a_log_message_is_one_line_of_its_own():
    text = VisibleFormatter("%(levelname)s %(message)s").format(
        record(f"{HOSTILE}\n12:00 ERROR forged", ValueError("\x1b[x"))
    )
    first, second, trace = text.split("\n")
    assert first == f"ERROR {SHOWN}"
    assert second == "    12:00 ERROR forged"
    assert trace == "ValueError: \\u001b[x"


def test_a_log_line_in_json_is_written_whatever_it_holds():
    fields = json.loads(JsonFormatter().format(record(HOSTILE)))
    assert fields["message"] == HOSTILE.replace("\ud800", "\ufffd")
    assert "\u202e" not in JsonFormatter().format(record(HOSTILE))


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"),
        (" =1", "' =1"),
        ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("-2+3", "'-2+3"),
        ("\t=1", "'\t=1"),
        ("\r=1", "\\u000d=1"),
        ("\uff1d1", "'\uff1d1"),
        ("a=1", "a=1"),
        ("-5", "-5"),
        ("+1.5e3", "+1.5e3"),
        ("a\x1b\u202e", "a\\u001b\\u202e"),
        (-5, "-5"),
        (["=1"], '["=1"]'),
        (None, ""),
    ],
)
def test_csv_for_spreadsheets_holds_no_formulas(text, cell):
    line = json.dumps({"=f": text}).encode()
    data = b"".join(csv_chunks(lambda: [line], spreadsheet=True)).decode("utf-8-sig")
    assert list(csv.reader(io.StringIO(data, newline=""), strict=True)) == [["'=f"], [cell]]
    plain = b"".join(csv_chunks(lambda: [line])).decode()
    assert plain.startswith("=f\r\n")


def test_csv_outputs_take_the_option_and_no_other_file_does():
    assert open_output("items.csv?spreadsheet=yes").path.name == "items.csv"
    assert open_output("csv:items.txt?spreadsheet=no").path.name == "items.txt"
    for target in ("items.csv?spreadsheet=perhaps", "items.jsonl?spreadsheet=yes"):
        with pytest.raises(StoreError) as caught:
            open_output(target)
        assert caught.value.field == "spreadsheet"


def test_a_lone_surrogate_is_one_replacement_character_and_a_pair_is_its_character():
    assert json.loads(encode_item({"\udc00k": ["x\ud800y"]})) == {"\ufffdk": ["x\ufffdy"]}
    assert without_surrogates("\ud83d\ude00") == "\U0001f600"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://h/a/b.pdf?x=1#y", "b.pdf"),
        ("http://h/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "passwd"),
        ("http://h/..%5c..%5cx", "x"),
        ("http://h/..", "index"),
        ("http://h/.htaccess", "htaccess"),
        ("http://h/-rf", "rf"),
        ("http://h/CON", "_CON"),
        ("http://h/nul.tar.gz", "_nul.tar.gz"),
        ("http://h/console", "console"),
        ("http://h/a%00%1b%e2%80%aeb", "a_b"),
        ("http://h/c:x", "c_x"),
    ],
)
def test_a_file_name_is_safe_on_all_systems(url, name):
    assert file_name_of(url) == name


@given(st.text(max_size=400), st.text(max_size=60))
def test_any_server_chooses_only_a_name_in_one_folder(path, suffix):
    name = file_name_of("http://h/x", f"attachment; filename*=UTF-8''{path}{suffix}".replace("%", "%25"))
    assert 0 < len(name.encode()) <= 201
    assert not set(name) & set('/\\\0:*?"<>|\n')
    assert not name.startswith((".", "-"))
    assert name not in {".", ".."}


def test_a_long_name_keeps_its_extension():
    name = file_name_of("http://h/" + "é" * 300 + ".tar.gz")
    assert name.endswith("é.tar.gz")
    assert len(name.encode()) <= 200
    assert sys.getfilesystemencoding() == "utf-8"
