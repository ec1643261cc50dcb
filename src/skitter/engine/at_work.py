"""At work: the workers of this process, and whether they are to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the owner of a fleet needs no worker
    from skitter.engine.worker import Worker


class AtWork:
    """Hears of each worker of this process that begins or ends.

    A worker that comes after :meth:`drain`, because it was still opening its stores or its fetcher, is drained as
    it comes.
    """

    def __init__(self) -> None:
        self._workers: list[Worker] = []
        self._draining = False

    def enter(self, worker: Worker) -> None:
        """Take note of a worker that is about to run."""
        self._workers.append(worker)
        if self._draining:
            worker.drain()

    def leave(self, worker: Worker) -> None:
        """Take note of a worker that has ended."""
        self._workers.remove(worker)

    def drain(self) -> None:
        """Let all of them lease nothing more, finish what is in hand, and leave."""
        self._draining = True
        for worker in self._workers:
            worker.drain()
