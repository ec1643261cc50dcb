"""Seed duty: who loads the seeds of a job, and how far they are. Shared by the embedded frontiers."""

from __future__ import annotations

from skitter.frontier.records import SeedMark


class SeedDuty:
    """Held by one worker at a time, until it is done or its holder is silent for ``lease_seconds``."""

    def __init__(self, lease_seconds: float) -> None:
        self._lease_seconds = lease_seconds
        self.is_done = False
        self.position = 0
        """How many seeds were taken in."""
        self._token = 0
        """Of the claim in force; 0: nobody has the duty."""
        self._worker = ""
        self._deadline = 0.0

    def is_free(self, now: float) -> bool:
        """Tell whether it can be claimed."""
        return not self.is_done and (not self._token or self._deadline <= now)

    def claim(self, token: int, worker: str, now: float) -> None:
        """Give it to a worker."""
        self._token, self._worker, self._deadline = token, worker, now + self._lease_seconds

    def advance(self, mark: SeedMark, now: float) -> bool:
        """Take note of progress; ``False``, and nothing changes, if another claim is in force."""
        if not self._token or self._token != mark.token:
            return False
        self._deadline = now + self._lease_seconds
        self.position = mark.position
        self.is_done = mark.done
        if mark.done:
            self._token = 0
        return True

    def renew(self, worker: str, now: float) -> None:
        """Extend the claim if it is this worker's."""
        if self._token and self._worker == worker:
            self._deadline = now + self._lease_seconds

    def abandon(self, worker: str) -> None:
        """Make it free if its holder is this worker, which is dead."""
        if self._worker == worker:
            self._token = 0

    def start_again(self) -> None:
        """Let the seeds be loaded anew."""
        self.is_done, self.position = False, 0
