"""The reference pages of settings and commands are as generated, and those of the API document each object once."""

import re
from pathlib import Path

import pytest

from skitter.cli import reference

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


@pytest.mark.parametrize(
    ("page", "text"), [("settings", reference.settings_page), ("cli", reference.commands_page)]
)
def test_a_reference_page_is_as_generated(page, text):
    assert (REFERENCE / f"{page}.md").read_text("utf-8") == text(), (
        f"run: python -m skitter.cli.reference {page} > docs/reference/{page}.md"
    )


def test_no_object_is_documented_by_itself_and_with_its_module():
    """Links to it would be ambiguous, and ``make docs`` would fail."""
    pages = (REFERENCE / "api").glob("*.md")
    names = [
        name for page in pages for name in re.findall(r"^::: (\S+)", page.read_text("utf-8"), re.MULTILINE)
    ]
    assert len(names) > 20
    twice = [name for name in names if any(name.startswith(f"{other}.") for other in names)]
    assert twice == []
    assert len(names) == len({*names})
