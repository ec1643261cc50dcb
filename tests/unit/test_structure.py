"""The structure of the source: which folder may import which, and rules that keep classes simple."""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/skitter"
LAYERS = (
    ("root", "content", "testing"),
    ("frontier", "fetch", "store"),
    ("worker", "brokers", "browser", "archive"),
    ("run",),
    ("frontends", "observe", "scrapy"),
    ("service",),
    ("cli",),
)
"""A folder imports only those of lower layers. ``root``: the files beside the folders, `html`, `web` and `_utils`."""
LAYER_OF = {folder: layer for layer, folders in enumerate(LAYERS) for folder in folders}
EXCEPTION = re.compile("(?<=# )noqa.*")
FOLDERS = sorted(path.parent for path in SOURCE.rglob("__init__.py"))
MAX_PARAMETERS = 7
"""Maximum number of parameters of a constructor, in addition to ``self``."""
LIBRARY_ATTRIBUTES = {
    "skitter.frontier.redis.kvrocks: getattr(connection, 'host', '')",
    "skitter.worker.callbacks: getattr(function, '__qualname__', repr(function))",
}
"""Attributes of objects of other libraries, which may lack them."""

CONTEXT_VARIABLES = {"skitter.frontends.collector.group", "skitter.stats"}
"""``collector.visit()`` and ``stats.inc_value()`` have no argument for the current page, and tasks that a callback starts
must inherit it.
"""
CORE = ("html", "web", "_utils", "frontier", "fetch", "store", "worker", "run")
"""Folders of the core, besides the files at the root."""
OPTIONAL_BACK_ENDS = (
    "frontier/redis",
    "frontier/cluster",
    "store/mongodb.py",
    "store/mysql.py",
    "store/postgresql.py",
    "store/kafka.py",
    "store/opensearch.py",
    "store/redis_items.py",
    "store/redis_output.py",
)
"""Parts of these folders that a crawl without their servers never loads."""
MAX_CORE_FILES = 180
SMALL_FILE = 50
"""Lines. A smaller file with a single user belongs to that user."""
MAX_TERMS = 50
"""Maximum number of terms in the glossary."""
LARGE_CONSTRUCTORS = {"skitter.response.Response", "skitter.run.crawl.Crawl"}
"""``Response`` is a plain record of an answer; three arguments of ``Crawl`` are structs of settings."""


def folder_of(module):
    name = module.split(".")[1]
    return name if name in LAYER_OF else "root"


def module_of(path):
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)


@cache
def tree_of(path):
    return ast.parse(path.read_text())


def imports_of(path):
    """Return the imports of a file at load time, without those in functions and those for types only."""
    pending = list(tree_of(path).body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("skitter"):
            inner = node.module == "skitter"
            yield from [f"skitter.{alias.name}" for alias in node.names] if inner else [node.module]
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            pending += node.orelse
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            pending += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]


@pytest.mark.parametrize("folder", LAYER_OF)
def test_imports_run_downwards(folder):
    files = [
        path
        for path in SOURCE.rglob("*.py")
        if folder_of(module_of(path)) == folder and path.stem != "__main__"
    ]
    upwards = [
        f"{path.relative_to(SOURCE)}: {module}"
        for path in files
        for module in imports_of(path)
        if folder_of(module) not in {folder, "root"} and LAYER_OF[folder_of(module)] >= LAYER_OF[folder]
    ]
    assert files
    assert upwards == []


def test_every_folder_has_a_layer():
    folders = {path.name for path in FOLDERS if path.parent == SOURCE}
    assert folders - {"html", "web", "_utils"} == set(LAYER_OF) - {"root"}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(SOURCE.parent)))
def test_every_folder_has_a_description(folder):
    assert ast.get_docstring(tree_of(folder / "__init__.py"))


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


# --- classes and names ----------------------------------------------------------------------------------------


@cache
def trees_of(*folders):
    """Return the syntax tree of each source file, of some folders or of all, by its module."""
    roots = [SOURCE / folder for folder in folders] or [SOURCE]
    files = [path for root in roots for path in sorted(root.rglob("*.py"))]
    return {module_of(path): tree_of(path) for path in files}


@cache
def nodes_of(tree):
    """Return the classes and the calls in a syntax tree."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.Call)]


def classes_of(trees):
    return [
        (module, node)
        for module, tree in trees.items()
        for node in nodes_of(tree)
        if isinstance(node, ast.ClassDef)
    ]


def calls_of(trees):
    """Return each call of a name, with its module and the last part of the name."""
    for module, tree in trees.items():
        for node in nodes_of(tree):
            if isinstance(node, ast.Call):
                function = node.func.value if isinstance(node.func, ast.Subscript) else node.func
                if isinstance(function, ast.Name | ast.Attribute):
                    yield module, node, function.id if isinstance(function, ast.Name) else function.attr


def bases_of(node):
    """Return the bases of a class that are neither Protocol nor Generic."""
    names = [ast.unparse(base).partition("[")[0] for base in node.bases]
    return [name for name in names if name not in {"Protocol", "Generic"}]


def classes_with_several_bases(trees):
    return {f"{module}.{node.name}" for module, node in classes_of(trees) if len(bases_of(node)) > 1}


def context_variables(trees):
    return {module for module, _, name in calls_of(trees) if name == "ContextVar"}


def sniffed_attributes(trees):
    """Return the calls ``getattr(x, "name", default)`` and ``hasattr(x, ...)``, which discover what a part can do."""
    return {
        f"{module}: {ast.unparse(node)}"
        for module, node, name in calls_of(trees)
        if name == "hasattr"
        or (name == "getattr" and len(node.args) == 3 and isinstance(node.args[1], ast.Constant))
    }


def repeated_class_names(trees):
    places = defaultdict(set)
    for module, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(module)
    return {name for name, modules in places.items() if len(modules) > 1}


def large_constructors(trees):
    return {
        f"{module}.{node.name}"
        for module, node in classes_of(trees)
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name == "__init__"
        if len(method.args.posonlyargs + method.args.args + method.args.kwonlyargs) - 1 > MAX_PARAMETERS
    }


def lazy_imports_of(tree):
    """Return every module that a file imports, including imports in functions, without those for types only."""
    pending = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("skitter"):
            yield from [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from [alias.name for alias in node.names if alias.name.startswith("skitter")]
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            pending += node.orelse
        else:
            pending += [
                child
                for child in ast.iter_child_nodes(node)
                if isinstance(child, ast.stmt | ast.excepthandler)
            ]


def hidden_types(trees):
    """Return the types that a class hides by a name of its own, in modules whose annotations Python evaluates.

    From Python 3.14 on, it does so when they are read, with the names of the complete class.
    """
    return {
        f"{module}.{node.name}: {name}"
        for module, node in classes_of(trees)
        if not postpones_annotations(trees[module])
        for name in own_names(node) & annotated_names(node)
    }


def postpones_annotations(tree):
    return any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)


def own_names(node):
    """Return the names of the methods of a class, and of its attributes with values."""
    targets = [
        target
        for item in node.body
        for target in (item.targets if isinstance(item, ast.Assign) else [])
        + ([item.target] if isinstance(item, ast.AnnAssign) and item.value else [])
    ]
    return {method.name for method in methods_of(node)} | {
        target.id for target in targets if isinstance(target, ast.Name)
    }


def annotated_names(node):
    """Return the names in the annotations of a class and of its methods."""
    annotations = [item.annotation for item in node.body if isinstance(item, ast.AnnAssign)]
    for method in methods_of(node):
        arguments = [argument for argument in ast.walk(method.args) if isinstance(argument, ast.arg)]
        annotations += [*(argument.annotation for argument in arguments), method.returns]
    return {
        name.id
        for annotation in annotations
        if annotation is not None
        for name in ast.walk(annotation)
        if isinstance(name, ast.Name)
    }


IMPLEMENTS = re.compile(r"\bImplements ((?::class:`[^`]+`(?:, | and )?)+)")


def methods_of(node):
    return [item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]


def undocumented_methods(trees):
    """Return the public methods that neither their class documents nor a protocol that their class names in its docstring."""
    classes = classes_of(trees)
    declared = defaultdict(set)
    for _, node in classes:
        if any(ast.unparse(base).partition("[")[0] == "Protocol" for base in node.bases):
            declared[node.name] |= {method.name for method in methods_of(node) if ast.get_docstring(method)}
    found = set()
    for module, node in classes:
        names = IMPLEMENTS.search(ast.get_docstring(node) or "")
        protocols = re.findall(r"(\w+)`", names[1]) if names else []
        known = set().union(*(declared[protocol] for protocol in protocols))
        found |= {
            f"{module}.{node.name}.{method.name}"
            for method in methods_of(node)
            if not (node.name.startswith("_") or method.name.startswith("_") or ast.get_docstring(method))
            if method.name not in known
            if not any(
                ast.unparse(decorator).endswith((".setter", "overload"))
                for decorator in method.decorator_list
            )
        }
    return found


def import_cycles(trees):
    """Return the groups of modules that import each other."""
    graph = {}
    for module, tree in trees.items():
        found = {name if name in trees else name.rpartition(".")[0] for name in lazy_imports_of(tree)}
        graph[module] = {name for name in found if name in trees and name != module}
    reached = {module: reachable(graph, module) for module in graph}
    return {
        " <-> ".join(sorted(other for other in reached[module] if module in reached[other]))
        for module in graph
        if module in reached[module]
    }


def reachable(graph, start):
    found, pending = set(), list(graph[start])
    while pending:
        module = pending.pop()
        if module not in found:
            found.add(module)
            pending += graph[module]
    return found


def core_trees():
    at_root = {module: tree for module, tree in trees_of().items() if module.count(".") == 1}
    return at_root | trees_of(*CORE)


def core_files():
    """Return the files of the core, and those of the optional back ends in its folders."""
    files = [path for folder in CORE for path in (SOURCE / folder).rglob("*.py")] + [*SOURCE.glob("*.py")]
    optional = {path for path in files if path.relative_to(SOURCE).as_posix().startswith(OPTIONAL_BACK_ENDS)}
    return set(files) - optional, optional


def test_a_class_of_the_frontier_has_one_base_at_most():
    assert classes_with_several_bases(trees_of("frontier")) == set()


def test_no_argument_is_passed_by_a_context_variable():
    assert context_variables(trees_of()) - CONTEXT_VARIABLES == set()


def test_no_ability_of_a_part_is_discovered_by_looking_for_an_attribute():
    assert sniffed_attributes(trees_of("frontier", "fetch", "worker", "run")) - LIBRARY_ATTRIBUTES == set()


def test_no_public_class_name_is_used_twice():
    assert repeated_class_names(trees_of()) == set()


def test_no_constructor_has_too_many_parameters():
    assert large_constructors(trees_of()) - LARGE_CONSTRUCTORS == set()


def test_no_class_hides_a_type_of_its_annotations():
    assert hidden_types(trees_of()) == set()


def test_every_public_method_is_documented_by_its_class_or_by_the_protocol_that_its_class_names():
    assert undocumented_methods(trees_of()) == set()


def test_no_small_file_has_a_single_user():
    trees = trees_of()
    users = defaultdict(set)
    for module, tree in trees.items():
        for name in lazy_imports_of(tree):
            users[name if name in trees else name.rpartition(".")[0]].add(module)
    small = {
        module_of(path)
        for path in SOURCE.rglob("*.py")
        if len(path.read_text().splitlines()) < SMALL_FILE and not path.stem.startswith("__")
    }
    assert {module: users[module] for module in small if len(users[module]) < 2} == {}


def test_the_core_has_no_import_cycle():
    assert import_cycles(core_trees()) == set()


def test_the_core_has_few_files():
    assert len(core_files()[0]) <= MAX_CORE_FILES


def test_the_core_loads_no_optional_back_end():
    core, optional = core_files()
    modules = {module_of(path).removesuffix(".__init__") for path in optional}
    loaded = [
        f"{path.relative_to(SOURCE)}: {name}" for path in core for name in imports_of(path) if name in modules
    ]
    assert modules
    assert loaded == []


@pytest.mark.parametrize("name", [*CORE, *OPTIONAL_BACK_ENDS])
def test_the_table_of_the_core_names_every_part(name):
    text = (ROOT / "docs/design/architecture.md").read_text()
    table = text.partition("\n## The core\n")[2].partition("\n## ")[0]
    assert f"`{name.removesuffix('.py')}`" in table


def test_the_glossary_is_short_sorted_and_has_each_term_once():
    glossary = (ROOT / "docs/concepts.md").read_text().partition("\n## Glossary\n")[2]
    terms = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", glossary, re.MULTILINE)[2:]
    assert "Frontier" in terms
    assert len(terms) <= MAX_TERMS
    assert terms == sorted(set(terms), key=str.lower)


@pytest.mark.parametrize(
    ("check", "sources", "found"),
    [
        (classes_with_several_bases, {"m": "class A(B, C[int]): ..."}, {"m.A"}),
        (classes_with_several_bases, {"m": "class A(B[int], Protocol, Generic[T]): ..."}, set()),
        (context_variables, {"m": "x: ContextVar[int] = ContextVar('x')"}, {"m"}),
        (context_variables, {"m": "def f(): return contextvars.ContextVar[int]('x')"}, {"m"}),
        (
            sniffed_attributes,
            {"m": "def f(x): return getattr(x, 'shared', False)"},
            {"m: getattr(x, 'shared', False)"},
        ),
        (sniffed_attributes, {"m": "hasattr(x, name)"}, {"m: hasattr(x, name)"}),
        (sniffed_attributes, {"m": "getattr(x, name, None); getattr(x, 'shared')"}, set()),
        (
            repeated_class_names,
            {"m": "class A: ...\nclass _B: ...", "n": "class A: ...\nclass _B: ..."},
            {"A"},
        ),
        (large_constructors, {"m": "class A:\n def __init__(self, a, b, c, d, *, e, f, g, h): ..."}, {"m.A"}),
        (large_constructors, {"m": "class A:\n def __init__(self, a, b, c, d, *, e, f, g): ..."}, set()),
        (
            hidden_types,
            {"m": "class A:\n def list(self): ...\n def f(self, x: list[int]): ..."},
            {"m.A: list"},
        ),
        (hidden_types, {"m": "class A:\n bytes = 1\n x: bytes | None = None"}, {"m.A: bytes"}),
        (hidden_types, {"m": "class A:\n def list(self): ...\n x: int = 0\nclass B:\n x: list[int]"}, set()),
        (
            hidden_types,
            {"m": "from __future__ import annotations\nclass A:\n def list(self) -> list[int]: ..."},
            set(),
        ),
        (
            undocumented_methods,
            {"m": "class A:\n def f(self): ...\n def _g(self): ...\nclass _B:\n def f(self): ..."},
            {"m.A.f"},
        ),
        (
            undocumented_methods,
            {
                "m": "class P(Protocol):\n def f(self):\n  'Text.'\n def g(self): ...",
                "n": "class A:\n 'Implements :class:`~m.P`.'\n def f(self): ...\n def h(self): ...",
            },
            {"m.P.g", "n.A.h"},
        ),
        (
            import_cycles,
            {"skitter.a": "from skitter import b", "skitter.b": "def f():\n from skitter.a import g"},
            {"skitter.a <-> skitter.b"},
        ),
        (
            import_cycles,
            {
                "skitter.a": "from skitter import b",
                "skitter.b": "if TYPE_CHECKING:\n from skitter.a import g",
            },
            set(),
        ),
    ],
)
def test_each_rule_finds_its_violations(check, sources, found):
    assert check({module: ast.parse(source) for module, source in sources.items()}) == found
