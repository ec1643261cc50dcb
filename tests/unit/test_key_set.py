"""KeySet, a compiled set of keys of 16 bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skitter.frontier.embedded.runs import KeySet

pytestmark = pytest.mark.skipif(
    KeySet is set, reason="the set was not compiled: install a C compiler, then skitter again"
)
KEYS = st.builds(
    lambda first, last: bytes([first]) + bytes(7) + bytes([last]) + bytes(7),
    st.integers(0, 3),
    st.integers(0, 40),
)
"""Few keys. Many of them have the same place in the table, and one is zero."""


@given(st.lists(st.tuples(st.sampled_from(["add", "discard"]), KEYS), max_size=200))
def test_it_equals_a_set_of_python(changes):
    keys, expected = KeySet(), set()
    for name, key in changes:
        getattr(keys, name)(key)
        getattr(expected, name)(key)
        assert (len(keys), key in keys) == (len(expected), key in expected)
    assert sorted(keys) == sorted(expected)
    assert all(key in keys for key in expected)


def test_it_grows():
    numbers = [number.to_bytes(16, "little") for number in range(5_000)]
    keys = KeySet()
    for key in numbers:
        keys.add(key)
    assert set(keys) == set(numbers)
    for key in numbers[::2]:
        keys.discard(key)
    assert set(keys) == set(numbers[1::2])
    assert [key in keys for key in numbers[:4]] == [False, True, False, True]


def test_changes_do_not_affect_a_running_iteration():
    keys = KeySet()
    for number in range(10):
        keys.add(bytes([number]) * 16)
    for key in keys:
        keys.discard(key)
        keys.add(key[:15] + b"x")
    assert sorted(keys) == [bytes([number]) * 15 + b"x" for number in range(10)]


@pytest.mark.parametrize("call", [KeySet.add, KeySet.discard, KeySet.__contains__])
@pytest.mark.parametrize(
    ("key", "error"), [(b"short", ValueError), (b"x" * 17, ValueError), ("x" * 16, TypeError)]
)
def test_anything_but_16_bytes_is_an_error(call, key, error):
    with pytest.raises(error):
        call(KeySet(), key)
