"""Numbers in messages agree with their nouns."""

import pytest

from skitter.errors import counted


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 requests"), (1, "1 request"), (2, "2 requests"), (1234, "1,234 requests")]
)
def test_a_noun_agrees_with_its_number(number, text):
    assert counted(number, "request") == text
