"""Messages on standard error, aligned tables, and exit statuses. Standard output is for results."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import click

from skitter._utils.visible import visible, visible_line
from skitter.errors import UsageError


def say(text: str) -> None:
    """Print a message. Control and bidirectional characters are printed as escapes."""
    sys.stderr.write(f"{visible(text)}\n")
    sys.stderr.flush()


def complain(message: str, remedy: str = "") -> None:
    """Print an error and its remedy on one line."""
    parts = (" ".join(part.split()) for part in (message, remedy) if part)
    prefix = painted("skitter:", "red", sys.stderr)
    sys.stderr.write(f"{prefix} {visible('; '.join(parts))}\n")
    sys.stderr.flush()


def write_file(path: Path, content: bytes) -> None:
    """Write a file that the user has named. Raises :class:`~skitter.errors.UsageError`."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror or error}",
            remedy="name a file in an existing folder",
            field="output",
        ) from error


def painted(text: str, color: str, stream: TextIO) -> str:
    """Return a text in a color if the stream is a terminal and neither ``NO_COLOR`` nor ``TERM`` disables colors."""
    shows_colors = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return click.style(text, fg=color) if shows_colors else text


def aligned(rows: Sequence[Sequence[str]], *, right: frozenset[int] = frozenset()) -> str:
    """Return rows as lines with aligned columns, with control characters as escapes. The last column is not padded."""
    rows = [[visible_line(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join(lines)


def fitted(rows: Sequence[Sequence[str]], width: int, dropped: Sequence[str]) -> list[list[str]]:
    """Return rows without the columns that do not fit into ``width`` characters. The first row holds the names.

    ``dropped``: names of the columns to leave out, in this order. Values are never cut.
    """
    kept = list(rows[0])
    widths = {name: max(len(row[column]) for row in rows) for column, name in enumerate(rows[0])}
    for name in dropped:
        if sum(widths[column] + 2 for column in kept) - 2 <= width:
            break
        kept.remove(name)
    columns = [rows[0].index(name) for name in kept]
    return [[row[column] for column in columns] for row in rows]


FAILED = 1
"""The run failed, or there are dead letters and ``--fail-on-errors`` was set."""
USAGE = 2
"""Invalid usage or input."""
VIOLATED = 3
"""The pass has ended, but violates a monitor."""
INTERRUPTED = 130
"""Ended by a signal: 128 plus the number of SIGINT, as in shells."""
