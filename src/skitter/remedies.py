"""Remedies that many errors share."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(wrong: object, known: Iterable[str]) -> str:
    """Return a remedy for a word that is none of the known ones."""
    names = list(known)
    near = difflib.get_close_matches(str(wrong), names, n=1)
    return f"did you mean {near[0]}?" if near else f"one of: {', '.join(names)}"
