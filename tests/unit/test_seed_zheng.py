"""Every feature of Zheng's crawler is answered, by tests that exist."""

import re

from manual import ROOT

PAGE = (ROOT / "docs" / "seed-systems" / "zheng.md").read_text()


def test_every_feature_has_its_row_in_order():
    assert re.findall(r"^\| (Z\d+) \|", PAGE, re.MULTILINE) == [f"Z{number}" for number in range(1, 32)]


def test_every_test_that_an_answer_names_is_there():
    named = set(re.findall(r"`(tests/[\w/.]+)`", PAGE))
    assert len(named) > 15
    assert [name for name in named if not (ROOT / name).exists()] == []
