"""Values: from the texts of a page to numbers, dates, URLs and the rest.

Each converter raises ``ValueError`` with a reason for text that is nothing of its kind.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from skitter.frontends.recipe.finder import text_of
from skitter.html.selector import Selector
from skitter.plugins import need

_NUMBER = re.compile(r"[-+\u2212]?\s*(?:\d[\d.,'\u2019\s\u00a0\u202f]*|[.,]\d+)(?:[eE][-+]?\d+)?")
_GROUPING = re.compile(r"['\u2019\s\u00a0\u202f]")
_NO = frozenset({"", "0", "false", "f", "no", "n", "off", "none", "null"})


def to_float(text: str, decimal: str = ".") -> float:
    """Return the first number in a text; marks between thousands are passed over. Raises ``ValueError``: none."""
    found = _NUMBER.search(text)
    if found is None:
        raise ValueError(f"{text!r:.60} holds no number")
    digits = _GROUPING.sub("", found[0]).replace("\u2212", "-")
    other = "," if decimal == "." else "."
    return float(digits.replace(other, "").replace(decimal, ".").rstrip("."))


def to_int(text: str, decimal: str = ".") -> int:
    """Return the first number in a text. Raises ``ValueError``: there is none, or it is not whole."""
    number = to_float(text, decimal)
    if not number.is_integer():
        raise ValueError(f"{text!r:.60} is no whole number")
    plain = _GROUPING.sub("", text).replace("," if decimal == "." else ".", "")
    exact = re.search(r"[-+]?\d+", plain.replace("\u2212", "-"))
    # Beyond 2**53 a float would round.
    return int(exact[0]) if exact is not None and abs(number) >= 2**53 else int(number)


def to_bool(text: str) -> bool:
    """Return false for a word that means it, and true for any other text: it was found."""
    return text.strip().lower() not in _NO


class DateReader:
    """Reads dates: ISO 8601, RFC 5322, Unix time, or the formats and language that are given."""

    def __init__(self, formats: list[str]) -> None:
        self._formats = formats

    def read(self, text: str, locale: str | None) -> datetime:
        """Return the moment; without a zone in the text it has none. ``locale``: its language.

        Raises ``ValueError`` for a text that is no moment.
        """
        if self._formats:
            return self._by_format(text)
        if locale is not None:
            return _in_words(text, locale)
        if re.fullmatch(r"\d{9,10}(\.\d+)?", text):
            return datetime.fromtimestamp(float(text), UTC)
        for read in (datetime.fromisoformat, parsedate_to_datetime):
            try:
                return read(text)
            except ValueError:
                continue
        raise ValueError(f"{text!r:.60} is no date by ISO 8601 or RFC 5322: give its `format` or `locale`")

    def _by_format(self, text: str) -> datetime:
        for form in self._formats:
            try:
                return datetime.strptime(text, form)  # noqa: DTZ007 - the page may not tell its zone
            except ValueError:
                continue
        raise ValueError(f"{text!r:.60} is no date like {' or '.join(self._formats)}")


def _in_words(text: str, locale: str) -> datetime:
    dateparser = need("dateparser", "recipes", "dates in words")
    found: datetime | None = dateparser.parse(text, languages=[locale], settings={"TIMEZONE": "UTC"})
    if found is None:
        raise ValueError(f"{text!r:.60} is no date in {locale}")
    return found


def to_html(node: Any) -> str:
    """Return the outer HTML of an element; a text as it is."""
    html = node.get() if isinstance(node, Selector) else node
    return html if isinstance(html, str) else text_of(html)


def to_markdown(node: Any) -> str:
    """Return an element, or HTML text, as Markdown."""
    convert = need("markdownify", "recipes", "fields of type markdown").markdownify
    text: str = convert(to_html(node), heading_style="ATX", bullets="-")
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def to_json(node: Any) -> Any:
    """Return a value of JSON as it is; a text is read as JSON. Raises ``ValueError``: it is none."""
    if not isinstance(node, (str, Selector)):
        return node
    try:
        return msgspec.json.decode(text_of(node))
    except msgspec.DecodeError as error:
        raise ValueError(f"what should be JSON is none: {error}") from None
