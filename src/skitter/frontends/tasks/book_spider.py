"""BookSpider: a job whose tasks stand in a :class:`~skitter.frontends.tasks.book.TaskBook`, and may be added while it runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any

from skitter.errors import UsageError
from skitter.frontends.tasks.book import TaskBook
from skitter.frontends.tasks.entry import Entry, standings
from skitter.frontends.tasks.limits import domain_limits
from skitter.frontends.tasks.recipe_task import RecipeTask
from skitter.frontends.tasks.spider import TaskSpider
from skitter.frontends.tasks.task import Task
from skitter.worker.seeds import SKIPPED

if TYPE_CHECKING:
    from skitter.worker.worker import Worker

_LOOK_EVERY = 0.5
"""Seconds between two looks whether the book has grown."""
_PATIENCE = 60.0
"""Seconds after which a task that is asked for must be in the book: the nodes of a service write it down each for
itself, and one that is slow is later than the request."""


class BookSpider(TaskSpider):
    """Runs all tasks of a book.

    ``book``
        Its file.
    ``watch``
        ``yes``: the job stays and takes what is added, until it is stopped; it also begins the rounds of tasks that
        reload or have a schedule. ``no``, the default: it ends when all is done.
    ``rounds``
        ``own``, the default: it notes the rounds that begin in the book. ``given``: somebody else does.

    The limits of a task hold for each host of its domains, from before its first request on, in every worker: they are
    told to the frontier (``Frontier.change``), and change nothing about which slot a host is in.

    Raises, when made, :class:`~skitter.errors.UsageError` for a book without tasks that is not watched, and for
    other words than these.
    """

    name = "tasks"

    def __init__(self, book: str, watch: str = "no", rounds: str = "own", **arguments: Any) -> None:
        if watch not in {"yes", "no"}:
            raise UsageError(f"watch is {watch!r}", remedy="write -a watch=yes or -a watch=no")
        if rounds not in {"own", "given"}:
            raise UsageError(f"rounds is {rounds!r}", remedy="write -a rounds=own or -a rounds=given")
        self._begins_rounds = rounds == "own"
        self._book = TaskBook(book)
        self._routes: tuple[int, list[tuple[str, ...]]] = (-1, [])
        """Where the items of tasks go, and how long the book was that says so."""
        self._watch = watch == "yes"
        self._size = -1
        self._looked = 0.0
        self._looking = asyncio.Lock()
        self._worker: Worker | None = None
        """Tells the frontier the limits of tasks; known once it begins."""
        self._taken = 0
        tasks = self._new_tasks()
        if not (tasks or self._watch):
            raise UsageError(f"{book} has no tasks", remedy=f"add one: skitter task add {book} RECIPE.yaml")
        super().__init__(tasks, **arguments)

    def _new_tasks(self) -> list[Task]:
        """Return the tasks of the lines that were not read before, and close those that are to be."""
        self._size = self._book.size()
        entries = self._book.entries()
        new: dict[str, Task] = {}
        for entry in entries[self._taken :]:
            if entry.text:
                new[entry.task] = RecipeTask.of_entry(entry)
                continue
            task = new.get(entry.task) or self.by_name[entry.task]
            task.closed |= entry.closed
            if entry.paused is not None:
                task.paused = entry.paused
        self._taken = len(entries)
        return [*new.values()]

    async def look(self) -> None:
        """Read what is new in the book; not more often than twice a second."""
        if time.monotonic() - self._looked < _LOOK_EVERY:
            return
        async with self._looking:
            now = time.monotonic()
            if now - self._looked < _LOOK_EVERY:
                return
            self._looked = now
            if await asyncio.to_thread(self._book.size) == self._size:
                return
            new = await asyncio.to_thread(self._new_tasks)
            if any(task.limits for task in new):
                await self._limit([*self.by_name.values(), *new])  # before anything of them is known here
            for task in new:
                self.add_task(task)

    def _limit_rules(self) -> list[dict[str, Any]]:
        return []  # other tasks may come, and a host would then be in another slot

    async def _limit(self, tasks: Iterable[Task]) -> None:
        if self._worker is not None:
            await self._worker.limit_domains(domain_limits(tasks))

    async def on_start(self, worker: Worker) -> None:
        """Tell the frontier the limits of the tasks, and begin to look after those that are closed."""
        self._worker = worker
        await self._limit(self.by_name.values())
        await super().on_start(worker)

    async def find_task(self, name: str) -> Task:
        """Return a task, which may have been added a moment ago. Raises as that of :class:`TaskSpider`."""
        await self.look()
        if name and name not in self.by_name:
            await self._wait_for(name)
        return await super().find_task(name)

    async def _wait_for(self, name: str) -> None:
        """Look until a task is in the book: the worker that its request comes from may have read of it earlier."""
        deadline = time.monotonic() + (_PATIENCE if self._watch else 0.0)
        self._looked = -_LOOK_EVERY
        await self.look()
        while name not in self.by_name and time.monotonic() < deadline:
            await asyncio.sleep(_LOOK_EVERY)
            await self.look()

    def routes(self) -> list[tuple[str, ...]]:
        """Return where the items of tasks go by what stands in the book now."""
        size, known = self._routes
        if (now := self._book.size()) != size:
            known = list(
                dict.fromkeys(tuple(entry.outputs) for entry in self._book.entries() if entry.outputs)
            )
            self._routes = (now, known)
        return known

    async def start(self) -> AsyncIterator[Any]:
        """Yield the first requests of every line of the book, in its order, also of those to come."""
        given = 0
        while True:
            entries = await asyncio.to_thread(self._book.entries)
            for entry in entries[given:]:
                async for request in self._first(entry):
                    yield request
            new = len(entries) > given
            given = len(entries)
            if await self._begin_rounds(entries) or new:
                continue
            if not self._watch:
                return
            await asyncio.sleep(_LOOK_EVERY)

    async def _first(self, entry: Entry) -> AsyncIterator[Any]:
        if not entry.text and entry.round is None:
            return
        task = await self.find_task(entry.task)
        # A task that was closed gives something for each of its first requests: after a restart as many are skipped
        # as were taken.
        if entry.round is not None or not task.stamp.reloads:
            async for request in task.roots():
                for marked in task.stamp.on(request, entry.round or 0):
                    yield SKIPPED if task.closed else marked

    async def _begin_rounds(self, entries: list[Entry]) -> bool:
        """Note the rounds that it is time for; returns whether there are any."""
        if not self._begins_rounds:
            return False
        now = time.time()
        due = [
            (name, number)
            for name, task in standings(entries).items()
            if (number := task.due_round(now)) is not None
        ]
        for name, number in due:
            await asyncio.to_thread(self._book.begin_round, name, number)
        return bool(due)
