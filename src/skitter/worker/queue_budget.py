"""QueueBudget: how many requests of each queue a worker is to have in flight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from skitter.queues import EVERY_OTHER, QueueQuotas, queue_of


class QueueBudget:
    """Which queues a worker serves, and what it may take of each now.

    ``serves``: their names; empty: all. ``sizes``: fetches in flight of a queue, where it has a size of its own.
    """

    def __init__(self, serves: Sequence[str], sizes: Mapping[str, int]) -> None:
        self._serves = tuple(serves)
        self._sizes = {queue: size for queue, size in sizes.items() if not serves or queue in serves}
        self._fetching: Counter[str] = Counter()

    @property
    def concurrency(self) -> int | None:
        """Fetches in flight in all, where the sizes of the queues say it; ``None``: the job does."""
        is_said = bool(self._serves) and all(queue in self._sizes for queue in self._serves)
        return sum(self._sizes.values()) if is_said else None

    def shares(self, room: int) -> QueueQuotas:
        """Return how many requests to ask for, of ``room`` in all."""
        names = self._serves or (*self._sizes, EVERY_OTHER)
        return {queue: self._of(queue, room) for queue in names}

    def _of(self, queue: str, room: int) -> int:
        size = self._sizes.get(queue)
        return room if size is None else max(0, min(room, size - self._fetching[queue]))

    def begin(self, slot: str) -> None:
        """Count a fetch in flight."""
        self._fetching[queue_of(slot)] += 1

    def end(self, slot: str) -> None:
        """Count a fetch that has ended."""
        self._fetching[queue_of(slot)] -= 1


def make_queue_budget(serves: Sequence[str], sizes: Mapping[str, int]) -> QueueBudget | None:
    """Return the appetite of a worker; ``None`` if it takes whatever there is."""
    return QueueBudget(serves, sizes) if serves or sizes else None
