"""Politeness: the limits on how fast and how often each host is fetched.

A *slot* is the unit of politeness. All its requests share one delay, one concurrency_per_slot and one set of rates, over
all workers of the job. Normally a slot is a host. A :class:`LimitRule` may make it a registered domain, or one pool for
all hosts that the rule matches.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import translate
from functools import lru_cache
from typing import Any, Literal

import msgspec

from skitter.errors import SettingsError
from skitter.queues import queue_of, without_queue
from skitter.web.urls import ascii_domain, registered_domain, without_port

SlotUnit = Literal["host", "domain", "rule"]

DEFAULT_CONCURRENCY_PER_SLOT = 4
"""Default number of concurrent fetches per slot."""


class Rate(msgspec.Struct, frozen=True):
    """At most ``count`` fetches start in any window of ``per`` seconds. Settings write it as ``20/60s`` or ``500/h``."""

    count: int
    per: float

    @classmethod
    @lru_cache(maxsize=1024)
    def parse(cls, text: str) -> Rate:
        """Read ``COUNT/[NUMBER]UNIT`` with the unit ``s``, ``m`` or ``h``.

        Raises :class:`~skitter.errors.SettingsError` for any other text.
        """
        match = re.fullmatch(_RATE, text.strip())
        if match is None or int(match[1]) < 1 or float(match[2] or 1) <= 0:
            raise SettingsError(f"invalid rate {text!r}", remedy="write a rate like 20/60s", field="rates")
        return cls(int(match[1]), float(match[2] or 1) * _SECONDS[match[3]])


_RATE = r"(\d+)\s*/\s*(\d+(?:\.\d+)?)?\s*([smh])"  # compiled at its first use
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


class HostLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one slot (host), or of the hosts of a queue, a task or a domain.

    A limit that is not set is taken from more general limits, and finally from the settings of the job. Raises
    :class:`~skitter.errors.SettingsError` for a negative or infinite number and for an invalid rate.
    """

    delay: float | None = None
    """Minimum seconds between the starts of two fetches. If no limit sets it, it adapts to the server's latency."""
    jitter: float | None = None
    """Maximum random extra delay per fetch, in seconds (uniform distribution)."""
    concurrency_per_slot: int | None = None
    """Number of concurrent fetches."""
    rates: tuple[str, ...] = ()
    """Rate limits such as ``("1/2s", "20/60s")``. A fetch must satisfy all of them."""

    def __post_init__(self) -> None:
        for name, value, least in (
            ("delay", self.delay, 0), ("jitter", self.jitter, 0),
            ("concurrency_per_slot", self.concurrency_per_slot, 1),
        ):  # fmt: skip
            if value is not None and not least <= value < math.inf:  # nan is outside this range
                raise SettingsError(
                    f"{name} is {value}", remedy=f"give a finite number, {least} or more", field=name
                )
        rates: Any = self.rates  # one rate or a list is accepted, too
        msgspec.structs.force_setattr(self, "rates", (rates,) if isinstance(rates, str) else tuple(rates))
        self.parsed_rates()

    def parsed_rates(self) -> tuple[Rate, ...]:
        """Return the rate limits as numbers."""
        return tuple(map(Rate.parse, self.rates))

    def over(self, general: HostLimits) -> HostLimits:
        """Return these limits, with missing values taken from more general limits."""
        concurrency = self.concurrency_per_slot
        return HostLimits(
            delay=general.delay if self.delay is None else self.delay,
            jitter=general.jitter if self.jitter is None else self.jitter,
            concurrency_per_slot=general.concurrency_per_slot if concurrency is None else concurrency,
            rates=self.rates or general.rates,
        )

    def strictest(self, other: HostLimits) -> HostLimits:
        """Return the stricter of both limits for each value."""

        def both(choose: Callable[[list[Any]], Any], name: str) -> Any:
            values = [value for limits in (self, other) if (value := getattr(limits, name)) is not None]
            return choose(values) if values else None

        return HostLimits(
            delay=both(max, "delay"),
            jitter=both(max, "jitter"),
            concurrency_per_slot=both(min, "concurrency_per_slot"),
            rates=tuple(dict.fromkeys((*self.rates, *other.rates))),
        )


_NO_LIMITS = HostLimits()
_DEFAULT_LIMITS = HostLimits(jitter=0.0, concurrency_per_slot=DEFAULT_CONCURRENCY_PER_SLOT)


class LimitRule(HostLimits, frozen=True, kw_only=True):
    """Limits for the hosts that a pattern matches. The first matching rule applies.

    ``domain_glob`` (``*.example.com``) or ``domain_regexp`` must match the whole host name, with or without its port.
    """

    domain_glob: str | None = None
    domain_regexp: str | None = None
    unit: SlotUnit = "host"
    """``host``: each host has its own slot; ``domain``: each registered domain (Public Suffix List) has one;
    ``rule``: all matching hosts share one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.domain_glob is None) == (self.domain_regexp is None):
            raise SettingsError(
                "a limit rule needs either domain_glob or domain_regexp",
                remedy='write a rule like {"domain_glob": "*.example.com", "delay": 2}; "*" matches all hosts',
                field="limit_rules",
            )
        self.pattern()

    def pattern(self) -> re.Pattern[str]:
        """Return the compiled pattern. Raises :class:`~skitter.errors.SettingsError`."""
        source = self.domain_regexp or ""
        try:
            if self.domain_glob is not None:
                source = translate(ascii_domain(self.domain_glob))
            return re.compile(source, re.IGNORECASE)
        except re.error as error:
            raise SettingsError(
                f"invalid regular expression {self.domain_regexp!r} in a limit rule: {error}",
                remedy="correct domain_regexp, or use domain_glob",
                field="limit_rules",
            ) from error


class Politeness:
    """Maps hosts to slots, and slots to their limits.

    ``queues``: limits of queues, if they have any. ``domains``: limits of hosts by domain, including subdomains; the
    longest matching domain applies. Neither changes the slots. Limits of a rule take precedence over limits of a domain,
    which take precedence over limits of a queue.
    """

    def __init__(
        self,
        default: HostLimits | None = None,
        rules: Sequence[LimitRule] = (),
        unit: SlotUnit = "host",
        queues: Mapping[str, HostLimits] | None = None,
        domains: Mapping[str, HostLimits] | None = None,
    ) -> None:
        self.default = _DEFAULT_LIMITS if default is None else default.over(_DEFAULT_LIMITS)
        self.rules = tuple(rules)
        self.queues = dict(queues or {})
        self._patterns = [rule.pattern() for rule in self.rules]
        self.unit = unit
        """The kind of slots for hosts that no rule matches."""
        self.domains: dict[str, HostLimits] = {}
        for domain, limits in (domains or {}).items():
            name = without_port(domain.lower())
            key = registered_domain(name) if unit == "domain" else name
            self.domains[key] = limits.strictest(self.domains.get(key, _NO_LIMITS))
        self.slot_of = lru_cache(maxsize=65_536)(self._slot_of)
        """Return the slot key of a host (``name`` or ``name:port``). The keys of the last hosts are cached."""

    def _slot_of(self, host: str) -> str:
        name = without_port(host)
        index = self._rule_of(host, name)
        unit = self.unit if index is None else self.rules[index].unit
        key = registered_domain(name) if unit == "domain" else name
        if unit == "rule":
            return f"{_RULE}{index}"
        # The key must identify the rule, even if the rule does not match the key itself.
        return key if self._rule_of(key, key) == index else f"{_RULE}{index}:{key}"

    def _rule_of(self, host: str, name: str) -> int | None:
        for index, pattern in enumerate(self._patterns):
            if pattern.fullmatch(name) or pattern.fullmatch(host):
                return index
        return None

    def changed(self, default: HostLimits, domains: Mapping[str, HostLimits]) -> Politeness:
        """Return the same rules with other default limits."""
        return Politeness(default, self.rules, self.unit, self.queues, domains)

    def limits_of(self, slot: str) -> HostLimits:
        """Return the limits of a slot by its key."""
        index = self.rule_of_slot(slot)
        default = self.default_of(queue_of(slot)) if self.queues else self.default
        if index is not None:
            return self.rules[index].over(default)
        own = self._limits_of_domain(without_queue(slot)) if self.domains else None
        return default if own is None else own.over(default)

    def _limits_of_domain(self, host: str) -> HostLimits | None:
        while host and host not in self.domains:
            host = host.partition(".")[2]
        return self.domains.get(host)

    def default_of(self, queue: str) -> HostLimits:
        """Return the limits of the slots of a queue that no rule matches."""
        return self.queues.get(queue, _NO_LIMITS).over(self.default)

    def rule_of_slot(self, slot: str) -> int | None:
        """Return the number of the rule of a slot, or ``None`` if the limits of the job apply."""
        slot = without_queue(slot)
        if slot.startswith(_RULE):
            number = slot.removeprefix(_RULE).partition(":")[0]
            index = int(number) if number.isdigit() else None
        else:
            index = self._rule_of(slot, slot)
        # The job was resumed with fewer rules.
        return None if index is None or index >= len(self.rules) else index


_RULE = "rule:"
