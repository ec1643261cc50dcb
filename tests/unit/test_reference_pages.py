"""The reference pages of settings and commands are as generated from their declarations."""

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
