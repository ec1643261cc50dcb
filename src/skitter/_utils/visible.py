"""Makes text from crawled pages safe to print.

Control characters can move the cursor, change the title of a terminal or run its functions. Bidirectional controls
reverse the order in which a line is read. Such characters are printed as escapes.
"""

from __future__ import annotations

import logging
import re
from types import TracebackType

_HIDDEN = (  # compiled on first use
    "[\0-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and line feed, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidirectional controls (Unicode UAX 9)
    "\u2028\u2029\ufeff\ud800-\udfff]"  # separators of lines, byte order mark, lone surrogates
)


def visible(text: str) -> str:
    """Return a text with its control and bidirectional characters as escapes. Tabs and line feeds remain.

    Escapes have the form of JSON escapes, so a JSON text stays JSON with the same value.
    """
    if text.isascii() and text.isprintable():
        return text
    return re.sub(_HIDDEN, lambda found: f"\\u{ord(found[0]):04x}", text)


def visible_line(text: str) -> str:
    """Return a text on one line: like :func:`visible`, but tabs and line feeds become escapes, too."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def one_line(error: BaseException) -> str:
    """Return the message of an error with single spaces, or the name of its class if the message is empty."""
    return " ".join(str(error).split()) or type(error).__name__


class VisibleFormatter(logging.Formatter):
    """Formats log records for a terminal. Lines after the first are indented, so that a message cannot look like several."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name in logging
        """Return the line of a record."""
        return visible(super().formatMessage(record)).replace("\n", "\n    ")

    def formatException(  # noqa: N802 - the name in logging
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None],
    ) -> str:
        """Return a traceback."""
        return visible(super().formatException(ei))
