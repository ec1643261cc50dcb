"""Limits of tasks as limit rules of their job (one pool per task), or by domain; the strictest ones where tasks overlap."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import msgspec

from skitter.frontends.tasks.task import Task
from skitter.politeness import HostLimits

_NO_LIMITS = HostLimits()


def limit_rules(tasks: Iterable[Task]) -> list[dict[str, Any]]:
    """Return the limits of tasks in the format of the setting ``limit_rules``.

    A domain that several tasks share is a separate pool with the limits of all of them. A task without domains or
    limits has no rule.
    """
    pools: dict[tuple[int, ...], tuple[list[str], Sequence[HostLimits]]] = {}
    for domain, limits in _by_domain(tasks).items():
        pools.setdefault(tuple(map(id, limits)), ([], limits))[0].append(domain)
    # The first matching rule applies to a name, so longer domains come first.
    return [
        _rule(domains, reduce(HostLimits.strictest, limits))
        for domains, limits in sorted(pools.values(), key=lambda pool: -max(map(len, pool[0])))
    ]


def domain_limits(tasks: Iterable[Task]) -> dict[str, HostLimits]:
    """Return the combined limits of all tasks of each domain. They apply to each host separately."""
    return {
        domain: reduce(HostLimits.strictest, limits) for domain, limits in sorted(_by_domain(tasks).items())
    }


def _by_domain(tasks: Iterable[Task]) -> dict[str, list[HostLimits]]:
    """Return the limits of all tasks of each domain that has limits."""
    found: dict[str, list[HostLimits]] = defaultdict(list)
    for task in tasks:
        for domain in task.bounds:
            found[domain.lower()].append(task.limits)
    return {
        domain: limits
        for domain, limits in found.items()
        if any(task_limits != _NO_LIMITS for task_limits in limits)
    }


def _rule(domains: Sequence[str], limits: HostLimits) -> dict[str, Any]:
    names = "|".join(re.escape(domain) for domain in domains)
    limit_fields = {
        name: value for name, value in msgspec.structs.asdict(limits).items() if value not in (None, ())
    }
    return {"domain_regexp": rf"(?:.+\.)?(?:{names})(?::\d+)?", "unit": "rule", **limit_fields}
