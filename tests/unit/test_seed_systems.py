"""The pages on earlier systems: every feature has an answer, and tests that exist."""

import re

import pytest

from manual import ROOT
from proofs import main as proofs_ran
from proofs import proofs, rows

FOLDER = ROOT / "docs" / "seed-systems"
PAGES = {
    "gocrawler": ("G", 30),
    "zheng": ("Z", 31),
    "gopcp": ("P", 26),
    "scrapy-redis": ("S", 28),
    "colly": ("C", 38),
}
FOLDERS = [ROOT / "tests" / name for name in ("unit", "integration", "contract", "services", "chaos")]


@pytest.fixture(scope="module")
def tests():
    """Names of all tests."""
    files = [path for folder in FOLDERS for path in folder.glob("test_*.py")]
    text = "\n".join(path.read_text() for path in files)
    return set(re.findall(r"^(?:async )?def (test_\w+)\(", text, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES)
def test_every_feature_of_a_system_has_its_row_in_order(page):
    letter, last = PAGES[page]
    text = (FOLDER / f"{page}.md").read_text()
    assert re.findall(r"^\| ([A-Z]\d+) \|", text, re.MULTILINE) == [
        f"{letter}{n}" for n in range(1, last + 1)
    ]


@pytest.mark.parametrize("page", PAGES)
def test_every_row_names_existing_tests(page, tests):
    """``proofs.py`` checks after ``make test`` that they passed."""
    for number, answer, names in rows(page):
        assert names, (number, answer)
        assert [name for name in names if name not in tests] == [], number


def test_a_proof_that_did_not_pass_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SKITTER_TEST_ALL", "1")
    passed = sorted(proofs())
    (tmp_path / "all").write_text("\n".join(passed))
    (tmp_path / "some").write_text("\n".join(passed[1:]))
    assert proofs_ran(tmp_path / "all") == 0
    assert (proofs_ran(tmp_path / "some"), passed[0] in capsys.readouterr().out) == (1, True)


def test_the_index_leads_to_every_page():
    index = (ROOT / "docs" / "seed-systems.md").read_text()
    assert set(re.findall(r"\(seed-systems/([\w-]+)\.md\)", index)) == set(PAGES)
    assert {path.stem for path in FOLDER.glob("*.md")} == set(PAGES)
    for page, (letter, last) in PAGES.items():
        assert re.search(rf"seed-systems/{page}\.md\) \| {letter}1-{letter}{last} ", index)
