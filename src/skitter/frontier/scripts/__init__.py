"""Scripts: the state transitions of each backend, named and short enough to review."""

from __future__ import annotations

import re
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def named_statements(file_name: str) -> dict[str, str]:
    """Read the statements of a file that are headed ``-- name: NAME``, in their order."""
    text = (files(__name__) / file_name).read_text("utf-8")
    parts = _NAME.split(text)
    return {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}
