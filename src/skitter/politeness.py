"""Politeness: how gently each host is fetched.

A *slot* is the unit of politeness: everything in it shares one delay, one concurrency_per_slot and one set of
rates, over all workers of the job. Normally a slot is a host; a :class:`LimitRule` may make it a
registered domain or one pool for all hosts that the rule matches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import translate
from functools import lru_cache
from typing import Any, Literal

import msgspec

from skitter.errors import SettingsError
from skitter.queues import queue_of, without_queue
from skitter.web.urls import registered_domain

SlotUnit = Literal["host", "domain", "rule"]

DEFAULT_CONCURRENCY_PER_SLOT = 4
"""Fetches in flight per slot where nothing else is said."""


class Rate(msgspec.Struct, frozen=True):
    """At most ``count`` fetches begin in any window of ``per`` seconds.

    Several rates of one slot must all agree (layered limits). Written ``"20/60s"``, ``"1/2s"``,
    ``"500/h"`` in settings.
    """

    count: int
    per: float

    def __post_init__(self) -> None:
        if self.count < 1 or self.per <= 0:
            raise SettingsError(
                f"rate {self.count}/{self.per}s is not positive", remedy="write a rate like 20/60s"
            )

    @classmethod
    def parse(cls, text: str) -> Rate:
        """Read ``COUNT/[NUMBER]UNIT`` with unit ``s``, ``m`` or ``h``.

        Raises :class:`~skitter.errors.SettingsError` for anything else.
        """
        match = _RATE.fullmatch(text.strip())
        if match is None:
            raise SettingsError(f"rate {text!r} is not understood", remedy="write a rate like 20/60s")
        count, number, unit = match.groups()
        return cls(int(count), float(number or 1) * _SECONDS[unit])


_RATE = re.compile(r"(\d+)\s*/\s*(\d+(?:\.\d+)?)?\s*([smh])")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


class SlotPolicy(msgspec.Struct, frozen=True):
    """The limits of one slot."""

    delay: float | None = None
    """Seconds between two requests. ``None``: adapt to the server's latency."""
    jitter: float = 0.0
    """Up to so many seconds more, uniformly random, at each fetch."""
    concurrency_per_slot: int = DEFAULT_CONCURRENCY_PER_SLOT
    """Fetches in flight at once."""
    rates: tuple[Rate, ...] = ()
    """Layered limits beside the delay; all must agree."""

    def __post_init__(self) -> None:
        if (self.delay is not None and self.delay < 0) or self.jitter < 0:
            raise SettingsError("delay and jitter cannot be negative", remedy="use 0 for no delay")
        if self.concurrency_per_slot < 1:
            raise SettingsError(
                f"concurrency_per_slot is {self.concurrency_per_slot}",
                remedy="let at least one fetch be in flight",
            )


class LimitRule(msgspec.Struct, frozen=True):
    """Limits for the hosts that a pattern matches; of several rules the first match wins.

    ``domain_glob`` (``*.example.com``) or ``domain_regexp`` has to match the whole host name, alone or with
    its port. What the rule leaves out comes from the job's policy.
    """

    domain_glob: str | None = None
    domain_regexp: str | None = None
    delay: float | None = None
    jitter: float | None = None
    """Jitter in seconds."""
    concurrency_per_slot: int | None = None
    rates: tuple[Rate, ...] = ()
    unit: SlotUnit = "host"
    """``host``: each host by itself; ``domain``: each registered domain (Public Suffix List);
    ``rule``: one pool for all that the rule matches."""

    def __post_init__(self) -> None:
        if (self.domain_glob is None) == (self.domain_regexp is None):
            raise SettingsError(
                "a limit rule needs either domain_glob or domain_regexp",
                remedy='for example {"domain_glob": "*.example.com", "delay": 2}',
            )
        self.pattern()
        self.policy(SlotPolicy())

    def pattern(self) -> re.Pattern[str]:
        """Return the compiled pattern. Raises :class:`~skitter.errors.SettingsError`."""
        source = translate(self.domain_glob) if self.domain_glob is not None else self.domain_regexp
        try:
            return re.compile(source or "", re.IGNORECASE)
        except re.error as error:
            raise SettingsError(
                f"limit rule pattern {self.domain_regexp!r} is no regular expression: {error}",
                remedy="correct domain_regexp, or use domain_glob",
            ) from error

    def policy(self, default: SlotPolicy) -> SlotPolicy:
        """Return the limits of a slot under this rule."""
        return SlotPolicy(
            delay=default.delay if self.delay is None else self.delay,
            jitter=default.jitter if self.jitter is None else self.jitter,
            concurrency_per_slot=default.concurrency_per_slot
            if self.concurrency_per_slot is None
            else self.concurrency_per_slot,
            rates=self.rates or default.rates,
        )


class QueueLimits(msgspec.Struct, frozen=True):
    """Limits of the slots of one named queue, or of one domain. What is ``None`` or empty comes from the job's policy."""

    delay: float | None = None
    jitter: float | None = None
    concurrency_per_slot: int | None = None
    rates: tuple[Rate, ...] = ()

    def __post_init__(self) -> None:
        self.policy(SlotPolicy())

    def strictest(self, other: QueueLimits) -> QueueLimits:
        """Return limits under which both hold."""

        def both(choose: Callable[[list[Any]], Any], name: str) -> Any:
            return choose(
                [value for one in (self, other) if (value := getattr(one, name)) is not None] or [None]
            )

        rates = tuple(dict.fromkeys((*self.rates, *other.rates)))
        return QueueLimits(both(max, "delay"), both(max, "jitter"), both(min, "concurrency_per_slot"), rates)

    def policy(self, default: SlotPolicy) -> SlotPolicy:
        """Return the limits of a slot of the queue under no rule."""
        return SlotPolicy(
            delay=default.delay if self.delay is None else self.delay,
            jitter=default.jitter if self.jitter is None else self.jitter,
            concurrency_per_slot=default.concurrency_per_slot
            if self.concurrency_per_slot is None
            else self.concurrency_per_slot,
            rates=self.rates or default.rates,
        )


_NO_LIMITS_OF_ITS_OWN = QueueLimits()


class Politeness:
    """Which slot a host belongs to, and the limits of each slot.

    ``queues``: limits of queues that have some of their own. A rule that matches a host is stronger. ``domains``: limits
    of hosts by domain, with its subdomains; the longest that fits counts. They leave the slots as they are, and a rule
    is stronger, but no queue.
    """

    def __init__(
        self,
        default: SlotPolicy | None = None,
        rules: Sequence[LimitRule] = (),
        unit: SlotUnit = "host",
        queues: Mapping[str, QueueLimits] | None = None,
        domains: Mapping[str, QueueLimits] | None = None,
    ) -> None:
        self.default = default if default is not None else SlotPolicy()
        self.rules = tuple(rules)
        self.queues = dict(queues or {})
        self._patterns = [rule.pattern() for rule in self.rules]
        self._unit = unit
        self.domains: dict[str, QueueLimits] = {}
        for domain, limits in (domains or {}).items():
            name = _without_port(domain.lower())
            key = registered_domain(name) if unit == "domain" else name
            self.domains[key] = limits.strictest(self.domains.get(key, _NO_LIMITS_OF_ITS_OWN))
        self.slot_of = lru_cache(maxsize=65_536)(self._slot_of)
        """Slot key of a host (``name`` or ``name:port``); remembered for the hosts met last."""

    def _slot_of(self, host: str) -> str:
        name = _without_port(host)
        index = self._rule_of(host, name)
        unit = self._unit if index is None else self.rules[index].unit
        key = registered_domain(name) if unit == "domain" else name
        if unit == "rule":
            return f"{_RULE}{index}"
        # The key has to tell which rule holds, also where the rule does not match the key itself.
        return key if self._rule_of(key, key) == index else f"{_RULE}{index}:{key}"

    def _rule_of(self, host: str, name: str) -> int | None:
        for index, pattern in enumerate(self._patterns):
            if pattern.fullmatch(name) or pattern.fullmatch(host):
                return index
        return None

    def changed(self, default: SlotPolicy, domains: Mapping[str, QueueLimits]) -> Politeness:
        """Return the same rules with other limits where none of them says otherwise."""
        return Politeness(default, self.rules, self._unit, self.queues, domains)

    @property
    def unit(self) -> SlotUnit:
        """What a slot is where no rule says otherwise."""
        return self._unit

    def policy_of(self, slot: str) -> SlotPolicy:
        """Return the limits of a slot by its key."""
        index = self.rule_of_slot(slot)
        default = self.default_of(queue_of(slot)) if self.queues else self.default
        if index is not None:
            return self.rules[index].policy(default)
        own = self._limits_of_domain(without_queue(slot)) if self.domains else None
        return default if own is None else own.policy(default)

    def _limits_of_domain(self, host: str) -> QueueLimits | None:
        while host and host not in self.domains:
            host = host.partition(".")[2]
        return self.domains.get(host)

    def default_of(self, queue: str) -> SlotPolicy:
        """Return the limits of the slots of a queue that are under no rule."""
        return self.queues.get(queue, _NO_LIMITS_OF_ITS_OWN).policy(self.default)

    def rule_of_slot(self, slot: str) -> int | None:
        """Return the number of the rule that a slot is under; ``None``: the job's own limits hold."""
        slot = without_queue(slot)
        if slot.startswith(_RULE):
            index = _index(slot.removeprefix(_RULE).partition(":")[0])
        else:
            index = self._rule_of(slot, slot)
        return None if index is None or index >= len(self.rules) else index  # it was resumed with fewer rules


_RULE = "rule:"


def _index(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() and not name.endswith(":") else host
