"""Limits of tasks: as limit rules of their job, one pool a task, or by domain; the strictest where tasks share one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

from skitter.frontends.tasks.task import Limits, Task
from skitter.politeness import QueueLimits, Rate


def limit_rules(tasks: Iterable[Task]) -> list[dict[str, Any]]:
    """Return the rules, as the setting ``limit_rules`` has them.

    A domain of several tasks is a pool of its own under the limits of all of them. A task without domains, or
    without limits of its own, has none.
    """
    pools: dict[tuple[int, ...], tuple[list[str], Sequence[Limits]]] = {}
    for domain, limits in _by_domain(tasks).items():
        pools.setdefault(tuple(map(id, limits)), ([], limits))[0].append(domain)
    # A name is matched by the first rule that fits, so the longer ones come first.
    return [
        _rule(domains, _together(limits))
        for domains, limits in sorted(pools.values(), key=lambda pool: -max(map(len, pool[0])))
    ]


def domain_limits(tasks: Iterable[Task]) -> dict[str, QueueLimits]:
    """Return the limits by domain: those of all of its tasks. Each host keeps them by itself."""
    return {domain: _together(limits) for domain, limits in sorted(_by_domain(tasks).items())}


def _by_domain(tasks: Iterable[Task]) -> dict[str, list[Limits]]:
    """Return the limits of the tasks of each domain that any of them limits."""
    found: dict[str, list[Limits]] = defaultdict(list)
    for task in tasks:
        for domain in task.domains:
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
