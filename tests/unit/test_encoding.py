# ruff: noqa: RUF001 - letters that look alike in several scripts are the point here
"""Detection of encodings: byte order mark, header, declaration and content, in this order. Decoding never fails."""

import codecs
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skitter.web import encoding
from skitter.web.encoding import (
    decode,
    decode_utf8,
    detect,
    detect_json,
    encode_queries,
    portable_detector,
    statistical_detector,
)
from skitter.web.urls import normalize

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


@given(
    st.lists(
        st.sampled_from(
            [b"<!doctype html>", b"<html lang='en'>", b'<html x="<body>">', b"<htmlx>", b"<HEAD>", b"<head x>", b"<!--", b"-->", b"<body>",
             b"<meta charset=utf-8>", b'<META  CHARSET="UTF-8" />', b"<meta charset='gbk'>", b"<meta charset=\"utf-8' />",
             b"<meta charset=utf-8x>", b"<?xml encoding='gbk'?>", b"<meta name=x>", b" \n", b"\0", b" " * 600]
        ),
        max_size=6,
    )
)  # fmt: skip
def test_a_usual_declaration_is_found_as_any_other(pieces):
    page = b"".join(pieces) + b" " * 1024 + b"\xe9t\xe9"
    found = detect(page)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "_USUAL_DECLARATION", lambda *_: None)
        assert detect(page) == found


@pytest.mark.parametrize(
    "label",
    ["no-such-charset", "base64", "rot13", "hex", "unicode_escape", "raw_unicode_escape", "utf-7", "idna", "undefined",
     "punycode", "zlib", "", "x" * 500],
)  # fmt: skip
def test_a_label_of_an_unknown_encoding_is_ignored(label):
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
def test_encoding_labels_are_those_of_browsers(label, codec, text):
    assert read(text.encode(codec), f"text/html; charset={label}") == text
    assert read(f'<meta charset="{label}">{text}'.encode(codec)).endswith(text)


WHATWG_LABELS = {
    "utf-8": "unicode-1-1-utf-8 unicode11utf8 unicode20utf8 utf-8 utf8 x-unicode20utf8",
    "cp866": "866 cp866 csibm866 ibm866",
    "iso8859-2": "csisolatin2 iso-8859-2 iso-ir-101 iso8859-2 iso88592 iso_8859-2 iso_8859-2:1987 l2 latin2",
    "iso8859-3": "csisolatin3 iso-8859-3 iso-ir-109 iso8859-3 iso88593 iso_8859-3 iso_8859-3:1988 l3 latin3",
    "iso8859-4": "csisolatin4 iso-8859-4 iso-ir-110 iso8859-4 iso88594 iso_8859-4 iso_8859-4:1988 l4 latin4",
    "iso8859-5": "csisolatincyrillic cyrillic iso-8859-5 iso-ir-144 iso8859-5 iso88595 iso_8859-5 iso_8859-5:1988",
    "iso8859-6": (
        "arabic asmo-708 csiso88596e csiso88596i csisolatinarabic ecma-114 iso-8859-6 iso-8859-6-e "
        "iso-8859-6-i iso-ir-127 iso8859-6 iso88596 iso_8859-6 iso_8859-6:1987"
    ),
    "iso8859-7": (
        "csisolatingreek ecma-118 elot_928 greek greek8 iso-8859-7 iso-ir-126 iso8859-7 iso88597 iso_8859-7 "
        "iso_8859-7:1987 sun_eu_greek"
    ),
    "iso8859-8": (
        "csiso88598e csisolatinhebrew hebrew iso-8859-8 iso-8859-8-e iso-ir-138 iso8859-8 iso88598 iso_8859-8 "
        "iso_8859-8:1988 visual csiso88598i iso-8859-8-i logical"
    ),
    "iso8859-10": "csisolatin6 iso-8859-10 iso-ir-157 iso8859-10 iso885910 l6 latin6",
    "iso8859-13": "iso-8859-13 iso8859-13 iso885913",
    "iso8859-14": "iso-8859-14 iso8859-14 iso885914",
    "iso8859-15": "csisolatin9 iso-8859-15 iso8859-15 iso885915 iso_8859-15 l9",
    "iso8859-16": "iso-8859-16",
    "koi8-r": "cskoi8r koi koi8 koi8-r koi8_r",
    "koi8-u": "koi8-ru koi8-u",
    "mac-roman": "csmacintosh mac macintosh x-mac-roman",
    "cp874": "dos-874 iso-8859-11 iso8859-11 iso885911 tis-620 windows-874",
    "cp1250": "cp1250 windows-1250 x-cp1250",
    "cp1251": "cp1251 windows-1251 x-cp1251",
    "cp1252": (
        "ansi_x3.4-1968 ascii cp1252 cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 iso8859-1 iso88591 "
        "iso_8859-1 iso_8859-1:1987 l1 latin1 us-ascii windows-1252 x-cp1252"
    ),
    "cp1253": "cp1253 windows-1253 x-cp1253",
    "cp1254": (
        "cp1254 csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 iso_8859-9 iso_8859-9:1989 l5 latin5 "
        "windows-1254 x-cp1254"
    ),
    "cp1255": "cp1255 windows-1255 x-cp1255",
    "cp1256": "cp1256 windows-1256 x-cp1256",
    "cp1257": "cp1257 windows-1257 x-cp1257",
    "cp1258": "cp1258 windows-1258 x-cp1258",
    "mac-cyrillic": "x-mac-cyrillic x-mac-ukrainian",
    "gb18030": "chinese csgb2312 csiso58gb231280 gb2312 gb_2312 gb_2312-80 gbk iso-ir-58 x-gbk gb18030",
    "big5hkscs": "big5 big5-hkscs cn-big5 csbig5 x-x-big5",
    "euc_jp": "cseucpkdfmtjapanese euc-jp x-euc-jp",
    "iso2022_jp": "csiso2022jp iso-2022-jp",
    "cp932": "csshiftjis ms932 ms_kanji shift-jis shift_jis sjis windows-31j x-sjis",
    "cp949": (
        "cseuckr csksc56011987 euc-kr iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 "
        "windows-949"
    ),
    "utf-16-be": "unicodefffe utf-16be",
    "utf-16-le": "csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff utf-16 utf-16le",
    "x-user-defined": "x-user-defined",
}
REPLACEMENT_LABELS = "csiso2022kr hz-gb-2312 iso-2022-cn iso-2022-cn-ext iso-2022-kr replacement"


def name_of(codec):
    return codecs.lookup(codec).name


@pytest.mark.parametrize("codec", WHATWG_LABELS)
def test_every_label_of_the_encoding_standard_names_its_encoding(codec):
    """WHATWG Encoding, 4.2."""
    for label in WHATWG_LABELS[codec].split():
        assert (label, name_of(detect(b"<p>\xe9\x81", f"text/html; charset={label}"))) == (
            label,
            name_of(codec),
        )
        assert name_of(detect(b"<p>\xe9\x81", f'text/html; charset="{label.upper()}"')) == name_of(codec)


@pytest.mark.parametrize("codec", WHATWG_LABELS)
def test_every_label_of_the_encoding_standard_is_read_in_a_declaration(codec):
    """WHATWG HTML, 13.2.3.2: in a declaration, UTF-16 means UTF-8 and x-user-defined means windows-1252."""
    declared = {"utf-16-be": "utf-8", "utf-16-le": "utf-8", "x-user-defined": "cp1252"}.get(codec, codec)
    for label in WHATWG_LABELS[codec].split():
        for page in (
            f'<meta charset="{label}">',
            f'<meta http-equiv=content-type content="text/html; charset={label}">',
        ):
            assert (label, name_of(detect(page.encode() + b"\xe9\x81"))) == (label, name_of(declared))


def test_the_encoding_standard_has_228_labels():
    labels = [label for labels in WHATWG_LABELS.values() for label in labels.split()]
    assert len(set(labels)) == len(labels) == 228 - len(REPLACEMENT_LABELS.split())


def test_labels_that_browsers_refuse_are_decoded_where_python_can():
    """WHATWG Encoding, 14.1 has only U+FFFD for them, because scripts could hide in them."""
    assert read("中文".encode("hz"), "text/html; charset=hz-gb-2312") == "中文"
    assert read("한국어".encode("iso2022_kr"), "text/html; charset=iso-2022-kr") == "한국어"
    for label in ("replacement", "iso-2022-cn", "iso-2022-cn-ext"):
        assert read("Москва".encode(), f"text/html; charset={label}") == "Москва"


def test_x_user_defined_has_a_range_of_its_own():
    """WHATWG Encoding, 14.5."""
    assert read(b"a\x7f\x80\xff", "text/plain; charset=x-user-defined") == "a\x7f\uf780\uf7ff"
    assert "a\uf780".encode("x-user-defined") == b"a\x80"


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
def test_undeclared_encodings_are_detected_by_their_letters(text, codec):
    assert read(text.encode(codec), "text/html") == text


@pytest.mark.parametrize(("text", "codec"), [(RUSSIAN, "cp1251"), (JAPANESE, "cp932"), (CHINESE, "gb18030")])
def test_the_fallback_detector_recognises_the_common_ones_too(monkeypatch, text, codec):
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


@pytest.mark.parametrize(
    "body",
    [
        ("я" * 9000).encode()[:-1],
        RUSSIAN.encode() + "я".encode()[:1],
        RUSSIAN.encode() + "語".encode()[:2],
        ("я" * 9000).encode() + b"\xff" + ("я" * 9000).encode(),
        b"\x93quoted\x94 " + (RUSSIAN * 3).encode(),
        b"x" * 300_000 + (RUSSIAN + RUSSIAN).encode() + b"\xff" + b"x" * 300_000,
        JAPANESE.encode() + b"\xc3\x28",
    ],
)
def test_undeclared_utf8_with_a_few_bad_bytes_stays_utf8(body):
    assert detect(body, "text/html") == "utf-8"


@pytest.mark.parametrize("body", [b"caf\xe9", b"<p>caf\xe9</p>", b"\xe9", "été été été".encode("cp1252")])
def test_a_single_invalid_byte_is_not_utf8(body):
    assert detect(body) != "utf-8"


@pytest.mark.parametrize(
    ("body", "content_type", "encoding"),
    [
        (b'{"m": "caf\xc3\xa9"}', "application/json; charset=iso-8859-1", "utf-8"),
        (b'\xef\xbb\xbf{"m": 1}', "application/json", "utf-8"),
        ('{"m": "é"}'.encode("utf-16-le"), "application/json; charset=utf-8", "utf-16-le"),
        ('{"m": "é"}'.encode("utf-16"), "", "utf-16"),
        ('{"m": "é"}'.encode("utf-32-be"), "", "utf-32-be"),
        (b'{"m": "caf\xe9"}', "application/json; charset=iso-8859-1", "cp1252"),
        (b'{"m": "caf\xe9"}', "application/json", "cp1252"),
        (b'{"m": "<meta charset=koi8-r>"}', "application/json", "utf-8"),
        (b"", "", "utf-8"),
    ],
)
def test_json_is_utf8_whatever_its_charset_parameter_says(body, content_type, encoding):
    """RFC 8259, 8.1 and 11."""
    assert detect_json(body, content_type) == encoding


@pytest.mark.parametrize(
    ("encoding", "href", "sent"),
    [
        # the example of WHATWG URL, 1.3, "percent-encode after encoding"
        ("cp932", "?q=\u2261", "?q=%81%DF"),
        ("cp932", "?q=\u203d", "?q=%26%238253%3B"),
        ("iso2022_jp", "?q=\xa5", "?q=%1B(J\\%1B(B"),
        ("cp1251", "/s?q=хлеб", "/s?q=%F5%EB%E5%E1"),
        ("cp1251", "хлеб?q=хлеб#хлеб", "/%D1%85%D0%BB%D0%B5%D0%B1?q=%F5%EB%E5%E1"),
        ("cp1251", "?q=日本хлеб語", "?q=%26%2326085%3B%26%2326412%3B%F5%EB%E5%E1%26%2335486%3B"),
        ("cp1251", "#a?хлеб", ""),
        ("cp932", "?q=表&r='", "?q=%95\\&r=%27"),
        ("euc_jp", "?q=日本", "?q=%C6%FC%CB%DC"),
        ("big5hkscs", "?q=中文", "?q=%A4%A4%A4%E5"),
        ("cp949", "?q=한국", "?q=%C7%D1%B1%B9"),
        ("gb18030", "?q=中文", "?q=%D6%D0%CE%C4"),
        ("iso8859_8", "?q=שלום", "?q=%F9%EC%E5%ED"),
        ("utf-8", "?q=é", "?q=%C3%A9"),
        ("utf-16-le", "?q=é", "?q=%C3%A9"),
    ],
)
def test_a_query_is_sent_in_the_encoding_of_its_page(encoding, href, sent):
    """WHATWG URL, 1.3 (percent-encode after encoding) and 4.4 (query state); the path is always UTF-8."""
    address = "http://h.test/"
    assert normalize(encode_queries([href], encoding)[0], address) == address + sent.removeprefix("/")


@given(
    st.text(max_size=30),
    st.sampled_from(["cp1251", "cp932", "euc_jp", "iso2022_jp", "gb18030", "cp949", "ascii"]),
)
def test_any_query_can_be_encoded_and_stays_one(query, encoding):
    (encoded,) = encode_queries([f"?{query}"], encoding)
    assert encoded.partition("#")[0].isascii()
    assert encoded.startswith("?")
    assert encode_queries([encoded], encoding) == [encoded]


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


@pytest.mark.parametrize(
    "codec",
    [
        "utf-8",
        "cp1252",
        "gb18030",
        "shift_jis",
        "euc_jp",
        "iso2022_jp",
        "big5hkscs",
        "cp949",
        "utf-16-le",
        "utf-16",
    ],
)
@given(body=st.binary(max_size=120), size=st.integers(4, 30))
def test_a_large_body_is_decoded_in_parts_to_the_same_text(codec, body, size):
    expected = decode(body, codec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("skitter.web.encoding._LARGE", 0)
        patch.setattr("skitter.web.encoding._PART", size)
        assert decode(body, codec) == expected


@given(text=st.text(max_size=60), tail=st.binary(max_size=3), size=st.integers(4, 30))
def test_a_large_body_is_recognised_as_utf_8_in_parts(text, tail, size):
    body = text.encode() + tail
    expected = detect(body)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("skitter.web.encoding._PART", size)
        assert detect(body) == expected


PIECES = ["é", "漢字", "\U0001f600", "x", "a" * 1_023, "a" * 1_024, "a" * 1_025, "a" * 3_000, "é" * 600]
DAMAGE = [b"\xff", b"\xc3", b"\xe6\xbc", b"\xf0\x9f\x98", b"\x80", b"\xed\xa0\x80"]


@given(st.lists(st.sampled_from([piece.encode() for piece in PIECES] + DAMAGE), max_size=20).map(b"".join))
@example(b"a" * 1_023 + b"\xc3" + b"a" * 2_000)  # half a character before an ASCII part
def test_utf8_is_decoded_as_python_does_it(body):
    assert decode_utf8(body, "replace") == body.decode("utf-8", "replace")
    try:
        text = body.decode()
    except UnicodeDecodeError:
        with pytest.raises(UnicodeDecodeError):
            decode_utf8(body, "strict")
    else:
        assert decode_utf8(body, "strict") == text
