"""Detects the encoding of a body and decodes it without raising errors.

The sources are consulted in the order of the WHATWG HTML standard (13.2.3): byte order mark, charset of the
Content-Type header, declaration in the first 1024 bytes (``<meta>`` or XML), then the bytes themselves. Labels have
the same meaning as in browsers (``iso-8859-1`` is windows-1252, ``gb2312`` is gb18030). Unknown labels are ignored.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from functools import cache, lru_cache

from w3lib.encoding import (
    html_body_declared_encoding,
    http_content_type_encoding,
    read_bom,
    resolve_encoding,
    to_unicode,
)

LAST_RESORT = "cp1252"
"""The encoding that browsers assume without other evidence: windows-1252."""

_DECLARATION_BYTES = 1024
_DETECTION_BYTES = 16_384
"""Sufficient for a frequency analysis; a longer sample would cost milliseconds on a long page."""

# Codecs of Python that web pages do not use, or that decode ASCII differently.
_NOT_FOR_PAGES = frozenset(
    {"idna", "mbcs", "oem", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7"}
)

# Labels of the WHATWG Encoding standard (section 4.2) that Python does not know.
_LABELS = {
    "cn_big5": "big5hkscs",
    "csiso88598i": "iso8859_8",
    "dos_874": "cp874",
    "iso_8859_8_i": "iso8859_8",
    "koi8": "koi8_r",
    "logical": "iso8859_8",
    "sun_eu_greek": "iso8859_7",
    "unicode_1_1_utf_8": "utf_8",
    "unicode11utf8": "utf_8",
    "unicode20utf8": "utf_8",
    "visual": "iso8859_8",
    "windows_949": "cp949",
    "x_euc_jp": "euc_jp",
    "x_gbk": "gb18030",
    "x_mac_cyrillic": "mac_cyrillic",
    "x_mac_roman": "mac_roman",
    "x_mac_ukrainian": "mac_cyrillic",
    "x_unicode20utf8": "utf_8",
    "x_x_big5": "big5hkscs",
} | {f"x_cp{page}": f"cp{page}" for page in range(1250, 1259)}


def _codec_of_label(name: str) -> codecs.CodecInfo | None:
    codec = _LABELS.get(name.replace("-", "_"))
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


def decode(body: bytes, encoding: str) -> str:
    """Decode a body with an encoding from :func:`detect`, without a byte order mark.

    Invalid bytes become U+FFFD.
    """
    text = body.decode("utf-8", "replace") if encoding == "utf-8" else to_unicode(body, encoding)
    return text.removeprefix("\ufeff")


@lru_cache(maxsize=1024)
def _declared_by(content_type: str) -> str | None:
    return _usable(http_content_type_encoding(content_type))


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
    codec = _usable(html_body_declared_encoding(body[:_DECLARATION_BYTES]))
    # A declaration that is readable byte by byte cannot be right about two bytes per character.
    return "utf-8" if codec is not None and codec.startswith(("utf-16", "utf-32")) else codec


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
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        pass
    else:
        return "utf-8"
    label = load_detector()(body[:_DETECTION_BYTES])
    codec = _usable(resolve_encoding(label)) if label else None
    # The sample may be valid UTF-8 although the whole body is not.
    return LAST_RESORT if codec is None or codec == "utf-8" else codec
