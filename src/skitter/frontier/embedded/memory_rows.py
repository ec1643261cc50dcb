"""Memory rows: the requests of a memory frontier, each in exactly one state, and how they change it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from skitter.frontier.embedded.base import Embedded
from skitter.frontier.embedded.leases import LeaseTable
from skitter.frontier.options import FrontierOptions
from skitter.frontier.records import AddResult, DeadLetter, Entry, JobState
from skitter.frontier.scheduling import lost_too_often, rank_of, seconds_apart
from skitter.politeness import Politeness

FOREVER = float("inf")


class Waiting:
    """A request of the job, wherever it is: queued, delayed or leased."""

    __slots__ = ("attempt", "entry", "forgotten", "lost", "rank", "sequence")

    def __init__(self, entry: Entry, rank: int, sequence: int) -> None:
        self.forgotten = False
        """Whether its fingerprint was forgotten when it was given up, so that it may have been added again."""
        self.entry = entry
        self.rank = rank
        self.sequence = sequence
        self.attempt = 0
        self.lost = 0


class MemoryRows(Embedded):
    """Queued, delayed, leased and dead requests; what is known."""

    def __init__(
        self,
        politeness: Politeness | None = None,
        options: FrontierOptions | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(politeness, options, clock)
        self._seen: dict[bytes, float] = {}
        self._delayed: list[tuple[float, int, Waiting]] = []
        self._leases: LeaseTable[Waiting] = LeaseTable(self._slots, self._options.lease_seconds)
        self._dead: dict[int, tuple[DeadLetter, Waiting]] = {}
        self._notes: dict[str, tuple[bytes, float]] = {}
        self._outputs: dict[str, list[tuple[int, int]]] = {}
        self._added = self._queued = self._done = 0
        self._sequence = 0
        self._fingerprint_seed = secrets.randbits(64)

    def _is_known(self, fingerprint: bytes, now: float) -> bool:
        return self._seen.get(fingerprint, 0.0) > now

    def _insert(self, entries: Sequence[Entry], now: float) -> AddResult:
        added = banned = 0
        self._active_at = now
        for entry in entries:
            if self._banned and self._is_banned(entry.slot):
                banned += 1
                continue
            if entry.dedup:
                if self._is_known(entry.fingerprint, now):
                    self._counters["refused/duplicate"] += 1
                    continue
                self._seen[entry.fingerprint] = FOREVER
            self._sequence += 1
            rank = rank_of(self._options.queue_order, entry.priority, self._sequence)
            waiting = Waiting(entry, rank, self._sequence)
            self._place(waiting, max(entry.not_before, now + entry.delay), now)
            added += 1
        self._added += added
        if banned:
            self._counters["refused/banned"] += banned
        return AddResult(added, len(entries) - added - banned, banned)

    def _place(self, waiting: Waiting, at: float, now: float) -> None:
        if self._banned and self._is_banned(
            waiting.entry.slot
        ):  # it was on lease, or dead, when its slot was banned
            self._added -= 1
            self._counters["refused/banned"] += 1
            return
        if at > now:
            heappush(self._delayed, (at, waiting.sequence, waiting))
            return
        self._queued += 1
        slot = self._slots.get(waiting.entry.slot)
        self._slots.push(slot, (waiting.rank, waiting.sequence, waiting))

    def _wake(self, now: float) -> None:
        """Queue what was delayed until now and take back leases that ran out."""
        while self._delayed and self._delayed[0][0] <= now:
            self._place(heappop(self._delayed)[2], now, now)
        for lease_id in self._leases.expired(now):
            self._lose(lease_id, now)

    def _lose(self, lease_id: int, now: float) -> None:
        held = self._leases.end(lease_id)
        if held is None:
            return
        self._active_at = now
        waiting = held.request
        waiting.lost += 1
        self._counters["leases/lost"] += 1
        if waiting.lost > self._options.max_worker_crashes:
            self._bury(waiting, lost_too_often(waiting.lost), now)
        else:
            self._place(waiting, now + seconds_apart(waiting.lost), now)

    def _bury(self, waiting: Waiting, error: str, now: float) -> None:
        entry = waiting.entry
        self._sequence += 1
        letter = DeadLetter(
            self._sequence, entry.fingerprint, entry.slot, entry.url, entry.record,
            error, waiting.attempt + 1, waiting.lost, now,
        )  # fmt: skip
        self._dead[letter.id] = (letter, waiting)
        if self._options.refetch_failed and entry.dedup:
            self._seen.pop(entry.fingerprint, None)
            waiting.forgotten = True

    def _current_state(self) -> JobState:
        idle = not (self._queued or self._delayed or self._leases)
        return self._state_now(idle=idle, failed=len(self._dead))

    def _limit_reached(self) -> str:
        return self._limit(len(self._dead))
