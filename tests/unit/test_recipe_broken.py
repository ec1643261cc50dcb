"""What is wrong with a recipe is told with the file, the line and the field."""

import re
from pathlib import Path

import pytest

from cli_command import skitter, usage_error
from recipe_runs import compile_text
from skitter.frontends.recipe.source import RecipeError

_TEXT = (Path(__file__).parent / "recipes" / "broken.txt").read_text("utf-8")
_MARK = re.compile(r"\s+# <--(?: ([^|\s]+))?(?: \| (.+))?$")


def broken_recipes():
    """Yield each broken recipe: its name, its text, and the expected line, field and details of each problem."""
    for part in re.split(r"^--- ", _TEXT, flags=re.MULTILINE)[1:]:
        name, _, text = part.partition("\n")
        lines = text.splitlines()
        marks = [
            (number, *found.groups(default=""))
            for number, line in enumerate(lines, 1)
            if (found := _MARK.search(line))
        ]
        yield name, "\n".join(_MARK.sub("", line) for line in lines) + "\n", marks


BROKEN = list(broken_recipes())


def test_there_are_more_than_fifty():
    assert len(BROKEN) > 50


@pytest.mark.parametrize(("name", "text", "marks"), BROKEN, ids=[name for name, _, _ in BROKEN])
def test_a_broken_recipe_is_refused_with_the_line_and_field_of_each_problem(name, text, marks):
    with pytest.raises(RecipeError) as caught:
        compile_text(text, name, complete=False)
    told = caught.value.lines
    assert len(told) == len(marks), told
    for number, field, words in marks:
        place = f"{name} line {number}: {field}: " if field else f"{name} line {number}: "
        assert any(line.startswith(place) and words in f"{line}; {caught.value.remedy}" for line in told), (
            told
        )
    assert caught.value.remedy


def test_all_problems_are_reported_at_once_in_the_order_of_their_lines():
    text = """name: x
start: http://x/
pages:
  list:
    items: {fields: {a: "h1[", b: {css: p, regexp: "("}}}
    next: {css: a, last: 5}
  other: {format: html}
"""
    with pytest.raises(RecipeError) as caught:
        compile_text(text, "several.yaml")
    places = [re.match(r"several\.yaml line (\d+): ([\w.]+): ", line).groups() for line in caught.value.lines]
    assert [int(line) for line, _ in places] == [5, 5, 6, 7, 7]
    assert "4 more" in str(caught.value)


def test_a_recipe_that_blows_up_by_its_aliases_is_refused():
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]\n" for n in range(1, 9))
    with pytest.raises(RecipeError, match="too large"):
        compile_text(f"l0: &l0 x\n{levels}", "bomb.yaml")


def test_the_check_command_lists_the_problems_of_all_files_and_exits_with_2(tmp_path):
    (tmp_path / "good.yaml").write_text("name: x\nstart: http://x/\npages: {a: {items: {fields: {t: h1}}}}\n")
    for name in ("unknown_type.yaml", "follow_nowhere.yaml"):
        (tmp_path / name).write_text(next(text for one, text, _ in BROKEN if one == name))
    result = skitter("recipe", "check", "good.yaml", "unknown_type.yaml", "follow_nowhere.yaml", cwd=tmp_path)
    assert result.returncode == 2
    lines = result.stderr.splitlines()
    assert lines[0] == "good.yaml: x is valid"
    assert [line.partition(": ")[2].partition(": ")[0] for line in lines[1:]] == [
        "unknown_type.yaml line 7",
        "follow_nowhere.yaml line 7",
        "follow_nowhere.yaml line 8",
    ]
    assert all("; " in line for line in lines[1:]), "there is no remedy"


def test_running_a_broken_recipe_is_refused_in_one_line(tmp_path):
    (tmp_path / "broken.yaml").write_text("name: x\nstart: http://x/\npages: {a: {itms: 1}}\n")
    told = usage_error("run", "broken.yaml", cwd=tmp_path)
    assert told.startswith("skitter: broken.yaml line 3: pages.a.itms: ")
    assert told.endswith("; did you mean items?")


def test_a_variable_that_has_no_value_and_one_that_does_not_exist_are_refused(tmp_path):
    (tmp_path / "open.yaml").write_text(
        "name: x\nvariables: {site: null}\nstart: ${site}/\npages: {a: {items: {fields: {t: h1}}}}\n"
    )
    assert skitter("recipe", "check", "open.yaml", cwd=tmp_path).returncode == 0
    told = usage_error("run", "open.yaml", cwd=tmp_path)
    assert told.startswith("skitter: open.yaml line 3: start: ")
    assert told.endswith("-a site=VALUE")
    told = usage_error("run", "open.yaml", "-a", "sight=http://x", cwd=tmp_path)
    assert told.startswith("skitter: open.yaml line 2: variables: ")
    assert "'sight'" in told
    assert told.endswith("did you mean site?")


def test_a_missing_file_is_reported_in_one_line(tmp_path):
    assert "missing.yaml" in usage_error("run", "missing.yaml", cwd=tmp_path)
