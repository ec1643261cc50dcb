"""The text of a recipe is read as plain values, and each has its line."""

import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skitter.frontends.recipe.source import RecipeError, RecipeSource, toml_lines


def test_only_true_false_null_and_numbers_are_not_strings_in_yaml():
    text = "a: [no, on, 12:30, 2024-01-02, 0x1f, 1_000, true, null, 5, -1.5, 1e3, .5, '7', ~, '', y]"
    assert RecipeSource.of_text(text, "x.yaml").data["a"] == [
        "no", "on", "12:30", "2024-01-02", "0x1f", "1_000", True, None, 5, -1.5, 1000.0, 0.5, "7", None, "", "y",
    ]  # fmt: skip


def test_each_yaml_value_has_its_line():
    source = RecipeSource.of_text("a:\n  b: [1,\n    2]\n  c: {d: 1,\n    e: 2}\n", "x.yaml")
    lines = {("a",): 1, ("a", "b"): 2, ("a", "b", 1): 3, ("a", "c", "e"): 5, ("a", "c", "gone"): 4, (): 1}
    assert {path: source.line_of(path) for path in lines} == lines


def test_yaml_merge_keys_have_no_meaning_in_a_recipe():
    assert RecipeSource.of_text("a: &x {k: 1}\nb: {<<: *x}\n", "x.yaml").data["b"] == {"<<": {"k": 1}}


def test_an_empty_file_is_refused(tmp_path):
    from skitter.frontends.recipe.compiled_recipe import compile_recipe

    with pytest.raises(RecipeError, match=r"e\.yaml line 1: "):
        compile_recipe(RecipeSource.of_text("", "e.yaml"))


def test_a_binary_file_is_rejected(tmp_path):
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecipeError, match=r"x\.yaml"):
        RecipeSource.of_file(tmp_path / "x.yaml")


def test_a_control_character_is_refused_with_its_line():
    with pytest.raises(RecipeError, match=r"x\.yaml line \d+: "):
        RecipeSource.of_text("a: 1\nb: \x07\n", "x.yaml")


names = st.text("abcxyz_-0123456789", min_size=1, max_size=4)
values = st.sampled_from([
    "1", '"text"', "'[a]'", '"""\n[no.table]\nx = 1\n"""', "'''\n]]\n'''", "[1,\n 2, # ]\n 3]", "{ a = 1, b = [2] }",
    '"a # b"', '"\\"["', "true",
])  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), names, st.dictionaries(names, values, max_size=3)), max_size=6))
def test_toml_errors_name_the_lines_of_their_keys(tables):
    text, expected, counts = "", {}, {}
    for repeated, word, entries in tables:
        name = f"l_{word}" if repeated else f"t_{word}"
        if not repeated and name in counts:
            continue
        counts[name] = counts.get(name, -1) + 1
        text += f"[[{name}]]\n" if repeated else f"[{name}]  # head\n"
        path = (name, counts[name]) if repeated else (name,)
        expected[path] = text.count("\n")
        for key, value in entries.items():
            expected[*path, key] = text.count("\n") + 1
            text += f"{key} = {value}\n"
    tomllib.loads(text)
    lines = toml_lines(text)
    assert {path: lines.get(path) for path in expected} == expected


def test_dotted_and_quoted_keys_of_toml_have_lines():
    lines = toml_lines('a.b = 1\n[c."d e"]\n"f g".h = 2\n')
    assert lines["a", "b"] == 1
    assert lines["c", "d e"] == 2
    assert lines["c", "d e", "f g", "h"] == 3
