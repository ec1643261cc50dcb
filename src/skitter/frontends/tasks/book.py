"""TaskBook: a file of tasks that grows while a job runs: recipes that are added, tasks that are closed.

One JSON object a line, written once and never changed, so that every worker reads the same tasks, and a restart gives
the same first requests in the same order. A recipe's text is kept in it: later changes of the file that it came from
mean nothing to the job.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from skitter.errors import UsageError, did_you_mean
from skitter.frontends.recipe.source import Source
from skitter.frontends.tasks.entry import Entry, change_of, standings, type_of_change
from skitter.frontends.tasks.recipe_task import new_entry
from skitter.secrets import output_variable, shown_url, without_secrets
from skitter.store.outputs import open_output

_BEGINNING = b'{"task":"'
"""Of every line."""


class TaskBook:
    """The tasks of a job in a file, which is made with the first of them."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def add(
        self,
        text: str,
        file: str,
        variables: dict[str, Any] | None = None,
        *,
        outputs: Sequence[str] = (),
        schedule: str = "",
    ) -> str:
        """Add a recipe as a task; returns its name.

        ``outputs``: where its items go; by default where the recipe says, or else to the outputs of the job.
        ``schedule``: five cron fields, UTC; it begins a round at each of these times, and none before.

        Running workers see it within a second or so. Raises :class:`~skitter.frontends.recipe.problems.RecipeError` for a
        recipe that cannot be a task, and :class:`~skitter.errors.SkitterError` for outputs and schedules that are
        none, for outputs with a password, which would stand in the book, and if its name was used before.
        """
        for target in outputs:
            open_output(target)
        entry = new_entry(
            Source.of_text(text, file), text, variables or {}, outputs=outputs, schedule=schedule
        )
        for target in entry.outputs:
            _refuse_secrets(target)
        with self._locked() as entries:
            if any(known.task == entry.task for known in entries):
                raise UsageError(
                    f"{self._path} has a task {entry.task!r} already", remedy="give the recipe another name"
                )
            self._append(entry)
        return entry.task

    def change(self, name: str, change: type_of_change) -> None:
        """Pause, resume or close a task.

        Paused, nothing more of it is fetched; closed, its queued requests are dropped, and it stays closed. Raises
        :class:`~skitter.errors.UsageError` for a task that is not there, or was closed.
        """
        self.check_exists()
        with self._locked() as entries:
            try:
                entry = change_of(name, entries, change, time.time())
            except KeyError:
                known = standings(entries)
                remedy = did_you_mean(name, known) if known else "`skitter task add` adds one"
                raise UsageError(f"{self._path} has no task {name!r}", remedy=remedy) from None
            except ValueError:
                raise UsageError(
                    f"task {name!r} is closed for good", remedy="add it again under another name"
                ) from None
            if entry is not None:
                self._append(entry)

    def check_exists(self) -> None:
        """Raise :class:`~skitter.errors.UsageError` if there is no such file."""
        if not self._path.exists():
            raise UsageError(f"there is no book {self._path}", remedy="`skitter task add` makes it")

    def begin_round(self, name: str, number: int) -> None:
        """Note that a task fetches its pages anew; a round that was begun already stays as it is."""
        with self._locked() as entries:
            if not any(entry.task == name and entry.round == number for entry in entries):
                self._append(Entry(task=name, round=number))

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
            raise self._is_no_book(error) from None

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
            entries = self.entries()
            self._cut_torn_line(descriptor)
            yield entries
        finally:
            os.close(descriptor)

    def _cut_torn_line(self, descriptor: int) -> None:
        """Remove what somebody wrote who did not live to end the line; nothing of a file that is no book."""
        size = os.fstat(descriptor).st_size
        data = os.pread(descriptor, size, 0)
        whole = data.rfind(b"\n") + 1
        torn = data[whole:]
        if torn and not (torn.startswith(_BEGINNING) or _BEGINNING.startswith(torn)):
            raise self._is_no_book("its last line is none of a book")
        if torn:
            os.ftruncate(descriptor, whole)

    def _is_no_book(self, why: object) -> UsageError:
        return UsageError(
            f"{self._path} is no book of tasks: {why}", remedy="name the file that `skitter task add` made"
        )

    def _append(self, entry: Entry) -> None:
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(entry) + b"\n")
            file.flush()
            os.fsync(file.fileno())


def _refuse_secrets(target: str) -> None:
    if without_secrets(target) != target:
        raise UsageError(
            f"output {shown_url(target)} holds a password, which would stand in the book",
            remedy=f"leave it out, and set {output_variable('KIND')} (such as {output_variable('mongodb')}) where the job runs",
        )
