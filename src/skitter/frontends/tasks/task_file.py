"""The task file: tasks as recipes in a file that can grow while their job runs, and the spider that runs them.

A task file has one JSON object per line. Lines are appended and never changed, so every worker reads the same tasks,
and a restarted job yields the same first requests in the same order. The file contains the text of each recipe: later
changes to the recipe's own file do not affect the job.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from skitter.errors import UsageError, did_you_mean
from skitter.frontends.recipe.source import RecipeSource
from skitter.frontends.tasks.changes import (
    ChangeKind,
    TaskChange,
    change_for,
    task_states,
    tasks_by_name,
    with_key,
)
from skitter.frontends.tasks.python_task import new_python_change, task_of_change
from skitter.frontends.tasks.recipe_task import RecipeTask, new_task_change
from skitter.frontends.tasks.spider import POLL_INTERVAL, TaskSpider, domain_limits
from skitter.frontends.tasks.task import Task
from skitter.secrets import output_variable, shown_url, without_secrets
from skitter.store.outputs import open_item_output
from skitter.worker.seeds import SKIPPED

if TYPE_CHECKING:
    from skitter.worker.worker import Worker

_LINE_START = b'{"task":"'
"""First bytes of every line."""
_TASK_TIMEOUT = 60.0
"""Seconds to wait for a task that a request names: each node of a service writes its own copy of the file, and the
request can arrive before the copy is up to date."""


class TaskFile:
    """The tasks of a job in a file. The file is created when the first task is added."""

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
        """Add a recipe as a task, and return the task's name. Running workers notice it within about a second.

        ``text``
            The recipe, in the format that the name ``file`` ends with.
        ``outputs``
            Outputs of the task's items. Default: the outputs of the recipe, otherwise the outputs of the job.
        ``schedule``
            Five cron fields in UTC. A recrawl starts at each of these times; the task does nothing before the first.

        Raises :class:`~skitter.frontends.recipe.source.RecipeError` if the recipe cannot be a task, and
        :class:`~skitter.errors.SkitterError` for an invalid output or schedule, an output with a password (the file
        would contain it), or a name that is taken.
        """
        for target in outputs:
            open_item_output(target)
        change = new_task_change(
            RecipeSource.of_text(text, file), text, variables or {}, outputs=outputs, schedule=schedule
        )
        for target in change.outputs:
            _refuse_secrets(target)
        _refuse_proxy_secrets(RecipeTask.of_change(change).proxies)
        self._add(change)
        return change.task

    def add_python(self, spider: str, task: str, *, outputs: Sequence[str] = (), schedule: str = "") -> None:
        """Add a task that a :class:`TaskSpider` defines in Python. Running workers notice it within about a second.

        ``spider``
            ``package.module:Class`` or ``FILE.py:Class``. Every machine of the fleet has to have the module or the file.

        ``outputs`` and ``schedule``: see :meth:`add`. Raises :class:`~skitter.errors.SkitterError` for a spider or a task
        that does not exist, an invalid output or schedule, or a name that is taken.
        """
        for target in outputs:
            open_item_output(target)
            _refuse_secrets(target)
        self._add(new_python_change(spider, task, outputs=outputs, schedule=schedule))

    def _add(self, change: TaskChange) -> None:
        with self._locked() as changes:
            try:
                self._append([with_key(change, changes)])
            except ValueError:
                raise UsageError(
                    f"{self._path} already has an open task {change.task!r}",
                    remedy="close it, or choose another name",
                    field="name",
                ) from None

    def change(self, name: str, kind: ChangeKind) -> None:
        """Pause, resume or close a task.

        Nothing is fetched for a paused task. The queued requests of a closed task are dropped, and the task stays
        closed. Raises :class:`~skitter.errors.UsageError` for a task that is unknown or closed.
        """
        self.check_exists()
        with self._locked() as changes:
            try:
                change = change_for(name, changes, kind, time.time())
            except KeyError:
                tasks = tasks_by_name(changes)
                remedy = did_you_mean(name, tasks) if tasks else "add one with `skitter task add`"
                raise UsageError(f"{self._path} has no task {name!r}", remedy=remedy, field="task") from None
            except ValueError:
                raise UsageError(f"task {name!r} is closed", remedy="add it again", field="task") from None
            if change is not None:
                self._append([change])

    def check_exists(self) -> None:
        """Raise :class:`~skitter.errors.UsageError` if the file does not exist."""
        if not self._path.exists():
            raise UsageError(
                f"task file not found: {self._path}",
                remedy="create it with `skitter task add`",
                field="task_file",
            )

    def start_recrawl(self, name: str, number: int) -> None:
        """Record that a recrawl of a task (given by its key) starts. Does nothing if it was recorded before."""
        with self._locked() as changes:
            if not any(change.task == name and change.recrawl == number for change in changes):
                self._append([TaskChange(task=name, recrawl=number)])

    def copy(self, changes: Sequence[TaskChange], adapt: Callable[[TaskChange], TaskChange]) -> None:
        """Append the lines of ``changes`` that the file does not have yet, each as ``adapt`` returns it.

        The file must contain only lines that were copied before. If ``adapt`` raises an error, the lines before are kept.
        """
        with self._locked() as known:
            if missing := changes[len(known) :]:
                self._append(map(adapt, missing))

    def changes(self) -> list[TaskChange]:
        """Return all lines. Raises :class:`~skitter.errors.UsageError` if the file is not a task file."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UsageError(
                f"cannot read {self._path}: {error.strerror}",
                remedy="check its permissions",
                field="task_file",
            ) from error
        lines = data.split(b"\n")[:-1]  # the text after the last line break is still being written
        try:
            return [msgspec.json.decode(line, type=TaskChange) for line in lines]
        except msgspec.MsgspecError as error:
            raise self._invalid(error) from None

    def size(self) -> int:
        """Return the length of the file in bytes. It grows with every line."""
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0

    @contextmanager
    def _locked(self) -> Iterator[list[TaskChange]]:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            changes = self.changes()
            self._cut_torn_line(descriptor)
            yield changes
        finally:
            os.close(descriptor)

    def _cut_torn_line(self, descriptor: int) -> None:
        """Remove an incomplete line of a killed process. Other kinds of files are not changed."""
        size = os.fstat(descriptor).st_size
        data = os.pread(descriptor, size, 0)
        end = data.rfind(b"\n") + 1
        torn = data[end:]
        if torn and not (torn.startswith(_LINE_START) or _LINE_START.startswith(torn)):
            raise self._invalid("its last line does not start like one")
        if torn:
            os.ftruncate(descriptor, end)

    def _invalid(self, reason: object) -> UsageError:
        return UsageError(
            f"{self._path} is not a task file: {reason}",
            remedy="name a file that `skitter task add` created",
            field="task_file",
        )

    def _unwritable(self, error: OSError) -> UsageError:
        return UsageError(
            f"cannot write {self._path}: {error.strerror}",
            remedy="check the space and the permissions, or choose another path",
            field="task_file",
        )

    def _append(self, changes: Iterable[TaskChange]) -> None:
        try:
            with self._path.open("ab") as file:
                for change in changes:
                    file.write(msgspec.json.encode(change) + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise self._unwritable(error) from error


def _refuse_secrets(target: str) -> None:
    if without_secrets(target) != target:
        raise UsageError(
            f"output {shown_url(target)} contains a password, and the task file would store it",
            remedy=f"leave it out, and set {output_variable('KIND')} (such as {output_variable('mongodb')}) where the job runs",
            field="outputs",
        )


def _refuse_proxy_secrets(proxies: Any) -> None:
    proxy_list = proxies.split(",") if isinstance(proxies, str) else proxies or ()
    if any(without_secrets(str(proxy)) != str(proxy) for proxy in proxy_list):
        raise UsageError(
            "a proxy of the recipe contains a password, and the task file would store it",
            remedy="write the proxies to a file, and give proxies: file:PATH",
            field="proxies",
        )


class TaskFileSpider(TaskSpider):
    """Runs all tasks of a task file.

    ``task_file``
        Path of the file.
    ``watch``
        ``yes``: the job runs until it is stopped. It starts tasks that are added, and the recrawls of tasks with
        ``reload`` or a schedule. ``no``, the default: the job ends when its tasks are done.
    ``recrawls``
        ``own``, the default: this spider records the recrawls that are due. ``given``: another program does.

    The limits of a task apply to each host of its domains, from the first request on, in every worker. They are passed to
    the frontier as changed settings, and do not change the slots of hosts.

    Raises :class:`~skitter.errors.UsageError` for a file without tasks that is not watched, and for any other value of
    ``watch`` or ``recrawls``.
    """

    name = "tasks"

    def __init__(self, task_file: str, watch: str = "no", recrawls: str = "own", **arguments: Any) -> None:
        if watch not in {"yes", "no"}:
            raise UsageError(
                f"invalid value for watch: {watch!r}",
                remedy="write -a watch=yes or -a watch=no",
                field="watch",
            )
        if recrawls not in {"own", "given"}:
            raise UsageError(
                f"invalid value for recrawls: {recrawls!r}",
                remedy="write -a recrawls=own or -a recrawls=given",
                field="recrawls",
            )
        self._starts_recrawls = recrawls == "own"
        self._file = TaskFile(task_file)
        self._routes: tuple[int, list[tuple[str, ...]]] = (-1, [])
        """Outputs of the tasks, with the size of the file that they were read from."""
        self._watch = watch == "yes"
        self._size = -1
        self._polled = 0.0
        self._polling = asyncio.Lock()
        self._worker: Worker | None = None
        """Passes limits on to the frontier. Set by ``on_start``."""
        self._read_lines = 0
        tasks = self._new_tasks()
        if not (tasks or self._watch):
            raise UsageError(
                f"{task_file} has no tasks",
                remedy=f"add one: skitter task add {task_file} RECIPE.yaml",
                field="task_file",
            )
        super().__init__(tasks, **arguments)

    def _new_tasks(self) -> list[Task]:
        """Read new lines. Apply changes to known tasks, and return the tasks that were added."""
        self._size = self._file.size()
        changes = self._file.changes()
        new: dict[str, Task] = {}
        for change in changes[self._read_lines :]:
            if change.adds:
                new[change.task] = task_of_change(change)
                continue
            task = new.get(change.task) or self.by_key[change.task]
            task.closed |= change.closed
            if change.paused is not None:
                task.paused = change.paused
        self._read_lines = len(changes)
        return [*new.values()]

    async def refresh(self) -> None:
        """Read new lines of the file, at most once per poll interval."""
        if time.monotonic() - self._polled < POLL_INTERVAL:
            return
        async with self._polling:
            now = time.monotonic()
            if now - self._polled < POLL_INTERVAL:
                return
            self._polled = now
            if await asyncio.to_thread(self._file.size) == self._size:
                return
            new = await asyncio.to_thread(self._new_tasks)
            if new:
                await self._limit([*self.by_key.values(), *new])  # before the first request of a new task
            for task in new:
                self.add_task(task)

    def _limit_rules(self) -> list[dict[str, Any]]:
        return []  # a limit rule could move hosts to another slot when a task is added

    async def _limit(self, tasks: Iterable[Task]) -> None:
        if self._worker is not None:
            await self._worker.limit_domains(domain_limits(task for task in tasks if not task.closed))

    async def on_start(self, worker: Worker) -> None:
        """Pass the limits of the tasks on to the frontier, and start the sweeper of closed tasks."""
        self._worker = worker
        await self._limit(self.by_key.values())
        await super().on_start(worker)

    async def find_task(self, name: str) -> Task:
        """Return a task, even if it was just added. Raises the same errors as :meth:`TaskSpider.find_task`."""
        await self.refresh()
        # The worker that made the request may have read the file earlier.
        if name and name not in self.by_key:
            deadline = time.monotonic() + (_TASK_TIMEOUT if self._watch else 0.0)
            self._polled = -POLL_INTERVAL
            await self.refresh()
            while name not in self.by_key and time.monotonic() < deadline:
                await asyncio.sleep(POLL_INTERVAL)
                await self.refresh()
        return await super().find_task(name)

    def routes(self) -> list[tuple[str, ...]]:
        """Return the outputs of all tasks that are currently in the file."""
        size, routes = self._routes
        if (now := self._file.size()) != size:
            routes = list(
                dict.fromkeys(tuple(change.outputs) for change in self._file.changes() if change.outputs)
            )
            self._routes = (now, routes)
        return routes

    async def start(self) -> AsyncIterator[Any]:
        """Yield the first requests of every line of the file, in order, including lines added later."""
        handled = 0
        while True:
            changes = await asyncio.to_thread(self._file.changes)
            for change in changes[handled:]:
                async for request in self._first(change):
                    yield request
            new = len(changes) > handled
            handled = len(changes)
            if await self._start_recrawls(changes) or new:
                continue
            if not self._watch:
                return
            await asyncio.sleep(POLL_INTERVAL)

    async def _first(self, change: TaskChange) -> AsyncIterator[Any]:
        if not change.adds and change.recrawl is None:
            return
        task = await self.find_task(change.task)
        # A closed task yields a placeholder for each first request, because a restarted job skips the number that it has loaded.
        if change.recrawl is not None or not task.defaults.reloads:
            async for request in task.start_requests():
                for marked in task.defaults.apply(request, change.recrawl or 0):
                    yield SKIPPED if task.closed else marked

    async def _start_recrawls(self, changes: list[TaskChange]) -> bool:
        """Record the recrawls that are due. Return whether there are any."""
        if not self._starts_recrawls:
            return False
        now = time.time()
        due = [
            (name, number)
            for name, task in task_states(changes).items()
            if (number := task.due_recrawl(now)) is not None
        ]
        for name, number in due:
            await asyncio.to_thread(self._file.start_recrawl, name, number)
        return bool(due)
