"""Config: what the scripts are told about a job, once, when it is opened."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
import xxhash

from skitter.frontier.base import FrontierOptions
from skitter.politeness import Politeness, SlotPolicy


class JobConfig:
    """Options and slot policies of a job as the scripts read them."""

    def __init__(self, politeness: Politeness, options: FrontierOptions) -> None:
        self._politeness = politeness
        self._options = options
        policies = [politeness.default, *(rule.policy(politeness.default) for rule in politeness.rules)]
        self._numbers = {policy: number for number, policy in reversed(list(enumerate(policies, 1)))}
        self._policies = policies
        self.policy_of = lru_cache(maxsize=65_536)(self._policy_of)
        """Number of a slot's policy; 1 is that of the job."""

    def _policy_of(self, slot: str) -> int:
        return self._numbers[self._politeness.policy_of(slot)]

    @property
    def visits(self) -> str:
        """How known fingerprints are kept: ``exact``, ``compact``, or ``timed`` where visits run out."""
        return self._options.seen_filter if self._options.visited_ttl is None else "timed"

    @property
    def rules(self) -> str:
        """Changes with the rules that say which policy a slot has."""
        return xxhash.xxh3_128_hexdigest(repr((self._policies, self._politeness.rules)).encode())

    def packed(self) -> bytes:
        """Return the configuration for the scripts; what is not set is left out."""
        options = self._options
        limits = {
            name: value for name, value in msgspec.structs.asdict(options.limits).items() if value is not None
        }
        fields: dict[str, Any] = {
            "lease_seconds": options.lease_seconds,
            "max_lost": options.max_lost,
            "failed_stay_known": options.failed_stay_known,
            "policies": [_policy(policy) for policy in self._policies],
        }
        if options.visited_ttl is not None:
            fields["visited_ttl"] = options.visited_ttl
        elif options.seen_filter == "compact":
            fields["seen_error_rate"] = options.seen_error_rate
        if options.max_queued is not None:
            fields["max_queued"] = options.max_queued
        if limits:
            fields["limits"] = limits
        return msgspec.msgpack.encode(fields)


def _policy(policy: SlotPolicy) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "jitter": policy.jitter,
        "parallelism": policy.parallelism,
        "rates": [(rate.count, rate.per) for rate in policy.rates],
    }
    if policy.delay is not None:
        fields["delay"] = policy.delay
    return fields
