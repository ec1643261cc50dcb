"""Loading: from ``FILE.py[:Class]``, ``package.module:Class`` or a recipe's file to a spider."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import get_ident
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

from skitter.errors import SkitterError, SpiderError
from skitter.spider import Spider
from skitter.worker.callbacks import describe

RECIPES = (".yaml", ".yml", ".toml")
"""Ends of the names of recipe files."""
_OF_A_FILE = "skitter_spider_"
"""How the names of modules begin that were loaded from a file."""
_loads = Counter[int]()
"""By thread, how many imports of user code are under way."""


@contextmanager
def _importing() -> Iterator[None]:
    _loads[get_ident()] += 1
    try:
        yield
    finally:
        _loads[get_ident()] -= 1


def is_importing() -> bool:
    """Tell whether this thread is importing user code: a crawl that began now would be one within another."""
    return _loads[get_ident()] > 0


def load_spider_class(name: str) -> type[Spider]:
    """Find a spider class by its name.

    Raises :class:`~skitter.errors.SpiderError` if there is no such file, module or class, if importing it
    fails, or if a file without a named class holds several spiders.
    """
    place, class_name = _split(name)
    if place.endswith(RECIPES):
        from skitter.frontends.recipe.spider import recipe_class  # noqa: PLC0415 - a spider in Python needs none of it

        return recipe_class(place)
    module = _module_of_file(Path(place)) if place.endswith(".py") else _module_by_name(place)
    spiders = _spiders_in(module)
    if class_name:
        return _named(spiders, getattr(module, class_name, None), class_name, place)
    if len(spiders) == 1:
        return next(iter(spiders.values()))
    if not spiders:
        raise SpiderError(f"{place} holds no spider", remedy="define a subclass of skitter.Spider")
    raise SpiderError(
        f"{place} holds several spiders", remedy=f"name one of them, such as {place}:{min(spiders)}"
    )


@runtime_checkable
class SpiderFace(Protocol):
    """An object that a module holds in place of a spider class, such as a collector."""

    def __spider__(self, name: str, job: str) -> type[Spider] | None:
        """Return the spider class it stands for, named ``name``; ``job`` is what its job is called if it has no name.

        ``None``: it is no spider by itself.
        """
        ...


def _spiders_in(module: ModuleType) -> dict[str, type[Spider]]:
    found: dict[str, type[Spider]] = {}
    job = module.__name__.removeprefix(_OF_A_FILE).rpartition(".")[2]
    for name, value in vars(module).items():
        if inspect.isclass(value):
            if issubclass(value, Spider) and value.__module__ == module.__name__:
                found[value.__name__] = value
        elif isinstance(value, SpiderFace) and (spider := value.__spider__(name, job)) is not None:
            found[name] = spider
    return found


def find_spider(name: str) -> tuple[str, type[Spider]]:
    """Return a spider class and the one name by which every process of this machine finds it again.

    Raises as :func:`load_spider_class`.
    """
    spider = load_spider_class(name)
    place, _ = _split(name)
    if place.endswith((".py", *RECIPES)):
        place = str(Path(place).resolve())
    return f"{place}:{spider.__name__}", spider


def _split(name: str) -> tuple[str, str]:
    place, colon, class_name = name.rpartition(":")
    return (place, class_name) if colon and class_name.isidentifier() else (name, "")


def _named(spiders: Mapping[str, type[Spider]], found: object, name: str, place: str) -> type[Spider]:
    if name in spiders:
        return spiders[name]
    if inspect.isclass(found) and issubclass(found, Spider):  # imported from elsewhere
        return found
    if found is not None:
        raise SpiderError(f"{name} in {place} is no spider", remedy="derive it from skitter.Spider")
    known = ", ".join(sorted(spiders)) or "none"
    raise SpiderError(f"{place} has no spider {name!r}", remedy=f"spiders there: {known}")


@cache
def _module_of_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise SpiderError(f"there is no file {path}", remedy="check the name of the spider's file")
    name = f"{_OF_A_FILE}{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _let_import_from(Path.cwd())
    _let_import_from(path.resolve().parent)
    try:
        with _importing():
            spec.loader.exec_module(module)
    except SpiderError:
        raise
    except SyntaxError as error:
        raise SpiderError(
            f"{path} line {error.lineno}: {error.msg}", remedy="correct the spider's file"
        ) from error
    except Exception as error:
        raise SpiderError(
            f"{path} cannot be imported: {describe(error)}", remedy="correct the spider's file"
        ) from error
    return module


def _module_by_name(name: str) -> ModuleType:
    _let_import_from(Path.cwd())
    try:
        with _importing():
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise SpiderError(
            f"there is no module {error.name!r}", remedy="name FILE.py[:Class] or package.module:Class"
        ) from error
    except SyntaxError as error:
        raise SpiderError(
            f"{error.filename} line {error.lineno}: {error.msg}", remedy="correct the spider's file"
        ) from error
    except Exception as error:
        raise SpiderError(
            f"module {name} cannot be imported: {describe(error)}", remedy="correct the module"
        ) from error


def _let_import_from(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def build_spider(spider_class: type[Spider], arguments: Mapping[str, Any]) -> Spider:
    """Make the spider with its arguments.

    Raises :class:`~skitter.errors.SpiderError`, or what the spider itself has to say in words of its own
    (:class:`~skitter.errors.SkitterError`).
    """
    try:
        return spider_class(**arguments)
    except SkitterError:
        raise
    except Exception as error:
        raise SpiderError(
            f"spider {spider_class.__name__} cannot be built: {describe(error)}",
            remedy="check its arguments (-a NAME=VALUE)",
        ) from error
