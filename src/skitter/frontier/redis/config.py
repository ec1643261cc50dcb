"""The configuration of a job, as the scripts read it. It is stored when the job is opened."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
import xxhash

from skitter.frontier.options import FrontierSettings, SettingsChanges, SlotBudgets
from skitter.politeness import DEFAULT_CONCURRENCY_PER_SLOT, HostLimits, LimitRule, Politeness, SlotUnit
from skitter.queues import DEFAULT_QUEUE, queue_of


class StoredJobConfig(msgspec.Struct, array_like=True, frozen=True):
    """The arguments of the last :meth:`open`, for processes that attach to the job without its spider."""

    options: FrontierSettings
    policy: HostLimits
    rules: tuple[LimitRule, ...]
    unit: SlotUnit
    queues: dict[str, HostLimits] = {}

    def politeness(self) -> Politeness:
        """Return the politeness rules."""
        return Politeness(self.policy, self.rules, self.unit, self.queues)


class JobConfig:
    """Options and slot policies of a job, with the settings that were changed since it was created."""

    def __init__(
        self, politeness: Politeness, options: FrontierSettings, changes: SettingsChanges | None = None
    ) -> None:
        self.changes = changes if changes is not None else SettingsChanges()
        self.stored = StoredJobConfig(
            options, politeness.default, politeness.rules, politeness.unit, politeness.queues
        )
        self._politeness = self.changes.of_politeness(politeness)
        self._options = self.changes.of_options(options)
        self._queues = [DEFAULT_QUEUE, *sorted(politeness.queues.keys() - {DEFAULT_QUEUE})]
        self._policies = [
            policy
            for default in map(self._politeness.default_of, self._queues)
            for policy in (default, *(rule.over(default) for rule in politeness.rules))
        ]
        """For each queue with its own limits, the default queue first: the policy of the queue, then the policy of each rule."""
        self.policy_of = lru_cache(maxsize=65_536)(self._policy_of)
        """Returns the number of a slot's policy; 1 is the policy of the job."""

    def changed(self, changes: SettingsChanges) -> JobConfig:
        """Return the configuration of the same job with other changed settings."""
        return JobConfig(self.stored.politeness(), self.stored.options, changes)

    def _policy_of(self, slot: str) -> int:
        rule = self._politeness.rule_of_slot(slot)
        number = self._own_policy_of(queue_of(slot))
        return number if rule is None else number + 1 + rule

    def _own_policy_of(self, queue: str) -> int:
        """Return the number of the policy of slots in a queue to which no rule applies."""
        index = self._queues.index(queue) if queue in self._queues else 0
        return 1 + index * (1 + len(self._politeness.rules))

    def slows(self, before: JobConfig, slot: str) -> bool:
        """Return whether the policy of a slot has a longer delay than in an earlier configuration."""
        now, then = self._politeness.limits_of(slot).delay, before._politeness.limits_of(slot).delay
        return (now or 0.0) > (then or 0.0)

    @property
    def visits(self) -> str:
        """How known fingerprints are stored: ``exact``, ``compact``, or ``timed`` with a ``visited_ttl``."""
        return self._options.seen_filter if self._options.visited_ttl is None else "timed"

    @property
    def rules(self) -> str:
        """A hash that changes when a slot may get another policy."""
        return xxhash.xxh3_128_hexdigest(
            repr((self._policies, self._politeness.rules, self._queues)).encode()
        )

    def packed(self) -> bytes:
        """Return the configuration for the scripts, without options that are not set."""
        options = self._options
        limits = {
            name: value
            for name in ("pages", "items", "errors", "bytes")
            if (value := getattr(options, f"max_{name}")) is not None
        }
        fields: dict[str, Any] = {
            "lease_seconds": options.lease_seconds,
            "max_worker_crashes": options.max_worker_crashes,
            "refetch_failed": options.refetch_failed,
            "remembers": options.changes is not None,
            "stats_max_keys": options.stats_max_keys,
            "policies": [_policy(policy) for policy in self._policies],
        }
        if len(self._queues) > 1:
            fields["queue_policies"] = {queue: self._own_policy_of(queue) for queue in self._queues}
        fields |= self._domain_fields()
        if options.visited_ttl is not None:
            fields["visited_ttl"] = options.visited_ttl
        elif options.seen_filter == "compact":
            fields["seen_error_rate"] = options.seen_error_rate
        if options.max_queued is not None:
            fields["max_queued"] = options.max_queued
        sums = {"limits": limits, "slot_budgets": SlotBudgets(options).packed()}
        fields |= {name: amounts for name, amounts in sums.items() if amounts}
        if options.seed_keys:
            fields["seed_keys"] = options.seed_keys
        if options.group_counter_prefix is not None:
            counters: dict[str, Any] = {"prefix": options.group_counter_prefix}
            if options.group_counter_ttl is not None:
                counters["ttl"] = options.group_counter_ttl
            fields["group_counters"] = counters
        if wait := options.seconds_to_wait():
            fields["wait_for_seeds"] = wait
        return msgspec.msgpack.encode(fields)

    def _domain_fields(self) -> dict[str, Any]:
        """Return the limits by domain, and the number of policies per queue: policies of rules override limits by domain."""
        domains = self._politeness.domains
        if not domains:
            return {}
        return {
            "domain_limits": {domain: _partial(limits) for domain, limits in domains.items()},
            "policies_of_a_queue": 1 + len(self._politeness.rules),
        }


def _partial(limits: HostLimits) -> dict[str, Any]:
    fields: dict[str, Any] = {
        name: value
        for name in ("delay", "jitter", "concurrency_per_slot")
        if (value := getattr(limits, name)) is not None
    }
    if limits.rates:
        fields["rates"] = [(rate.count, rate.per) for rate in limits.parsed_rates()]
    return fields


def _policy(policy: HostLimits) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "jitter": policy.jitter or 0.0,
        "concurrency_per_slot": policy.concurrency_per_slot or DEFAULT_CONCURRENCY_PER_SLOT,
        "rates": [(rate.count, rate.per) for rate in policy.parsed_rates()],
    }
    if policy.delay is not None:
        fields["delay"] = policy.delay
    return fields
