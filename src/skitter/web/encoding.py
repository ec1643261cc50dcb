"""Detects the encoding of a body and decodes it without raising errors.

The sources are consulted in the order of the WHATWG HTML standard (13.2.3): byte order mark, charset of the
Content-Type header, declaration in the first 1024 bytes (``<meta>`` or XML), then the bytes themselves. Labels have
the same meaning as in browsers (``iso-8859-1`` is windows-1252, ``gb2312`` is gb18030; WHATWG Encoding standard, 4.2).
There is one difference: browsers do not decode the encodings of ``replacement``. Here ``hz-gb-2312`` and ``iso-2022-kr``
are decoded, and labels without a Python codec are ignored, like unknown labels.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Sequence
from functools import cache, lru_cache

from w3lib.encoding import (
    html_body_declared_encoding,
    http_content_type_encoding,
    read_bom,
    resolve_encoding,
    to_unicode,
)

try:
    from skitter.web._utf8 import decode as decode_utf8
except ImportError:

    def decode_utf8(body: bytes, errors: str, /) -> str:
        """Return ``body.decode("utf-8", errors)``. ``_utf8.c`` decodes long parts in ASCII faster."""
        return body.decode("utf-8", errors)


LAST_RESORT = "cp1252"
"""The encoding that browsers assume without other evidence: windows-1252."""

_DECLARATION_BYTES = 1024
_DETECTION_BYTES = 16_384
"""Sample size in bytes. It is enough for a frequency analysis; a longer sample would take milliseconds."""

# Python codecs that web pages do not use, or that decode ASCII differently.
_NOT_FOR_PAGES = frozenset(
    {"idna", "mbcs", "oem", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7"}
)

# Labels of the WHATWG Encoding standard (section 4.2) that Python does not know.
_LABELS = {
    label: codec
    for codec, labels in {
        "big5hkscs": "cn_big5 x_x_big5",
        "cp874": "dos_874 iso885911",
        "cp949": "cseuckr csksc56011987 iso_ir_149 ks_c_5601_1989 ksc_5601 windows_949",
        "cp1252": "ansi_x3 iso88591",  # w3lib cuts ansi_x3.4-1968 in a declaration at the dot
        "cp1254": "iso88599",
        "euc_jp": "cseucpkdfmtjapanese x_euc_jp",
        "gb18030": "csgb2312 gb_2312 x_gbk",
        "iso8859_6": "csiso88596e csiso88596i iso_8859_6_e iso_8859_6_i",
        "iso8859_7": "sun_eu_greek",
        "iso8859_8": "csiso88598e csiso88598i iso_8859_8_e iso_8859_8_i logical visual",
        "iso8859_15": "csisolatin9",
        "koi8_r": "koi koi8",
        "koi8_u": "koi8_ru",
        "mac_cyrillic": "x_mac_cyrillic x_mac_ukrainian",
        "mac_roman": "csmacintosh mac x_mac_roman",
        "utf_8": "unicode11utf8 unicode20utf8 unicode_1_1_utf_8 x_unicode20utf8",
        "utf_16": "csunicode iso_10646_ucs_2 ucs_2 unicode unicodefeff",
        "utf_16_be": "unicodefffe",
    }.items()
    for label in labels.split()
}
_LABELS |= {f"x_cp{page}": f"cp{page}" for page in range(1250, 1259)}
_LABELS |= {f"iso8859{part}": f"iso8859_{part}" for part in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15)}

USER_DEFINED = "x-user-defined"
_USER_DEFINED_CHARACTERS = "".join(map(chr, [*range(0x80), *range(0xF780, 0xF800)]))
_USER_DEFINED_BYTES = codecs.charmap_build(_USER_DEFINED_CHARACTERS)


def _codec_of_label(name: str) -> codecs.CodecInfo | None:
    label = name.replace("-", "_")
    if label == "x_user_defined":  # maps the bytes from 0x80 to U+F780 to U+F7FF (section 14.5)
        return codecs.CodecInfo(
            lambda text, errors="strict": codecs.charmap_encode(text, errors, _USER_DEFINED_BYTES),
            lambda data, errors="strict": codecs.charmap_decode(data, errors, _USER_DEFINED_CHARACTERS),
            name=USER_DEFINED,
        )
    codec = _LABELS.get(label)
    return None if codec is None else codecs.lookup(codec)


codecs.register(_codec_of_label)

Detector = Callable[[bytes], str | None]


def statistical_detector() -> Detector:
    """Return the detector of ``turbohtml``, a port of Firefox's. Raises ImportError if it is not installed."""
    from turbohtml.detect import detect as guess  # noqa: PLC0415 - optional, see load_detector

    return lambda sample: guess(sample).encoding


def portable_detector() -> Detector:
    """Return the detector of ``charset-normalizer``, which is slower and less accurate on short pages."""
    from charset_normalizer import from_bytes  # noqa: PLC0415 - optional, see load_detector

    def guess(sample: bytes) -> str | None:
        best = from_bytes(sample, cp_exclusion=["utf_7"]).best()
        return None if best is None else best.encoding

    return guess


@cache
def load_detector() -> Detector:
    """Return the best detector that is installed. It is loaded when a page first needs one."""
    try:
        return statistical_detector()
    except ImportError:
        return portable_detector()


def detect(body: bytes, content_type: str = "") -> str:
    """Return the name of the Python codec for a body.

    ``content_type`` is the complete header value. Never raises; an empty body is UTF-8.
    """
    from_mark, _ = read_bom(body)
    if from_mark is not None:
        return from_mark
    declared = _declared_by(content_type) if content_type else None
    if declared is not None:
        return _with_byte_order(declared, body)
    return _by_zero_bytes(body) or _declared_inside(body) or _by_content(body)


def detect_json(body: bytes, content_type: str = "") -> str:
    """Return the name of the Python codec for a JSON text.

    JSON is UTF-8, with or without a byte order mark, and a charset parameter has no meaning (RFC 8259, 8.1 and 11).
    UTF-16 and UTF-32 are recognized by their bytes. Only a body that is invalid in these encodings is decoded by its
    charset parameter or, without one, by its content.
    """
    import json  # noqa: PLC0415 - few pages have JSON that is not in UTF-8

    encoding = json.detect_encoding(body).replace("utf-8-sig", "utf-8")
    try:
        body.decode(encoding)
    except UnicodeDecodeError:
        declared = _declared_by(content_type) if content_type else None
        return _by_content(body) if declared is None else _with_byte_order(declared, body)
    return encoding


def decode(body: bytes, encoding: str) -> str:
    """Decode a body with an encoding from :func:`detect`, without a byte order mark.

    Invalid bytes become U+FFFD.
    """
    if len(body) > _LARGE:
        text = _decode_in_parts(body, encoding)
    else:
        text = decode_utf8(body, "replace") if encoding == "utf-8" else to_unicode(body, encoding)
    return text.removeprefix("\ufeff")


def decode_strictly(body: bytes) -> str:
    """Decode UTF-8 without a byte order mark. Raises UnicodeDecodeError."""
    return decode_utf8(body, "strict").removeprefix("\ufeff")


_LARGE = 256 * 1024
_PART = 64 * 1024
"""Number of bytes of a large body that are decoded at once. Other threads have to wait meanwhile."""


def _decode_in_parts(body: bytes, encoding: str) -> str:
    view = memoryview(body)
    windows = (view[start : start + _PART] for start in range(0, len(body), _PART))
    try:
        # A table avoids calling an error handler for each byte.
        if (table := _single_byte_table(encoding)) is not None:
            return "".join(codecs.charmap_decode(window, "strict", table)[0] for window in windows)
        if codecs.lookup(encoding).name == "gb18030":  # w3lib's error handler needs whole characters
            between = re.compile(rb".{0,%d}[\x00-\x7f]{6}[\x00-\x2f]|.+" % _PART, re.DOTALL)
            return "".join(to_unicode(part[0], encoding) for part in between.finditer(body))
        decoder = codecs.getincrementaldecoder(encoding)("replace")
        return "".join([*map(decoder.decode, windows), decoder.decode(b"", final=True)])
    except (LookupError, UnicodeError):  # there is no incremental decoder, or it needs a byte order mark
        return to_unicode(body, encoding)


_SINGLE_BYTE = re.compile(r"(?:cp(?:125\d|866|874)|iso8859-\d+|koi8-[ru]|mac-\w+)")


@lru_cache(maxsize=64)
def _single_byte_table(encoding: str) -> str | None:
    """Return the characters of all bytes in a single-byte encoding; ``None`` for other encodings."""
    if _SINGLE_BYTE.fullmatch(codecs.lookup(encoding).name) is None:
        return None
    return "".join(bytes([byte]).decode(encoding, "replace") for byte in range(256))


def _invalid_utf8(body: bytes) -> int | None:
    """Return the position of the first invalid byte in UTF-8. A large body is checked without a copy of its text."""
    view, position = memoryview(body), 0
    while position < len(body):
        part = view[position : position + _PART]
        try:
            _, valid = codecs.utf_8_decode(part, "strict", position + len(part) == len(body))
        except UnicodeDecodeError as error:
            return position + error.start
        position += valid
    return None


@lru_cache(maxsize=1024)
def _declared_by(content_type: str) -> str | None:
    # w3lib does not accept the dots and colons of labels such as iso_8859-2:1987. Python treats them like underscores.
    return _usable(http_content_type_encoding(content_type.replace(":", "_").replace(".", "_")))


def codec_of(label: str) -> str | None:
    """Return the Python codec of an encoding by its name, such as ``gbk`` or ``latin1``, or ``None`` if it is unknown.

    Names have the same meaning as in browsers: ``latin1`` is windows-1252 (WHATWG Encoding, 4.2).
    """
    return _declared_by(f"text/html; charset={label.strip()}")


@lru_cache(maxsize=256)
def _usable(codec: str | None) -> str | None:
    if codec is None or codec.replace("_", "-") in _NOT_FOR_PAGES:
        return None
    try:
        b"<>".decode(codec, "replace")
    except (LookupError, UnicodeError):  # a bytes-to-bytes codec
        return None
    return codec


def _declared_inside(body: bytes) -> str | None:
    if _USUAL_DECLARATION(body, 0, _DECLARATION_BYTES) is not None:
        return "utf-8"
    codec = _usable(html_body_declared_encoding(body[:_DECLARATION_BYTES]))
    if codec == USER_DEFINED:  # WHATWG HTML, 13.2.3.2
        return LAST_RESORT
    # A declaration that can be read as ASCII cannot be right if it names UTF-16 or UTF-32.
    return "utf-8" if codec is not None and codec.startswith(("utf-16", "utf-32")) else codec


_USUAL_DECLARATION = re.compile(
    rb"""\s*(?:<!doctype[^<>]*>\s*)?(?:<html(?:\s[^<>]*)?>\s*)?(?:<head>\s*)?<meta\s+charset=(?:"utf-8"|'utf-8'|utf-8)\s*/?>""",
    re.IGNORECASE,
).match
"""The beginning of most pages. w3lib would find the same declaration, but takes seven times as long."""


def _with_byte_order(codec: str, body: bytes) -> str:
    if codec not in {"utf-16", "utf-32"}:
        return codec
    by_content = _by_zero_bytes(body)
    return by_content if by_content is not None and by_content.startswith(codec) else f"{codec}-le"


# Markup starts with ASCII, so the zero bytes of its first characters reveal the width and order of the code units.
_ZERO_BYTES = (
    (re.compile(rb"(?:[^\0]\0\0\0){2}"), "utf-32-le"),
    (re.compile(rb"(?:\0\0\0[^\0]){2}"), "utf-32-be"),
    (re.compile(rb"(?:[^\0]\0){4}"), "utf-16-le"),
    (re.compile(rb"(?:\0[^\0]){4}"), "utf-16-be"),
)


def _by_zero_bytes(body: bytes) -> str | None:
    if b"\0" not in body[:8]:
        return None
    return next((codec for start, codec in _ZERO_BYTES if start.match(body)), None)


def _by_content(body: bytes) -> str:
    invalid = _invalid_utf8(body)
    if invalid is None or _is_damaged_utf8(body[max(0, invalid - _DAMAGE_BYTES) : invalid + _DAMAGE_BYTES]):
        return "utf-8"
    label = load_detector()(body[:_DETECTION_BYTES])
    codec = _usable(resolve_encoding(label)) if label else None
    # The sample may be valid UTF-8 although the whole body is not.
    return LAST_RESORT if codec is None or codec == "utf-8" else codec


_DAMAGE_BYTES = 64 * 1024
"""Number of bytes before and after the first invalid byte in which damage to UTF-8 is measured."""
_INTACT_PER_ERROR = 10
_NOT_LEADING = bytes(byte for byte in range(256) if not 0xC2 <= byte <= 0xF4)
_HALF_CHARACTER = re.compile(rb"[\xc2-\xf4][\x80-\xbf]{0,2}\Z")


def _is_damaged_utf8(sample: bytes) -> bool:
    """Return whether the bytes are UTF-8 with a few errors: a cut last character, or one error per ten characters.

    Only multi-byte characters count, because text in another encoding rarely contains valid multi-byte sequences.
    """
    sample = _HALF_CHARACTER.sub(b"", sample.lstrip(_CONTINUATION))
    errors = sample.decode("utf-8", "replace").count("\ufffd") - sample.count(b"\xef\xbf\xbd")
    intact = len(sample.translate(None, _NOT_LEADING)) - errors
    return intact > 0 and intact >= errors * _INTACT_PER_ERROR


_CONTINUATION = bytes(range(0x80, 0xC0))
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]+")


def encode_queries(hrefs: Sequence[str], encoding: str) -> Sequence[str]:
    """Return the links of a page with the non-ASCII characters of their queries percent-encoded in its encoding.

    The query of a link is in the encoding of the page, and all other parts are UTF-8 (WHATWG HTML, "encoding-parse a
    URL"). A character that the encoding lacks becomes a numeric character reference (WHATWG URL, "percent-encode after
    encoding"). In a page in UTF-16 or UTF-32, queries are in UTF-8.
    """
    if encoding.startswith("utf-") or all(href.isascii() for href in hrefs):
        return hrefs
    return [href if href.isascii() else _encode_query(href, encoding) for href in hrefs]


def _encode_query(href: str, encoding: str) -> str:
    address, hash_mark, fragment = href.partition("#")
    path, question_mark, query = address.partition("?")
    query = _BEYOND_ASCII.sub(lambda run: _encode_run(run[0], encoding), query)
    return f"{path}{question_mark}{query}{hash_mark}{fragment}"


def _encode_run(text: str, encoding: str) -> str:
    encoded = []
    while text:
        try:
            encoded.append(_percent_encode(text.encode(encoding)))
            break
        except UnicodeEncodeError as error:
            encoded.append(_percent_encode(text[: error.start].encode(encoding)))
            encoded += [f"%26%23{ord(character)}%3B" for character in text[error.start : error.end]]
            text = text[error.end :]
    return "".join(encoded)


_LITERAL = frozenset(range(0x21, 0x7F)) - frozenset(b"\"#'<>")
"""Bytes outside the special-query percent-encode set (WHATWG URL, 1.3)."""


def _percent_encode(data: bytes) -> str:
    return "".join(chr(byte) if byte in _LITERAL else f"%{byte:02X}" for byte in data)
