"""Loads spiders from ``FILE.py[:Class]``, ``package.module:Class`` or the file of a recipe, and checks their attributes."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from threading import get_ident
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

from skitter.errors import SkitterError, SpiderError, close_names, with_article
from skitter.foreign_names import HOOKS, remedy_for_statement
from skitter.plugins import FILE_MODULE
from skitter.request import name_of_callback
from skitter.run.job import RECIPES, is_file, split_reference
from skitter.spider import Spider
from skitter.worker.callbacks import CallbackRunner, check_errback, describe, find_method
from skitter.worker.hooks import POINTS, Hooks

_SCRAPY_REMEDY = (
    "write `from skitter import Request, Spider`; the guide for Scrapy users lists what else differs"
)
_loads = Counter[int]()
"""Running imports of user code, by thread."""


@contextmanager
def _importing(what: str, remedy: Callable[[Exception], str]) -> Iterator[None]:
    """Import user code. Raises :class:`~skitter.errors.SpiderError` if that fails."""
    _loads[get_ident()] += 1
    try:
        yield
    except SpiderError:
        raise
    except SyntaxError as error:  # in the code itself, or in a module that it imports
        # Source code with a null byte has neither a file name nor a line.
        place = what if error.filename is None else f"{error.filename} line {error.lineno}"
        raise SpiderError(f"{place}: {error.msg}", remedy="correct this file") from error
    except SystemExit as error:
        raise SpiderError(
            f"{what} ends the process when it is imported: SystemExit({error.code!r})",
            remedy='move the code of a program below: if __name__ == "__main__":',
        ) from error
    except Exception as error:
        raise SpiderError(f"{what} cannot be imported: {describe(error)}", remedy=remedy(error)) from error
    finally:
        _loads[get_ident()] -= 1


def is_importing() -> bool:
    """Return whether this thread is importing user code. A crawl that starts during an import is an error."""
    return _loads[get_ident()] > 0


def load_spider_class(name: str) -> type[Spider]:
    """Return a spider class by its name.

    Raises :class:`~skitter.errors.SpiderError` if the file, module or class does not exist, if importing it fails, or
    if the name has no class and the file contains several spiders.
    """
    place, class_name = split_reference(name)
    if place.endswith(RECIPES):
        from skitter.frontends.recipe.spider import recipe_class  # noqa: PLC0415 - a spider in Python needs none of it

        return recipe_class(place)
    module = _module_of_file(Path(place)) if place.endswith(".py") else _module_by_name(place)
    spiders = _spiders_in(module)
    if class_name:
        return _named(spiders, getattr(module, class_name, None), class_name, place)
    if len(spiders) == 1:
        return next(iter(spiders.values()))
    if not spiders and _has_scrapy_spider(module):
        raise SpiderError(
            f"the spider in {place} is one of Scrapy",
            remedy="start it with Scrapy and skitter.scrapy.Addon (see the guide on Scrapy projects), or "
            + _SCRAPY_REMEDY,
        )
    if not spiders:
        raise SpiderError(f"{place} contains no spider", remedy="define a subclass of skitter.Spider")
    raise SpiderError(
        f"{place} contains several spiders", remedy=f"choose one of them, such as {place}:{min(spiders)}"
    )


@runtime_checkable
class SpiderProvider(Protocol):
    """An object that a module defines in place of a spider class, such as a collector."""

    def __spider__(self, name: str, job: str) -> type[Spider] | None:
        """Return its spider class, named ``name``; ``None`` if it is not a spider.

        ``job``: the name of the job, if the object has no name.
        """


def _spiders_in(module: ModuleType) -> dict[str, type[Spider]]:
    found: dict[str, type[Spider]] = {}
    job = module.__name__.removeprefix(FILE_MODULE).rpartition(".")[2]
    for name, value in vars(module).items():
        if inspect.isclass(value):
            if issubclass(value, Spider) and value.__module__ == module.__name__:
                found[value.__name__] = value
        elif isinstance(value, SpiderProvider) and (spider := value.__spider__(name, job)) is not None:
            found[name] = spider
    return found


def _has_scrapy_spider(module: ModuleType) -> bool:
    return any(
        inspect.isclass(value)
        and value.__module__ == module.__name__
        and any(base.__module__.startswith("scrapy.") for base in value.__mro__)
        for value in vars(module).values()
    )


def spiders_in_file(path: Path) -> dict[str, type[Spider]]:
    """Return the spiders of a file by name, without imported ones. A recipe file has one spider.

    Raises the same errors as :func:`load_spider_class`.
    """
    if path.suffix in RECIPES:
        spider = load_spider_class(str(path))
        return {spider.name or path.stem: spider}
    return _spiders_in(_module_of_file(path))


def spiders_in_module(name: str) -> tuple[dict[str, type[Spider]], list[str]]:
    """Return the spiders of a module by name, and the names of the modules in it if it is a package.

    Raises the same errors as :func:`load_spider_class`.
    """
    from pkgutil import iter_modules  # noqa: PLC0415 - a run loads one spider

    module = _module_by_name(name)
    inner = [f"{name}.{found.name}" for found in iter_modules(vars(module).get("__path__", ()))]
    return _spiders_in(module), inner


def find_spider(name: str) -> tuple[str, type[Spider]]:
    """Return a spider class and its full name, by which every process of this machine can load it.

    Raises the same errors as :func:`load_spider_class`.
    """
    spider = load_spider_class(name)
    place, _ = split_reference(name)
    if is_file(place):
        place = str(Path(place).resolve())
    return f"{place}:{spider.__name__}", spider


def _named(spiders: Mapping[str, type[Spider]], found: object, name: str, place: str) -> type[Spider]:
    if name in spiders:
        return spiders[name]
    if inspect.isclass(found) and issubclass(found, Spider):  # imported from elsewhere
        return found
    if found is not None:
        raise SpiderError(f"{name} in {place} is not a spider", remedy="derive it from skitter.Spider")
    names = ", ".join(sorted(spiders)) or "none"
    raise SpiderError(f"{place} has no spider {name!r}", remedy=f"spiders there: {names}")


def _module_of_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise SpiderError(f"file not found: {path}", remedy="check the path of the spider")
    found = path.stat()
    return _load_file(path, (found.st_mtime_ns, found.st_size))


@cache
def _load_file(path: Path, _version: tuple[int, int]) -> ModuleType:
    """Import a file once, and once more after each change: a node of a service and a notebook run for days."""
    name = f"{FILE_MODULE}{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _let_import_from(Path.cwd())
    _let_import_from(path.resolve().parent)
    with _importing(str(path), partial(_import_remedy, path)):
        spec.loader.exec_module(module)
    return module


def _remedy_without_scrapy(error: Exception) -> str | None:
    """Return the remedy for an import of Scrapy or Scrapy-Redis where it is not installed; ``None`` for another error."""
    packages = {"scrapy", "scrapy_redis"}
    if not isinstance(error, ModuleNotFoundError) or (error.name or "").partition(".")[0] not in packages:
        return None
    frames = traceback.extract_tb(error.__traceback__)
    return remedy_for_statement(frames[-1].line or "") or _SCRAPY_REMEDY


def _import_remedy(path: Path, error: Exception) -> str:
    if (remedy := _remedy_without_scrapy(error)) is not None:
        return remedy
    # A program without this guard would start its crawl again when a worker process imports it.
    if "running event loop" in str(error):
        return 'move the call below: if __name__ == "__main__":'
    if isinstance(error, ImportError):
        folder = path.resolve().parent
        names = [path.stem]
        while (folder / "__init__.py").is_file():
            names.insert(0, folder.name)
            folder = folder.parent
        wanted = folder.joinpath(*(error.name or "").split("."))
        is_there = bool(error.name) and (wanted.is_dir() or wanted.with_suffix(".py").is_file())
        if len(names) > 1 and ("relative import" in str(error) or is_there):
            return f"name the module instead of the file: {'.'.join(names)}, in the folder {folder}"
        if "relative import" in str(error):
            return f"name the module with its package instead of the file, such as {folder.name}.{path.stem}, in the folder {folder.parent}"
    return "correct the spider's file"


def _module_by_name(name: str) -> ModuleType:
    if "<locals>" in name:
        raise SpiderError(
            f"{name.replace(':', '.')} is a class within a function, which cannot be found by its name",
            remedy="define the class at the top level of its module, or pass it to Crawl(spec, spider_class=...)",
        )
    if not all(part.isidentifier() for part in name.split(".")):
        what = "is a folder" if Path(name).is_dir() else "is neither a Python file, a module nor a recipe"
        raise SpiderError(
            f"{name} {what}",
            remedy="use FILE.py[:Class] or package.module:Class; `skitter list` lists the spiders here",
        )
    _let_import_from(Path.cwd())
    remedy = "correct the module, or install what it imports"
    with _importing(f"module {name}", lambda error: _remedy_without_scrapy(error) or remedy):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not f"{name}.".startswith(f"{error.name}."):  # the module exists, but imports a missing one
                raise
            raise SpiderError(
                f"module not found: {error.name!r}",
                remedy="use FILE.py[:Class] or package.module:Class; `skitter list` lists the spiders here",
            ) from error


def _let_import_from(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _arguments_remedy(spider_class: type[Spider]) -> str:
    parameters = list(inspect.signature(spider_class).parameters.values())
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return "check its arguments (-a NAME=VALUE)"
    wanted = " ".join(f"-a {parameter.name}=..." for parameter in parameters)
    return f"its arguments are {wanted}" if wanted else "leave out -a: it takes no arguments"


def build_spider(spider_class: type[Spider], arguments: Mapping[str, Any]) -> Spider:
    """Create the spider with its arguments.

    Raises :class:`~skitter.errors.SpiderError`, and any :class:`~skitter.errors.SkitterError` of the spider.
    """
    try:
        return spider_class(**arguments)
    except SkitterError:
        raise
    except Exception as error:
        raise SpiderError(
            f"cannot create spider {spider_class.__name__}: {describe(error)}",
            remedy=_arguments_remedy(spider_class)
            if isinstance(error, TypeError)
            else "check its arguments (-a NAME=VALUE)",
        ) from error


_LISTS_OF_TEXTS = ("start_urls", "allowed_domains", "outputs", "streaming_callbacks", "unscoped_callbacks")
_LISTS = (*_LISTS_OF_TEXTS, "monitors", "hooks", "rules")


def check_spider(spider: Spider) -> None:
    """Raise :class:`~skitter.errors.SpiderError` for a spider whose declarations have wrong types or names."""
    if not isinstance(spider.name, str):
        raise _wrong(spider, "name", spider.name, "a string")
    if not isinstance(spider.custom_settings, Mapping):
        raise _wrong(
            spider, "custom_settings", spider.custom_settings, "a dict", 'write it like {"concurrency": 16}'
        )
    if find_method(spider, "start") is None:
        raise _wrong(spider, "start", vars(type(spider)).get("start"), "a method")
    for name in _LISTS:
        check_list(spider, name, getattr(spider, name), has_texts=name in _LISTS_OF_TEXTS)
    for rule in spider.rules:
        _check_rule(spider, rule)
    Hooks().register_all(spider)  # raises an error for a hook that takes other arguments
    for name in ("streaming_callbacks", "unscoped_callbacks"):
        for method in getattr(spider, name):
            if find_method(spider, method) is None:
                raise SpiderError(
                    f"{name} of spider {spider.name!r} names a method {method!r}, which does not exist",
                    remedy="define the method, or correct the name",
                    field=name,
                )


def check_list(spider: Spider, name: str, value: Any, *, has_texts: bool) -> None:
    """Raise :class:`~skitter.errors.SpiderError` if an attribute of a spider is not a list, or not a list of strings."""
    if isinstance(value, str):
        raise _wrong(spider, name, value, "a list", f"write {name} = [{value!r:.80}]")
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        remedy = "write rules = [Rule(...)]" if name == "rules" else f"write {name} = [...], or leave it out"
        raise _wrong(spider, name, value, "a list", remedy)
    if not has_texts or not isinstance(value, Collection):
        return  # the elements of a generator can be read only once
    for element in value:
        if not isinstance(element, str):
            raise SpiderError(
                f"{name} of spider {spider.name!r} contains {_kind(element)}: {element!r:.80}",
                remedy="yield requests in async def start(self)" if name == "start_urls" else "use strings",
                field=name,
            )


_NEAR = 0.85
"""Minimum similarity of a misspelled name to the right one."""


def misspelling(name: str, known: Iterable[str]) -> str:
    """Return the remedy for a name that resembles a known one; empty if it resembles none."""
    near = close_names(name, known, cutoff=_NEAR)
    return f"did you mean {near[0]}? If not, rename it" if near else ""


def check_hooks(hooks: Iterable[object]) -> None:
    """Raise :class:`~skitter.errors.SpiderError` for a collection without hooks, or with hooks that cannot be called."""
    for collection in hooks:
        problem, remedy = _problem_of_hooks(collection)
        if problem:
            raise SpiderError(f"hooks contains {problem}", remedy=remedy, field="hooks")
        Hooks().register_all(collection)


def _problem_of_hooks(collection: object) -> tuple[str, str]:
    if isinstance(collection, str):
        name = collection.rpartition(":")[2].rpartition(".")[2]
        return f"a string: {collection!r:.80}", f"import the class, and write hooks = [{name}()]"
    kind = collection if inspect.isclass(collection) else type(collection)
    shown = f"the class {kind.__name__}" if kind is collection else with_article(kind.__name__)
    points = [point for point in POINTS if find_method(collection, point) is not None]
    if kind is collection:
        needs_self = [point for point in points if inspect.isfunction(inspect.getattr_static(kind, point))]
        if needs_self:
            return (
                f"{shown} instead of an object; {needs_self[0]} needs one",
                f"write hooks = [{kind.__name__}()]",
            )
    names = [name for name in dir(collection) if not name.startswith("_")]
    for name in names:
        remedy = "" if name in POINTS else misspelling(name, POINTS)
        if remedy and find_method(collection, name) is not None:
            return f"{shown} with the method {name}; no hook has this name", remedy
    if points:
        return "", ""
    for name in names:
        if name in HOOKS:
            return f"{shown} without a hook; skitter does not call {name}", f"write {HOOKS[name]} instead"
    return f"{shown} without a hook: {collection!r:.80}", f"define one of {', '.join(POINTS)}"


def _check_rule(spider: Spider, rule: object) -> None:
    from skitter.link_extractor import Rule  # noqa: PLC0415 - few spiders have rules

    if not isinstance(rule, Rule):
        raise SpiderError(
            f"rules of spider {spider.name!r} contains {_kind(rule)}: {rule!r:.80}",
            remedy="write rules = [Rule(LinkExtractor(...), callback=...)]",
            field="rules",
        )
    for method in (rule.callback, rule.errback, rule.process_links, rule.process_request):
        if isinstance(method, str) and find_method(spider, method) is None:
            raise SpiderError(
                f"a rule of spider {spider.name!r} names a method {method!r}, which does not exist",
                remedy="define the method, or correct the rule",
                field="rules",
            )
    for function in (rule.callback, rule.errback):
        if function is not None and not isinstance(function, str):
            CallbackRunner().find(spider, name_of_callback(function))
    if (errback := rule.errback) is not None:
        name = errback if isinstance(errback, str) else name_of_callback(errback)
        check_errback(CallbackRunner().find(spider, name))


def _wrong(spider: Spider, name: str, value: object, wanted: str, remedy: str = "") -> SpiderError:
    return SpiderError(
        f"{name} of spider {spider.name!r} is {_kind(value)}, not {wanted}: {value!r:.80}",
        remedy=remedy or f"make it {wanted}, or leave it out",
        field=name,
    )


def _kind(value: object) -> str:
    kinds: Sequence[tuple[type, str]] = ((str, "a string"), (Mapping, "a dict"), (type(None), "None"))
    return next(
        (name for kind, name in kinds if isinstance(value, kind)), f"an object of type {type(value).__name__}"
    )
