"""Scripts: the state transitions of each backend, named and short enough to review."""

from __future__ import annotations

import re
from pkgutil import get_data

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def script(file_name: str) -> str:
    """Read a file of this folder."""
    text = get_data(__name__, file_name)  # importlib.resources would load the reader of zip archives first
    assert text is not None, "a package can always read its own files"
    return text.decode("utf-8")


def named_statements(file_name: str) -> dict[str, str]:
    """Read the statements of a file that are headed ``-- name: NAME``, in their order."""
    parts = _NAME.split(script(file_name))
    return {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}
