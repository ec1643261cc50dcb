"""Limits of tasks as limit rules of the job: one pool a task, the strictest of all where tasks share a host."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from skitter.tasks.task import Limits, Task


def limit_rules(tasks: Iterable[Task]) -> list[dict[str, Any]]:
    """Return the rules, as the setting ``limit_rules`` has them.

    A domain of several tasks is a pool of its own under the limits of all of them. A task without domains, or
    without limits of its own, has none.
    """
    by_domain: dict[str, list[Limits]] = defaultdict(list)
    for task in tasks:
        for domain in task.domains:
            by_domain[domain.lower()].append(task.limits)
    pools: dict[tuple[int, ...], tuple[list[str], Sequence[Limits]]] = {}
    for domain, limits in by_domain.items():
        if any(limits):
            pools.setdefault(tuple(map(id, limits)), ([], limits))[0].append(domain)
    # A name is matched by the first rule that fits, so the longer ones come first.
    return [
        _rule(domains, limits)
        for domains, limits in sorted(pools.values(), key=lambda pool: -max(map(len, pool[0])))
    ]


def _rule(domains: Sequence[str], limits: Sequence[Limits]) -> dict[str, Any]:
    names = "|".join(re.escape(domain) for domain in domains)
    rule: dict[str, Any] = {"domain_regexp": rf"(?:.+\.)?(?:{names})(?::\d+)?", "unit": "rule"}
    delays = [one.delay for one in limits if one.delay is not None]
    waits = [one.wait for one in limits if one.wait is not None]
    parallel = [one.parallelism for one in limits if one.parallelism is not None]
    rates = dict.fromkeys(rate for one in limits for rate in one.rates)
    if delays:
        rule["delay"] = max(delays)
    if waits:
        rule["random_delay"] = max(waits)
    if parallel:
        rule["parallelism"] = min(parallel)
    if rates:
        rule["rates"] = list(rates)
    return rule
