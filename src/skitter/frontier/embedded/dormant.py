"""Dormant slots: hosts with waiting requests that are all in the file, and of which nothing else needs to be known.

A crawl may know millions of hosts that it has not asked yet. With its entries in the heaps, a slot takes 700 bytes; a
dormant slot is a count, with its name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import nlargest
from operator import itemgetter

from skitter.queues import queue_of

MAX_RANKS = 16
"""Ranks of dormant slots in one queue: the best is searched for at each step."""
_RECOUNT_SHARE = 4
"""The largest slots are searched again when one in this many may have changed."""


class DormantSlots:
    """The number of waiting requests of each dormant slot, and the order in which the slots have their first turn."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._usual_rank = 0
        self._other_ranks: dict[str, int] = {}
        """Rank of the first request, where it is not the usual one."""
        self._turns: dict[str, dict[int, deque[str]]] = {}
        """Slots in the order of their arrival, by queue and rank. Some have been woken since."""
        self._largest: list[str] = []
        self._changes = 0
        """Number of changes since the largest slots were searched."""

    def __len__(self) -> int:
        return len(self._counts)

    def __contains__(self, key: str) -> bool:
        return key in self._counts

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(self._counts.items())

    def rank_of(self, key: str) -> int:
        """Return the rank of the first request of a dormant slot."""
        return self._other_ranks.get(key, self._usual_rank)

    def add(self, key: str, rank: int, amount: int) -> bool:
        """Add a slot. Return ``False`` if its rank is one too many."""
        ranks = self._turns.setdefault(queue_of(key), {})
        if rank not in ranks and len(ranks) >= MAX_RANKS:
            return False
        if not self._counts:
            self._usual_rank = rank
        elif rank != self._usual_rank:
            self._other_ranks[key] = rank
        self._counts[key] = amount
        self._changes += 1
        ranks.setdefault(rank, deque()).append(key)
        return True

    def grow(self, key: str, rank: int, amount: int) -> bool:
        """Count more requests of a slot. Return ``False`` if it is not dormant, or if one of them comes before its first."""
        count = self._counts.get(key)
        if count is None or rank < self.rank_of(key):
            return False
        self._counts[key] = count + amount
        self._changes += 1
        return True

    def take(self, key: str) -> tuple[int, int] | None:
        """Remove a slot. Return the rank of its first request and their number; ``None`` if it is not dormant."""
        count = self._counts.pop(key, None)
        if count is None:
            return None
        self._changes += 1
        return self._other_ranks.pop(key, self._usual_rank), count

    def first(self, queue: str) -> tuple[int, str] | None:
        """Return the rank and the key of the slot of a queue whose turn is next; ``None`` if there is none."""
        ranks = self._turns.get(queue)
        while ranks:
            rank = min(ranks)
            keys = ranks[rank]
            while keys:
                if keys[0] in self._counts and self.rank_of(keys[0]) == rank:
                    return rank, keys[0]
                keys.popleft()
            del ranks[rank]
        return None

    def largest(self, amount: int) -> list[tuple[str, int]]:
        """Return some of the slots with the most requests.

        Among many slots, one that grew since the last search may be missing: a search takes 0.1 s per million.
        """
        if self._changes > len(self._counts) // _RECOUNT_SHARE or len(self._largest) < amount:
            self._changes = 0
            self._largest = [key for key, _ in nlargest(2 * amount, self._counts.items(), key=itemgetter(1))]
        found = ((key, self._counts.get(key, 0)) for key in self._largest)
        return nlargest(amount, (pair for pair in found if pair[1]), key=itemgetter(1))
