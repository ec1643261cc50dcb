"""Checks the declarations of a spider before a run, so that a mistake is one line instead of a traceback or an empty crawl."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from skitter.errors import SpiderError
from skitter.link_extractor import Rule
from skitter.spider import Spider
from skitter.worker.callbacks import find_method

_LISTS_OF_TEXTS = ("start_urls", "allowed_domains", "outputs", "streaming_callbacks")
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
    for method in spider.streaming_callbacks:
        if find_method(spider, method) is None:
            raise SpiderError(
                f"streaming_callbacks of spider {spider.name!r} names a method {method!r}, which does not exist",
                remedy="define the method, or correct the name",
                field="streaming_callbacks",
            )


def check_list(spider: Spider, name: str, value: Any, *, has_texts: bool) -> None:
    """Raise :class:`~skitter.errors.SpiderError` if an attribute of a spider is not a list, or not one of strings."""
    if isinstance(value, (str, Rule)):
        shown = repr(value) if isinstance(value, str) else "Rule(...)"
        raise _wrong(spider, name, value, "a list", f"write {name} = [{shown:.80}]")
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        raise _wrong(spider, name, value, "a list", f"write {name} = [...], or leave it out")
    if not has_texts or not isinstance(value, Collection):
        return  # the elements of a generator can be read only once
    for element in value:
        if not isinstance(element, str):
            raise SpiderError(
                f"{name} of spider {spider.name!r} contains {_kind(element)}: {element!r:.80}",
                remedy="yield requests in async def start(self)" if name == "start_urls" else "use strings",
                field=name,
            )


def _check_rule(spider: Spider, rule: object) -> None:
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
