"""Reference pages are up to date, those of the API document each object once, and format versions are current."""

import re
from pathlib import Path

import pytest

from skitter.cli import reference
from skitter.frontier.embedded import tables
from skitter.frontier.redis import job as redis_job
from skitter.service import models

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
DESIGN = REFERENCE.parent / "design"


@pytest.mark.parametrize(
    ("page", "text"), [("settings", reference.settings_page), ("cli", reference.commands_page)]
)
def test_a_reference_page_is_up_to_date(page, text):
    assert (REFERENCE / f"{page}.md").read_text("utf-8") == text(), (
        f"run: python -m skitter.cli.reference {page} > docs/reference/{page}.md"
    )


def test_each_setting_is_in_the_section_of_its_subject():
    sections = {}
    for part in reference.settings_page().split("\n## ")[1:]:
        title, _, text = part.partition("\n")
        assert title not in sections
        sections[title] = re.findall(r"^### (\w+)$", text, re.MULTILINE)
    assert {"max_pages", "time_limit"} <= {*sections["When to stop"]}
    assert {"allow", "fingerprint_keys", "item_schema", "group_key"} <= {*sections["Scope and items"]}
    # "Off: the settings of this section have no effect" is true for each of them.
    assert sections["Traps"][0] == "trap_detection"
    assert sections["Traps"][-1] == "duplicate_content"


def test_a_command_without_options_has_no_table():
    page = reference.commands_page()
    assert "## skitter repair\n" in page
    assert re.findall(r"^\| --- \| --- \|\n(?!\| )", page, re.MULTILINE) == []


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


@pytest.mark.parametrize(
    ("page", "words", "version"),
    [
        ("architecture.md", r"\| the SQLite file of a frontier \| (\d+),", tables.FORMAT_VERSION),
        ("architecture.md", r"\| the `job` key on Redis \| (\d+),", redis_job.FORMAT_VERSION),
        ("architecture.md", r"\| the records of a service, [^|]+ \| (\d+),", models.FORMAT),
        ("embedded-frontier.md", r"The file has format (\d+) ", tables.FORMAT_VERSION),
        ("service.md", r"Records have a version \(`format`, now (\d+)\)", models.FORMAT),
        ("redis-frontier.md", r"\(`format` in `job`, now (\d+)\)", redis_job.FORMAT_VERSION),
    ],
)
def test_a_design_page_states_the_current_version_of_a_format(page, words, version):
    assert re.findall(words, (DESIGN / page).read_text("utf-8")) == [str(version)]
