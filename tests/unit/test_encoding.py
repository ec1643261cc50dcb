# ruff: noqa: RUF001 - letters that look alike in several scripts are the point here
"""Encodings: byte order mark, header, declaration and content, in this order; decoding never fails."""

import codecs
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skitter.web import encoding
from skitter.web.encoding import decode, detect, portable_detector, statistical_detector

RUSSIAN = "<p>Съешь же ещё этих мягких французских булок, да выпей чаю. Москва - столица России.</p>"
FRENCH = "<p>Les élèves français étaient très étonnés par la beauté de la forêt où ils marchèrent.</p>"
JAPANESE = "<p>日本語の文章を書くときは、漢字とひらがなとカタカナを使います。東京は日本の首都です。</p>"
CHINESE = "<p>人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心,并应以兄弟关系的精神相对待。</p>"
KOREAN = "<p>모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.</p>"
POLISH = "<p>Zażółć gęślą jaźń. Wszyscy ludzie rodzą się wolni i równi pod względem swej godności.</p>"
GREEK = "<p>Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.</p>"


def read(body, content_type=""):
    return decode(body, detect(body, content_type))


@pytest.mark.parametrize(
    ("mark", "codec"),
    [
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
    ],
)
def test_a_byte_order_mark_outranks_header_and_declaration(mark, codec):
    body = mark + ("<meta charset=koi8-r>" + RUSSIAN).encode(codec)
    assert detect(body, "text/html; charset=windows-1251") == codec
    assert read(body, "text/html; charset=windows-1251").endswith(RUSSIAN)
    assert read(body).startswith("<meta")


@pytest.mark.parametrize(
    "header",
    [
        "text/html; charset=windows-1251",
        "text/html;CHARSET=CP1251",
        'text/html; x="a;b"; charset="windows-1251"',
    ],
)
def test_the_header_outranks_the_declaration(header):
    assert read(("<meta charset=koi8-r>" + RUSSIAN).encode("cp1251"), header).endswith(RUSSIAN)


@pytest.mark.parametrize(
    "declaration",
    [
        "<meta charset=koi8-r>",
        "<META CHARSET='KOI8-R'>",
        '<meta http-equiv="Content-Type" content="text/html; charset=koi8-r">',
        '<?xml version="1.0" encoding="koi8-r"?>',
        "<!-- <meta charset=utf-8> --><meta charset=koi8-r>",
    ],
)
def test_a_declaration_counts_where_the_header_is_silent(declaration):
    assert read((declaration + RUSSIAN).encode("koi8-r"), "text/html").endswith(RUSSIAN)


def test_a_declaration_beyond_1024_bytes_comes_too_late():
    body = b" " * 1024 + b"<meta charset=koi8-r>" + RUSSIAN.encode()
    assert detect(body) == "utf-8"


@pytest.mark.parametrize(
    "label",
    ["no-such-charset", "base64", "rot13", "hex", "unicode_escape", "raw_unicode_escape", "utf-7", "idna", "undefined",
     "punycode", "zlib", "", "x" * 500],
)  # fmt: skip
def test_a_label_that_names_no_encoding_of_pages_is_passed_over(label):
    body = ("<meta charset=koi8-r>" + RUSSIAN).encode("koi8-r")
    assert detect(body, f"text/html; charset={label}") == "koi8-r"
    assert detect(f'<meta charset="{label}">{RUSSIAN}'.encode()) == "utf-8"


@pytest.mark.parametrize(
    ("label", "codec", "text"),
    [
        ("iso-8859-1", "cp1252", "“quoted” – €"),
        ("us-ascii", "cp1252", "café"),
        ("iso-8859-9", "cp1254", "ışık €"),
        ("gb2312", "gb18030", "朱镕基"),
        ("x-gbk", "gb18030", "朱镕基"),
        ("shift_jis", "cp932", "①高﨑"),
        ("x-sjis", "cp932", "①"),
        ("euc-kr", "cp949", "똠방각하"),
        ("ks_c_5601-1987", "cp949", "똠방각하"),
        ("windows-949", "cp949", "똠방각하"),
        ("big5", "big5hkscs", "中文㗎"),
        ("tis-620", "cp874", "ภาษา €"),
        ("x-euc-jp", "euc_jp", "日本"),
        ("x-cp1251", "cp1251", "Москва"),
        ("x-mac-cyrillic", "mac_cyrillic", "Москва"),
        ("iso-8859-8-i", "iso8859_8", "שלום"),
        ("unicode-1-1-utf-8", "utf-8", "Москва"),
    ],
)
def test_labels_mean_what_they_mean_to_browsers(label, codec, text):
    assert read(text.encode(codec), f"text/html; charset={label}") == text
    assert read(f'<meta charset="{label}">{text}'.encode(codec)).endswith(text)


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_wide_encodings_are_seen_without_a_mark(codec):
    body = ("<html>" + RUSSIAN).encode(codec)
    assert detect(body) == codec
    assert detect(body, f"text/html; charset={codec[:6]}") == codec


def test_utf16_without_mark_or_ascii_is_little_endian():
    assert read("Москва".encode("utf-16-le"), "text/plain; charset=utf-16") == "Москва"


@pytest.mark.parametrize("label", ["utf-16", "utf-16le", "utf-32"])
def test_a_readable_declaration_of_a_wide_encoding_means_utf8(label):
    assert detect(f'<meta charset="{label}">{RUSSIAN}'.encode()) == "utf-8"


@pytest.mark.parametrize("text", ["", "plain", RUSSIAN, JAPANESE])
def test_valid_utf8_is_utf8(text):
    assert detect(text.encode()) == "utf-8"
    assert read(text.encode()) == text


@pytest.mark.parametrize(
    ("text", "codec"),
    [(RUSSIAN, "cp1251"), (RUSSIAN, "koi8-r"), (FRENCH, "cp1252"), (JAPANESE, "cp932"), (JAPANESE, "euc_jp"),
     (CHINESE, "gb18030"), (KOREAN, "cp949"), (POLISH, "cp1250"), (POLISH, "iso8859_2"), (GREEK, "cp1253")],
)  # fmt: skip
def test_undeclared_encodings_are_told_by_their_letters(text, codec):
    assert read(text.encode(codec), "text/html") == text


@pytest.mark.parametrize(("text", "codec"), [(RUSSIAN, "cp1251"), (JAPANESE, "cp932"), (CHINESE, "gb18030")])
def test_the_fallback_detector_tells_the_common_ones_too(monkeypatch, text, codec):
    monkeypatch.setattr(encoding, "load_detector", portable_detector)
    assert read(text.encode(codec)) == text


def test_without_turbohtml_the_fallback_detector_is_loaded(monkeypatch):
    load = encoding.load_detector.__wrapped__  # bypasses the cache
    monkeypatch.setitem(sys.modules, "turbohtml.detect", None)
    assert load().__qualname__.startswith("portable_detector")
    monkeypatch.undo()
    assert load().__qualname__ == statistical_detector().__qualname__


def test_a_page_cut_inside_a_late_letter_is_not_taken_for_utf8():
    """The sample is valid UTF-8, the whole body is not."""
    body = b"<p>" + b"x" * 20_000 + "é".encode("cp1252") + b"</p>"
    assert detect(body) == "cp1252"
    assert read(body).endswith("é</p>")


def test_undecodable_bytes_are_replaced():
    assert read(b"a\xffb", "text/html; charset=utf-8") == "a\ufffdb"
    assert read(b"<p>\x81\xff", "text/html; charset=shift_jis").startswith("<p>")
    assert read(b"a\x80b", "text/html; charset=gbk") == "a€b"


@given(
    st.binary(max_size=200),
    st.sampled_from(["", "text/html", "text/html; charset=", "x; charset=utf-16", ";;=\x00"]),
)
@example(b"\xff\xfe\x00\x00", "")
@example(b"\x00" * 9, "")
@example(b'<meta charset="\xff">', "")
def test_any_bytes_are_read(body, content_type):
    assert isinstance(read(body, content_type), str)


@given(st.text(max_size=50))
def test_an_unknown_label_never_raises(label):
    assert detect(b"<p>x</p>", f"text/html; charset={label}")
