"""No-quirks mode for every page."""

from __future__ import annotations

import re

_STANDARD = re.compile(r"\s*<!doctype\s+html\s*>", re.IGNORECASE)


def in_standards_mode(text: str) -> str:
    """Return the page such that class names and ids keep their case.

    An old or missing doctype turns quirks mode on, in which ``.Price`` also finds ``class=price``
    (WHATWG DOM, 4.5). A second doctype is ignored by the parser.
    """
    return text if _STANDARD.match(text) else f"<!DOCTYPE html>{text}"
