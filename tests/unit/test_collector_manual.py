"""The manual of the collector names only existing features."""

import re
from itertools import chain

import pytest

from manual import ROOT
from skitter.frontends.collector.options import ENVIRONMENT_PREFIX, ENVIRONMENT_VARIABLES, CollectorOptions

COLLY = ROOT / "docs" / "seed-systems" / "colly.md"


def rows():
    return re.findall(r"^\| C(\d+) \| .+ \| .+ \| (.+) \|$", COLLY.read_text(), re.MULTILINE)


def test_every_feature_of_colly_has_its_row():
    assert [int(number) for number, _ in rows()] == list(range(1, 39))


@pytest.mark.parametrize(("number", "proof"), rows())
def test_every_test_that_proves_a_feature_exists(number, proof):
    names = re.findall(r"`(?:tests/\w+/)?(test_\w+)(\.py)?`", proof)
    folders = [ROOT / "tests" / name for name in ("unit", "integration", "contract", "chaos")]
    texts = "".join(path.read_text() for path in chain(*(folder.glob("test_*.py") for folder in folders)))
    assert names
    for name, is_file in names:
        found = [folder for folder in folders if (folder / f"{name}.py").exists()]
        assert found if is_file else f"def {name}(" in texts, name


def test_the_manual_has_every_option_and_every_variable():
    text = (ROOT / "docs" / "guides" / "collector.md").read_text()
    table = text.partition("## Options")[2].partition("\n## ")[0]
    cells = " ".join(re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE))
    assert set(re.findall(r"`(\w+)`", cells)) == set(CollectorOptions.__struct_fields__)
    assert set(re.findall(r"`([A-Z_]{5,})`", table)) - {ENVIRONMENT_PREFIX} == set(
        ENVIRONMENT_VARIABLES.values()
    )
