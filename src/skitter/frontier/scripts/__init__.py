"""Scripts: the state transitions of each backend, named and short enough to review."""

from __future__ import annotations

import re
from pathlib import Path

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def script(file_name: str) -> str:
    """Read a file of this folder."""
    # importlib.resources would load the reader of zip archives first, and pkgutil takes as long to load.
    return Path(__file__).with_name(file_name).read_text("utf-8")


def named_statements(file_name: str) -> dict[str, str]:
    """Read the statements of a file that are headed ``-- name: NAME``, in their order."""
    parts = _NAME.split(script(file_name))
    return {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}
