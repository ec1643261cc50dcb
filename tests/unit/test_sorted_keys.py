"""Merging, dividing and filtering sorted keys, compiled and in Python."""

import os
import random
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skitter.frontier.embedded import runs as sorted_keys
from skitter.frontier.embedded.runs import (
    FilterBuilder,
    PythonKeyFilter,
    python_merge,
    python_possible_keys,
    python_split,
    split_keys,
)

IS_COMPILED = sorted_keys.merge is not python_merge
compiled = pytest.param(
    True,
    marks=pytest.mark.skipif(
        not IS_COMPILED, reason="the functions were not compiled: install a C compiler, then skitter again"
    ),
    id="compiled",
)
KEYS = st.builds(
    lambda prefix, tag, last: b"s" + prefix.to_bytes(4, "big") + bytes([tag]) * 2 + bytes([last]) * 9,
    st.integers(0, 2**32 - 1) | st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**32 - 1]),
    st.integers(0, 3),
    st.integers(0, 255),
)
SEQUENCES = st.lists(KEYS, max_size=40).map(lambda keys: b"".join(sorted(set(keys))))


@pytest.fixture(params=[compiled, pytest.param(False, id="python")])
def functions(request):
    """The functions ``merge`` and ``split``, and the filter."""
    if request.param:
        return sorted_keys.merge, sorted_keys.split, sorted_keys.KeyFilter
    return python_merge, python_split, PythonKeyFilter


def random_keys(amount):
    return b"".join(sorted(b"s" + os.urandom(15) for _ in range(amount)))


def filter_of(kind, packed, parts):
    builder = FilterBuilder()
    builder.add(python_split(packed, parts, 0, parts))
    return kind(parts, builder.packed())


@given(st.lists(SEQUENCES, max_size=5))
def test_a_merge_has_each_key_once_in_order(sources):
    expected = b"".join(sorted({key for source in sources for key in split_keys(source)}))
    assert python_merge(sources) == expected
    assert sorted_keys.merge(sources) == expected


@given(SEQUENCES, st.integers(1, 1_000), st.data())
def test_a_part_has_the_keys_with_its_prefixes(packed, parts, data):
    first = data.draw(st.integers(0, parts))
    end = data.draw(st.integers(first, parts))
    expected = [b""] * parts
    for key in split_keys(packed):
        expected[int.from_bytes(key[1:5], "big") * parts >> 32] += key
    assert python_split(packed, parts, first, end) == expected[first:end]
    assert sorted_keys.split(packed, parts, first, end) == expected[first:end]


@given(SEQUENCES, st.integers(1, 50), st.lists(KEYS, max_size=20))
def test_compiled_filters_answer_like_those_in_python(packed, parts, others):
    found = filter_of(sorted_keys.KeyFilter, packed, parts)
    python = filter_of(PythonKeyFilter, packed, parts)
    for key in [*split_keys(packed), *others]:
        assert (key in found) == (key in python)


@given(st.lists(st.tuples(SEQUENCES, st.integers(1, 50)), max_size=4), st.lists(KEYS, max_size=100))
def test_possible_keys_are_those_that_a_filter_of_their_shard_does_not_exclude(runs, others):
    keys = [key for packed, _ in runs for key in split_keys(packed)] + others
    keys += [b"t" + key[1:] for key in keys]  # of a shard without runs
    shards, python_shards = [[] for _ in range(256)], [[] for _ in range(256)]
    shards[ord("s")] = [filter_of(sorted_keys.KeyFilter, packed, parts) for packed, parts in runs]
    python_shards[ord("s")] = [filter_of(PythonKeyFilter, packed, parts) for packed, parts in runs]
    expected = [key for key in keys if key[:1] == b"s" and any(key in one for one in shards[ord("s")])]
    assert sorted_keys.possible_keys(keys, shards) == expected
    assert python_possible_keys(keys, python_shards) == expected


def test_a_filter_has_all_of_its_keys_and_hardly_any_others(functions):
    *_, kind = functions
    packed = random_keys(28_000)
    found = filter_of(kind, packed, 1_000)
    assert all(key in found for key in split_keys(packed))
    others = split_keys(random_keys(100_000))
    assert sum(key in found for key in others) < 100  # 43 are expected


def test_a_tag_is_found_at_its_place_only(functions):
    """Not in the second byte of one tag and the first byte of the next one."""
    *_, kind = functions
    keys = [b"s" + bytes(4) + tag + bytes(9) for tag in (b"ab", b"cd")]
    found = filter_of(kind, b"".join(keys), 1)
    assert [b"s" + bytes(4) + tag + bytes(9) in found for tag in (b"ab", b"cd", b"bc")] == [True, True, False]


def test_a_filter_can_be_built_in_several_steps():
    packed = random_keys(500)
    parts = python_split(packed, 20, 0, 20)
    builder = FilterBuilder()
    for start in range(0, 20, 5):
        builder.add(parts[start : start + 5])
    assert builder.amount == 500
    assert all(key in sorted_keys.KeyFilter(20, builder.packed()) for key in split_keys(packed))


@pytest.mark.parametrize(
    ("parts", "packed"),
    [
        (0, b""),
        (1, b""),
        (1, array("I", [2]).tobytes() + b"ab"),
        (1, array("I", [1]).tobytes() + b"abc"),
        (2, array("I", [1]).tobytes()),
        (2, array("I", [2, 1]).tobytes() + b"ab"),
        (2, array("I", [1, 2**32 - 1]).tobytes() + b"ab"),
    ],
)
def test_a_damaged_filter_is_refused(functions, parts, packed):
    *_, kind = functions
    with pytest.raises(ValueError, match="malformed"):
        kind(parts, packed)


@pytest.mark.skipif(not IS_COMPILED, reason="about the compiled functions")
def test_compiled_functions_refuse_anything_but_whole_keys():
    found = filter_of(sorted_keys.KeyFilter, random_keys(10), 2)
    for call in (
        lambda keys: sorted_keys.merge([keys]),
        lambda keys: sorted_keys.split(keys, 1, 0, 1),
        lambda keys: keys in found,
        lambda keys: sorted_keys.possible_keys([keys], [[found]] * 256),
    ):
        for wrong, error in ((b"short", ValueError), ("x" * 16, TypeError)):
            with pytest.raises(error):
                call(wrong)
    with pytest.raises(ValueError, match="parts"):
        sorted_keys.split(b"", 3, 2, 4)
    key = b"s" * 16
    for keys, shards in (((key,), [[found]] * 256), ([key], [(found,)] * 256), ([key], [[{key}]] * 256)):
        with pytest.raises((TypeError, SystemError)):
            sorted_keys.possible_keys(keys, shards)
    with pytest.raises(IndexError):
        sorted_keys.possible_keys([key], [[found]])


@pytest.mark.skipif(not IS_COMPILED, reason="about the compiled functions")
def test_compiled_functions_survive_keys_that_are_not_in_order():
    """A damaged file may contain them."""
    keys = list(split_keys(random_keys(200)))
    random.Random(1).shuffle(keys)
    packed = b"".join(keys)
    assert len(sorted_keys.merge([packed, packed])) <= 2 * len(packed)
    assert sum(map(len, sorted_keys.split(packed, 7, 0, 7))) <= len(packed)
