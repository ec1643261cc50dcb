"""TaskBook: a file of tasks that grows while a job runs: recipes that are added, tasks that are closed.

One JSON object a line, written once and never changed, so that every worker reads the same tasks, and a restart gives
the same first requests in the same order. A recipe's text is kept in it: later changes of the file that it came from
mean nothing to the job.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from skitter.errors import UsageError
from skitter.recipe.source import Source
from skitter.remedies import did_you_mean
from skitter.tasks.recipe_task import RecipeTask


class Entry(msgspec.Struct, omit_defaults=True):
    """One line: a task is added, is closed, or begins a round of its reloading."""

    task: str
    file: str = ""
    """Name of the recipe that it is made from, for its messages."""
    text: str = ""
    """The recipe; empty in lines that add nothing."""
    variables: dict[str, Any] = {}
    closed: bool = False
    round: int | None = None


class TaskBook:
    """The tasks of a job in a file, which is made with the first of them."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def add(self, text: str, file: str, variables: dict[str, Any] | None = None) -> str:
        """Add a recipe as a task; returns its name.

        Running workers see it within a second or so. Raises :class:`~skitter.recipe.problems.RecipeError` for a
        recipe that cannot be a task, and :class:`~skitter.errors.UsageError` if its name was used before.
        """
        name = RecipeTask(Source.of_text(text, file), variables).name
        with self._locked() as entries:
            if any(entry.task == name for entry in entries):
                raise UsageError(
                    f"{self._path} has a task {name!r} already", remedy="give the recipe another name"
                )
            self._append(Entry(name, file, text, variables or {}))
        return name

    def close(self, name: str) -> None:
        """Close a task: its queued requests are dropped. Raises :class:`~skitter.errors.UsageError`."""
        with self._locked() as entries:
            known = dict.fromkeys(entry.task for entry in entries)
            if name not in known:
                raise UsageError(
                    f"{self._path} has no task {name!r}", remedy=did_you_mean(name, known or ["-"])
                )
            self._append(Entry(name, closed=True))

    def begin_round(self, name: str, number: int) -> None:
        """Note that a task fetches its pages anew; a round that was begun already stays as it is."""
        with self._locked() as entries:
            if not any(entry.task == name and entry.round == number for entry in entries):
                self._append(Entry(name, round=number))

    def entries(self) -> list[Entry]:
        """Return all lines. Raises :class:`~skitter.errors.UsageError` for a file that is no book."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UsageError(f"{self._path} cannot be read: {error.strerror}", remedy="check it") from error
        lines = data.split(b"\n")[:-1]  # what follows the last line break is still being written
        try:
            return [msgspec.json.decode(line, type=Entry) for line in lines]
        except msgspec.MsgspecError as error:
            raise UsageError(
                f"{self._path} is no book of tasks: {error}",
                remedy="name the file that `skitter task add` made",
            ) from None

    def size(self) -> int:
        """Return how long the file is: it changes with every line."""
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0

    @contextmanager
    def _locked(self) -> Iterator[list[Entry]]:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise UsageError(
                f"{self._path} cannot be written: {error.strerror}", remedy="choose another place"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            self._cut_torn_line(descriptor)
            yield self.entries()
        finally:
            os.close(descriptor)

    @staticmethod
    def _cut_torn_line(descriptor: int) -> None:
        """Remove what somebody wrote who did not live to end the line."""
        size = os.fstat(descriptor).st_size
        data = os.pread(descriptor, size, 0)
        whole = data.rfind(b"\n") + 1
        if whole < size:
            os.ftruncate(descriptor, whole)

    def _append(self, entry: Entry) -> None:
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(entry) + b"\n")
            file.flush()
            os.fsync(file.fileno())
