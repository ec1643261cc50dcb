"""Say: what the command line tells people goes to standard error; standard output is for results."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """Tell something."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def complain(message: str, remedy: str = "") -> None:
    """Tell in one line what is wrong, and what to do about it."""
    parts = (" ".join(part.split()) for part in (message, remedy) if part)
    say(f"skitter: {'; '.join(parts)}")
