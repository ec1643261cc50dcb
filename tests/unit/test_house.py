"""The house of the project: which room may use which, and whether a newcomer finds each of them."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/skitter"
FLOORS = (
    ("nouns", "testing"),
    ("frontier", "fetch", "store"),
    ("worker", "brokers"),
    ("run",),
    ("frontends", "observe"),
    ("service",),
    ("cli",),
)
"""A room uses those below it, and none of its own floor. ``nouns``: the files beside the folders, `html`, `web` and `_utils`."""
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
EXCEPTION = re.compile("(?<=# )noqa.*")
FOLDERS = sorted(path.parent for path in SOURCE.rglob("__init__.py"))


def room_of(module):
    name = module.split(".")[1]
    return name if name in FLOOR_OF else "nouns"


def module_of(path):
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)


def imports_of(path):
    """What a file imports when it is loaded: not what a function asks for, and not what only names types."""
    pending = list(ast.parse(path.read_text()).body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("skitter"):
            inner = node.module == "skitter"
            yield from [f"skitter.{alias.name}" for alias in node.names] if inner else [node.module]
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            pending += node.orelse
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            pending += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]


@pytest.mark.parametrize("room", FLOOR_OF)
def test_imports_run_downwards(room):
    files = [
        path for path in SOURCE.rglob("*.py") if room_of(module_of(path)) == room and path.stem != "__main__"
    ]
    upwards = [
        f"{path.relative_to(SOURCE)}: {module}"
        for path in files
        for module in imports_of(path)
        if room_of(module) not in {room, "nouns"} and FLOOR_OF[room_of(module)] >= FLOOR_OF[room]
    ]
    assert files
    assert upwards == []


def test_every_room_has_a_floor():
    rooms = {path.name for path in FOLDERS if path.parent == SOURCE}
    assert rooms - {"html", "web", "_utils"} == set(FLOOR_OF) - {"nouns"}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(SOURCE.parent)))
def test_every_folder_says_what_it_is_for(folder):
    assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))


@pytest.mark.parametrize("folder", FOLDERS[1:], ids=lambda folder: str(folder.relative_to(SOURCE)))
def test_every_folder_is_on_the_map(folder):
    places = (ROOT / "docs/design/architecture.md").read_text().partition("\n## ")[0]
    assert f" {folder.name}/" in places


def test_every_exception_from_a_rule_has_its_reason():
    bare = [
        f"{path.relative_to(ROOT)}:{number}"
        for folder in ("src", "tests", "benchmarks", "examples", "deploy")
        for path in (ROOT / folder).rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (found := EXCEPTION.search(line)) and " - " not in found[0]
    ]
    assert bare == []
