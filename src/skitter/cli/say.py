"""Say: what the command line tells people goes to standard error; standard output is for results."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def say(text: str) -> None:
    """Tell something."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def complain(message: str, remedy: str = "") -> None:
    """Tell in one line what is wrong, and what to do about it."""
    parts = (" ".join(part.split()) for part in (message, remedy) if part)
    say(f"skitter: {'; '.join(parts)}")


def aligned(rows: Sequence[Sequence[str]], *, right: frozenset[int] = frozenset()) -> str:
    """Return rows as lines whose columns stand below each other; the last column is not padded."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join(lines)
