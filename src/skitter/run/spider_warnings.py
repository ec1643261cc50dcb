"""Warnings about a spider: names and arguments that nothing uses, and results that it loses."""

from __future__ import annotations

import ast
import dis
import inspect
import linecache
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property, partialmethod
from itertools import pairwise
from types import CodeType, FunctionType
from typing import Any

from skitter.errors import close_names
from skitter.foreign_names import META_VALUES, unused_attributes
from skitter.run.loader import misspelling
from skitter.spider import Spider
from skitter.worker.hooks import POINTS

_MIN_LENGTH = 8
"""Minimum length of an attribute's name. Shorter names resemble too many others."""


def warnings_about(spider: Spider, arguments: Collection[str]) -> list[str]:
    """Describe probable mistakes in a spider that was created with some arguments, each with its remedy. Reads its file."""
    kind = type(spider)
    return [
        *(
            f"skitter does not use {name}; {remedy}"
            for name, remedy in (*_ignored_attributes(kind), *misspelled_attributes(kind))
        ),
        *(
            f"nothing uses the argument {name}; {remedy}"
            for name, remedy in unused_arguments(spider, arguments)
        ),
        *(
            f"skitter does not set meta[{name!r}], so meta.get({name!r}) finds nothing; {remedy}"
            for name, remedy in absent_meta_values(spider)
        ),
        *lost_results(kind),
    ]


def _own_classes(spider_class: type[Spider]) -> list[type]:
    """Return a spider class and its bases, without those of skitter."""
    return [
        owner
        for owner in spider_class.__mro__
        if owner.__module__.partition(".")[0] not in {"skitter", "builtins"}
    ]


def _ignored_attributes(spider_class: type[Spider]) -> list[tuple[str, str]]:
    """Return the attributes that only Scrapy would use, without values that the methods of the class use themselves."""
    found = unused_attributes(spider_class)
    if not found:
        return []
    owners = _own_classes(spider_class)
    values = {name for owner in owners for name, value in vars(owner).items() if not inspect.isroutine(value)}
    used = values & _words_in_classes(owners)
    # self.settings has the settings of the job, and not the value of the class.
    return [(name, remedy) for name, remedy in found if name == "settings" or name not in used]


def misspelled_attributes(spider_class: type[Spider]) -> list[tuple[str, str]]:
    """Return the attributes of a class that resemble an attribute that skitter uses, each with a remedy.

    An attribute that the methods of the class use themselves is not a mistake.
    """
    owners = _own_classes(spider_class)
    names = {name for owner in owners for name in vars(owner)}
    known = [
        name for name in (*Spider.__annotations__, *POINTS) if len(name) >= _MIN_LENGTH and name not in names
    ]
    suspects = {}
    for name in names - set(dir(Spider)) - set(POINTS):
        # Most names resemble none, and the module for the comparison takes some milliseconds to load.
        candidates = [right for right in known if name[:2] == right[:2] and abs(len(name) - len(right)) <= 2]
        if candidates and (remedy := misspelling(name, candidates)):
            suspects[name] = remedy
    if not suspects:
        return []
    used = _words_in_classes(owners)
    return sorted((name, remedy) for name, remedy in suspects.items() if name not in used)


def _words_in_classes(owners: Iterable[type]) -> set[str]:
    return {word for owner in owners for member in vars(owner).values() for word in _words_in_code(member)}


def _words_in_code(member: Any) -> Iterator[str]:
    """Return the names and the strings in the code of a method."""
    for code in _codes_of(member):
        yield from code.co_names
        for constant in code.co_consts:
            words = constant if isinstance(constant, (tuple, frozenset)) else (constant,)
            yield from (word for word in words if isinstance(word, str))


def _function_of(member: Any) -> FunctionType | None:
    """Return the function of a method as its author wrote it; ``None`` for any other object.

    Other objects are not examined: some return a value for any attribute.
    """
    if isinstance(member, (staticmethod, classmethod)):
        member = member.__func__
    elif isinstance(member, property):
        member = member.fget
    elif isinstance(member, (cached_property, partialmethod)):
        member = member.func
    function = inspect.unwrap(member) if inspect.isfunction(member) else None
    return function if inspect.isfunction(function) else None


def _codes_of(member: Any) -> Iterator[CodeType]:
    """Return the code of a method, and that of the functions in it."""
    function = _function_of(member)
    codes = [] if function is None else [function.__code__]
    while codes:
        code = codes.pop()
        yield code
        codes += filter(inspect.iscode, code.co_consts)


def absent_meta_values(spider: Spider) -> list[tuple[str, str]]:
    """Return the values of Scrapy that the methods of a spider read by ``meta.get``, each with what to read instead.

    ``meta["depth"]`` raises an error, but ``meta.get("depth")`` is always ``None``, unless the program itself sets it.
    """
    owners = [] if spider.own_meta else _own_classes(type(spider))
    read = {key for owner in owners for member in vars(owner).values() for key in _read_by_get(member)}
    if not read:
        return []
    own = {
        key
        for member in _members_near(spider, neighbours=False)
        for code in _codes_of(member)
        for key in _set_in_meta(code)
    }
    return sorted((name, META_VALUES[name]) for name in read - own)


def _read_by_get(member: Any) -> Iterator[str]:
    """Return the keys in :data:`META_VALUES` that a method reads by ``response.meta.get`` or ``meta.get``."""
    codes = [*_codes_of(member)]
    if not any("meta" in code.co_names for code in codes):  # a variable meta is not that of a response
        return
    for code in codes:
        if not META_VALUES.keys() & _constants_of(code):
            continue
        words = [step.argval for step in dis.get_instructions(code)]
        for owner, method, key in zip(words, words[1:], words[2:], strict=False):
            if (owner, method) == ("meta", "get") and isinstance(key, str):
                yield from META_VALUES.keys() & {key}


def _set_in_meta(code: CodeType) -> Iterator[str]:
    """Return the keys in :data:`META_VALUES` that some code may set in a request."""
    keys = META_VALUES.keys() & _constants_of(code)
    if not keys:
        return
    # The names of keyword arguments are a constant.
    passes_meta = any("meta" in group for group in code.co_consts if isinstance(group, tuple))
    if passes_meta or {"update", "setdefault"} & set(code.co_names):
        yield from keys
    steps = [*dis.get_instructions(code)]
    for key, store in pairwise(steps):
        if store.opname == "STORE_SUBSCR":
            yield from keys & {key.argval}


def _constants_of(code: CodeType) -> set[Any]:
    """Return the constants of some code, and those in its tuples, such as the keys of a dict."""
    groups = [constant for constant in code.co_consts if isinstance(constant, tuple)]
    return {*code.co_consts, *(word for group in groups for word in group)}


def unused_arguments(spider: Spider, arguments: Collection[str]) -> list[tuple[str, str]]:
    """Return the arguments that no code of the spider, of its module or of its hooks mentions, each with a remedy.

    :class:`~skitter.spider.Spider` turns any argument into an attribute, so a misspelled one would have no effect.
    """
    kind = type(spider)
    owners = _own_classes(kind)
    # The spiders of skitter itself, such as that of a recipe, check their arguments.
    if not arguments or len(owners) < kind.__mro__.index(Spider):
        return []
    declared = {*dir(Spider), *Spider.__annotations__}
    for owner in owners:
        declared |= {*vars(owner), *_annotated_names(owner), *_init_parameters(owner).args}
    unknown = [name for name in arguments if name not in declared]
    if not unknown or _words_in_classes(owners) & _INDIRECT or any(map(_uses_all_arguments, owners)):
        return []
    used = {word for member in _members_near(spider, neighbours=True) for word in _words_in_code(member)}
    wrong = [name for name in unknown if name not in used]
    near = {name: close_names(name, declared) for name in wrong}
    return [(name, f"did you mean {near[name][0]}?" if near[name] else "check its name") for name in wrong]


_INDIRECT = {"__dict__", "format", "format_map", "getattr", "setattr", "vars"}
"""Names by which a spider may read attributes that its code does not name."""


def _annotated_names(owner: type) -> Iterable[str]:
    if sys.version_info >= (3, 14):  # which evaluates annotations
        from annotationlib import Format, get_annotations  # noqa: PLC0415 - new in Python 3.14

        return get_annotations(owner, format=Format.FORWARDREF)
    return inspect.get_annotations(owner)


def _init_parameters(owner: type) -> inspect.Arguments:
    """Return the names of the parameters of ``__init__`` of a class, without evaluating annotations."""
    function = _function_of(vars(owner).get("__init__"))
    return inspect.Arguments([], None, None) if function is None else inspect.getargs(function.__code__)


def _uses_all_arguments(owner: type) -> bool:
    """Whether ``__init__`` of a class uses its ``**arguments`` in addition to passing them on once."""
    arguments = _init_parameters(owner).varkw
    if arguments is None:
        return False
    loads = 0
    for code in _codes_of(vars(owner)["__init__"]):
        for step in dis.get_instructions(code):
            if step.opname.startswith("LOAD_"):
                # From Python 3.13 on, one instruction may load two variables.
                names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
                loads += names.count(arguments)
    return loads > 1


def _members_near(spider: Spider, *, neighbours: bool) -> Iterator[Any]:
    """Return what the classes of a spider and its hooks define, and the functions of their modules.

    ``neighbours``: return what the other classes of these modules define as well.
    """
    classes = {*_own_classes(type(spider)), *(base for hook in spider.hooks for base in type(hook).__mro__)}
    for name in {owner.__module__ for owner in classes} & sys.modules.keys() - {"builtins"}:
        values = [*vars(sys.modules[name]).values()]
        yield from filter(inspect.isroutine, values)
        if neighbours:
            classes.update(value for value in values if inspect.isclass(value) and value.__module__ == name)
    for owner in classes:
        yield from vars(owner).values()


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (*_FUNCTIONS, ast.Lambda, ast.ClassDef)
_LINKS = ("follow", "follow_all")


def lost_results(spider_class: type[Spider]) -> list[str]:
    """Describe the results that methods of a class create and do not yield, each with its line: they cause no error."""
    found: list[str] = []
    for owner in _own_classes(spider_class):
        functions = filter(None, map(_function_of, vars(owner).values()))
        codes = {
            (function.__code__.co_firstlineno, function.__code__.co_name): function.__code__
            for function in functions
        }
        for path in {code.co_filename for code in codes.values()}:
            found += _lost_in_file(spider_class, path, codes)
    return list(dict.fromkeys(found))


def _lost_in_file(
    spider_class: type[Spider], path: str, codes: Mapping[tuple[int, str], CodeType]
) -> Iterator[str]:
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError, RecursionError):  # the file has changed since it was imported
        return
    nodes = list(ast.walk(tree))
    statements = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    read = {
        _own_method(node.value)
        for node in nodes
        if isinstance(node, ast.YieldFrom) and id(node) not in statements
    }
    for function in nodes:
        if not isinstance(function, _FUNCTIONS):
            continue
        first = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
        code = codes.get((first, function.name))
        if code is None or code.co_filename != path:
            continue
        returns = bool(code.co_flags & inspect.CO_GENERATOR) and function.name not in read
        for node in _nodes_in(function):
            if isinstance(node, ast.Expr):
                problem = _problem_of_call(node.value, spider_class, function)
            elif returns and isinstance(node, ast.Return):
                problem = _problem_of_return(node)
            else:
                continue
            if problem:
                yield f"{path.rpartition('/')[2]} line {node.lineno}: {problem}"


def _nodes_in(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """Return the nodes of a function, without those of the functions in it."""
    nodes: list[ast.AST] = [*function.body]
    while nodes:
        node = nodes.pop()
        yield node
        if not isinstance(node, _SCOPES):
            nodes += ast.iter_child_nodes(node)


def _own_method(call: ast.AST | None) -> str:
    """Return the name of the method in a call of ``self.method(...)``; empty for another expression."""
    match call:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)):
            return name
    return ""


def _problem_of_call(
    call: ast.AST, spider_class: type[Spider], function: ast.FunctionDef | ast.AsyncFunctionDef
) -> str:
    """Describe a call in a function whose result is dropped; empty if that may be on purpose."""
    if (name := _own_method(call)) and (method := getattr(spider_class, name, None)) is not None:
        if inspect.isasyncgenfunction(method):
            remedy = f"async for result in self.{name}(...): yield result"
        elif not inspect.isgeneratorfunction(method):
            return ""
        elif isinstance(function, ast.AsyncFunctionDef):  # where `yield from` is not allowed
            remedy = f"for result in self.{name}(...): yield result"
        else:
            remedy = f"yield from self.{name}(...)"
        return f"self.{name}(...) alone does nothing, because it is a generator; write {remedy}"
    arguments = {argument.arg for argument in function.args.args[1:]}
    match call:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=attribute)):
            made = f"{owner}.{attribute}"
            if (owner in arguments and attribute in _LINKS) or made in {"Request.form", "Request.json"}:
                return f"{made}(...) alone sends no request; write yield {made}(...)"
        case ast.Call(func=ast.Name(id="Request")):
            return "Request(...) alone sends no request; write yield Request(...)"
    return ""


def _problem_of_return(node: ast.Return) -> str:
    """Describe a return in a generator; empty if its value may be for another function."""
    match node.value:
        case ast.List(elts=[]) | ast.Dict(keys=[]):
            return ""
        case ast.List() | ast.ListComp() | ast.GeneratorExp():
            return "a generator loses what it returns; write yield from in place of return"
        case ast.Dict() | ast.Call(func=ast.Name(id="Request") | ast.Attribute(attr="follow" | "follow_all")):
            return "a generator loses what it returns; write yield in place of return"
    return ""
