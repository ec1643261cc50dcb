"""Batches: how much one script does at most, since no other worker is served meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from skitter.frontier.records import Outcome
from skitter.frontier.redis.records import encode, id_bytes, text

LEASES_AT_ONCE = 500
ENTRIES_AT_ONCE = 1_000
FINGERPRINTS_AT_ONCE = 5_000
SLOTS_AT_ONCE = 1_000
TIDIED_AT_ONCE = 200
_OUTCOMES_AT_ONCE = 256


def packed_ids(lease_ids: Sequence[int]) -> Iterator[bytes]:
    """Give ids in batches for the scripts, at least one."""
    for start in range(0, max(1, len(lease_ids)), LEASES_AT_ONCE):
        yield encode([text(id_bytes(lease_id)) for lease_id in lease_ids[start : start + LEASES_AT_ONCE]])


def batches(outcomes: Sequence[Outcome]) -> Iterator[list[Outcome]]:
    """Divide outcomes so that no script is long. One outcome is never divided."""
    batch: list[Outcome] = []
    entries = 0
    for outcome in outcomes:
        entries += len(outcome.entries)
        if batch and (len(batch) == _OUTCOMES_AT_ONCE or entries > ENTRIES_AT_ONCE):
            yield batch
            batch, entries = [], len(outcome.entries)
        batch.append(outcome)
    if batch:
        yield batch
