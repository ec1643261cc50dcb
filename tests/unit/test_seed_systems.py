"""The pages on the systems that came before: every feature is answered, by tests that exist."""

import re

import pytest

from manual import ROOT

FOLDER = ROOT / "docs" / "seed-systems"
PAGES = {
    "gocrawler": ("G", 28),
    "zheng": ("Z", 31),
    "gopcp": ("P", 26),
    "scrapy-redis": ("S", 21),
    "colly": ("C", 28),
}
FOLDERS = [ROOT / "tests" / name for name in ("unit", "integration", "contract", "services", "chaos")]


def rows(page):
    """Give number, answer and proof of each row."""
    text = (FOLDER / f"{page}.md").read_text()
    return re.findall(r"^\| [A-Z](\d+) \| .+ \| (.+) \| (.+) \|$", text, re.MULTILINE)


@pytest.fixture(scope="module")
def tests():
    """Names of all tests, and of all their files."""
    files = [path for folder in FOLDERS for path in folder.glob("test_*.py")]
    names = re.findall(
        r"^(?:async )?def (test_\w+)\(", "\n".join(path.read_text() for path in files), re.MULTILINE
    )
    return set(names) | {path.name for path in files}


@pytest.mark.parametrize("page", PAGES)
def test_every_feature_of_a_system_has_its_row_in_order(page):
    letter, last = PAGES[page]
    text = (FOLDER / f"{page}.md").read_text()
    assert re.findall(r"^\| ([A-Z]\d+) \|", text, re.MULTILINE) == [
        f"{letter}{n}" for n in range(1, last + 1)
    ]


@pytest.mark.parametrize("page", PAGES)
def test_every_row_names_proofs_that_there_are(page, tests):
    for number, answer, proof in rows(page):
        named = re.findall(r"`(?:(tests/\w+)/)?(test_\w+(?:\.py)?)`", proof)
        assert named, (number, answer)
        assert [name for _, name in named if name not in tests] == [], number
        assert [
            f"{folder}/{name}" for folder, name in named if folder and not (ROOT / folder / name).exists()
        ] == []


def test_the_index_leads_to_every_page():
    index = (ROOT / "docs" / "seed-systems.md").read_text()
    assert set(re.findall(r"\(seed-systems/([\w-]+)\.md\)", index)) == set(PAGES)
    assert {path.stem for path in FOLDER.glob("*.md")} == set(PAGES)
    for page, (letter, last) in PAGES.items():
        assert re.search(rf"seed-systems/{page}\.md\) \| {letter}1-{letter}{last} ", index)
