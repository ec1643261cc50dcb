"""Limits of tasks as limit rules of their job (one pool per task), or by domain; the strictest ones where tasks overlap."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

from skitter.frontends.tasks.task import Limits, Task
from skitter.politeness import QueueLimits, Rate


def limit_rules(tasks: Iterable[Task]) -> list[dict[str, Any]]:
    """Return the limits of tasks in the format of the setting ``limit_rules``.

    A domain that several tasks share is a separate pool with the limits of all of them. A task without domains or
    limits has no rule.
    """
    pools: dict[tuple[int, ...], tuple[list[str], Sequence[Limits]]] = {}
    for domain, limits in _by_domain(tasks).items():
        pools.setdefault(tuple(map(id, limits)), ([], limits))[0].append(domain)
    # The first matching rule applies to a name, so longer domains come first.
    return [
        _rule(domains, _together(limits))
        for domains, limits in sorted(pools.values(), key=lambda pool: -max(map(len, pool[0])))
    ]


def domain_limits(tasks: Iterable[Task]) -> dict[str, QueueLimits]:
    """Return the combined limits of all tasks of each domain. They apply to each host separately."""
    return {domain: _together(limits) for domain, limits in sorted(_by_domain(tasks).items())}


def _by_domain(tasks: Iterable[Task]) -> dict[str, list[Limits]]:
    """Return the limits of all tasks of each domain that has limits."""
    found: dict[str, list[Limits]] = defaultdict(list)
    for task in tasks:
        for domain in task.bounds:
            found[domain.lower()].append(task.limits)
    return {domain: limits for domain, limits in found.items() if any(limits)}


def _together(limits: Iterable[Limits]) -> QueueLimits:
    read = (
        QueueLimits(one.delay, one.wait, one.concurrency_per_slot, tuple(map(Rate.parse, one.rates)))
        for one in limits
    )
    return reduce(QueueLimits.strictest, read, QueueLimits())


def _rule(domains: Sequence[str], limits: QueueLimits) -> dict[str, Any]:
    names = "|".join(re.escape(domain) for domain in domains)
    rule: dict[str, Any] = {"domain_regexp": rf"(?:.+\.)?(?:{names})(?::\d+)?", "unit": "rule"}
    said = {
        "delay": limits.delay,
        "jitter": limits.jitter,
        "concurrency_per_slot": limits.concurrency_per_slot,
    }
    rule |= {name: value for name, value in said.items() if value is not None}
    if limits.rates:
        rule["rates"] = [f"{rate.count}/{rate.per:.15g}s" for rate in limits.rates]
    return rule
