"""Desk: what can be done with the jobs, recipes and tasks of a service. It changes records; the nodes act on them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec

from skitter.frontends.tasks.changes import TaskChange
from skitter.service.checks import check_recipe, naming, next_start
from skitter.service.errors import TRIES, Conflict, Missing, Refusal, too_busy
from skitter.service.ground import Ground, check_settings
from skitter.service.nouns import Job, NodeNote, Recipe, Run, decode, new_run
from skitter.service.records import Records
from skitter.service.task_desk import TaskDesk
from skitter.settings import build_settings

_MOST_PROCESSES = 64


class Desk(TaskDesk):
    """The operations of the API on records, and the decisions of the nodes about them."""

    def __init__(self, ground: Ground, records: Records) -> None:
        self.ground = ground
        self.records = records
        self._writing = asyncio.Lock()
        """A node and the callers of its API write down the same."""

    # --- recipes -----------------------------------------------------------------------------------------

    async def put_recipe(self, recipe: Recipe) -> bool:
        """Keep a recipe; returns whether it is new. Runs under way go on with what they began with.

        Raises :class:`~skitter.frontends.recipe.source.RecipeError` with all that is wrong with it.
        """
        await asyncio.to_thread(check_recipe, recipe, None)
        recipe.stored = time.time()
        for _ in range(TRIES):
            before = await self.records.get("recipes", recipe.name)
            if await self.records.swap("recipes", recipe.name, before, msgspec.json.encode(recipe)):
                return before is None
        raise too_busy(recipe.name)

    async def recipes(self) -> list[Recipe]:
        """Return all recipes, by name."""
        return [decode(data, Recipe) for data in (await self.records.all("recipes")).values()]

    async def delete_recipe(self, name: str) -> None:
        """Forget a recipe. Raises :class:`Conflict` while jobs name it."""
        data = msgspec.json.encode(await self.recipe(name))
        if users := [job.name for job in await self.jobs() if job.recipe == name]:
            raise Conflict(f"recipe {name!r} is that of job {users[0]!r}", remedy="delete the job first")
        if not await self.records.swap("recipes", name, data, None):
            raise too_busy(name)

    # --- jobs --------------------------------------------------------------------------------------------

    async def jobs(self) -> list[Job]:
        """Return all jobs, by name."""
        return [decode(data, Job) for data in (await self.records.all("jobs")).values()]

    async def nodes(self) -> dict[str, NodeNote]:
        """Return the nodes that are there."""
        return {name: decode(note, NodeNote) for name, note in (await self.records.nodes()).items()}

    async def add_job(self, job: Job, *, start: bool) -> Job:
        """Add a job and begin it, unless it waits for its time. Raises :class:`Refusal` or :class:`Conflict`."""
        await self._check(job)
        job.created = time.time()
        job.due = next_start(job.schedule, job.created)
        if start:
            await self._begin(job)
        if not await self.records.swap("jobs", job.name, None, msgspec.json.encode(job)):
            raise Conflict(f"there is a job {job.name!r} already", remedy="choose another name", field="name")
        return job

    async def _check(self, job: Job) -> None:
        kinds = [kind for kind in ("recipe", "spider", "tasks") if getattr(job, kind)]
        if len(kinds) != 1:
            raise Refusal(
                f"a job runs one of recipe, spider and tasks; this one names {' and '.join(kinds) or 'none'}",
                remedy="name exactly one of them",
                field="recipe",
            )
        check_settings(job.settings, "settings")
        for name, value in job.settings.items():
            naming(f"settings.{name}", lambda one={name: value}: _check_limits(one))  # type: ignore[misc]
        if sum(job.queues.values()) > _MOST_PROCESSES:
            raise Refusal(
                f"the queues have {sum(job.queues.values())} processes",
                remedy=f"{_MOST_PROCESSES} on each node at most",
                field="queues",
            )
        _check_schedule(job, job.schedule)
        if job.tasks and job.arguments:
            raise Refusal(
                "a job of tasks waits for them: it has no arguments",
                remedy="leave them out",
                field="arguments",
            )
        if job.spider:
            await asyncio.to_thread(self.ground.allowed_spider, job.spider)
        if job.recipe:
            recipe = await self.recipe(job.recipe, "recipe")
            await asyncio.to_thread(check_recipe, recipe, job.arguments)

    async def reschedule(self, name: str, schedule: str) -> Job:
        """Change when new runs begin; empty: only when they are started."""

        async def edit(job: Job) -> None:
            _check_schedule(job, schedule)
            job.schedule = schedule
            job.due = next_start(schedule, time.time())

        return await self._change(name, edit)

    async def start(self, name: str) -> Job:
        """Begin a new run. Raises :class:`Conflict` while one is under way."""

        async def begin(job: Job) -> None:
            if job.is_active:
                raise Conflict(f"job {name!r} is under way", remedy="stop it first")
            await self._begin(job)

        return await self._change(name, begin)

    async def _begin(self, job: Job) -> None:
        """Give a job a new run; the run before the last is forgotten."""
        recipe = await self.recipe(job.recipe, "recipe") if job.recipe else None
        if job.previous is not None:
            await self._discard(job.previous.id)
        if job.run is not None:
            job.previous = job.run
        job.run = new_run(job.name, recipe)
        logs = [job.run.id, *job.logs]
        job.logs = logs[: self.ground.log_runs]
        for run in logs[self.ground.log_runs :]:
            await self._discard_log(run)
        job.wanted = "running"

    async def _discard(self, run: str) -> None:
        """Have a run erased, as soon as no job refers to it and nobody runs it."""
        await self.records.swap("garbage", run, None, b"{}")

    async def _discard_log(self, run: str) -> None:
        """Have a log erased, as soon as no job refers to it and nobody writes into it."""
        await self.records.swap("old-logs", run, None, b"{}")

    async def pause(self, name: str) -> Job:
        """Let nothing more be fetched until it is resumed, and no scheduled run begin."""

        async def edit(job: Job) -> None:
            job.wanted = "paused"

        return await self._change(name, edit)

    async def stop(self, name: str) -> Job:
        """End the run where it is; it can be resumed. Scheduled runs begin all the same.

        Raises :class:`Missing` if there is no such job.
        """

        async def edit(job: Job) -> None:
            job.wanted = "stopped"

        return await self._change(name, edit)

    async def resume(self, name: str) -> Job:
        """Go on with the run, also with one that is finished (failures that were queued again, seeds)."""

        async def edit(job: Job) -> None:
            if job.run is None and job.schedule:
                job.wanted = "stopped"
                return
            if job.run is None:
                await self._begin(job)
            assert job.run is not None
            job.wanted = "running"
            job.run.ended, job.run.reason, job.run.ended_at = "", "", 0.0
            job.run.leg += 1

        return await self._change(name, edit)

    async def delete(self, name: str) -> None:
        """Forget a job. Its nodes let go of it, then its frontier and its items are erased.

        Raises :class:`Missing` if there is no such job.
        """
        for _ in range(TRIES):
            data = await self.records.get("jobs", name)
            if data is None:
                raise Missing(f"there is no job {name!r}", remedy="GET /jobs lists the jobs")
            job = decode(data, Job)
            for run in (job.run, job.previous):
                if run is not None:
                    await self._discard(run.id)
            for log in job.logs:
                await self._discard_log(log)
            if await self.records.swap("jobs", name, data, None):
                tasks = await self.records.get("tasks", name)
                await self.records.swap("tasks", name, tasks, None)
                return
        raise too_busy(name)

    async def _change(self, name: str, edit: Callable[[Job], Any]) -> Job:
        for _ in range(TRIES):
            data = await self.records.get("jobs", name)
            if data is None:
                raise Missing(f"there is no job {name!r}", remedy="GET /jobs lists the jobs")
            job = decode(data, Job)
            await edit(job)
            if await self.records.swap("jobs", name, data, msgspec.json.encode(job)):
                return job
        raise too_busy(name)

    async def change_run(self, name: str, run: str, leg: int, edit: Callable[[Job, Run], None]) -> bool:
        """Note something about a leg of a run, if its job is still there."""

        async def checked(job: Job) -> None:
            if job.run is None or (job.run.id, job.run.leg) != (run, leg):
                raise Missing(run)
            edit(job, job.run)

        try:
            await self._change(name, checked)
        except Missing:
            return False
        return True

    # --- scheduled starts --------------------------------------------------------------------------------

    async def start_due(self, now: float) -> list[str]:
        """Begin the runs whose time has come; each once, whoever else does the same. Returns the jobs begun."""
        begun = []
        for name, data in (await self.records.all("jobs")).items():
            job = decode(data, Job)
            if job.tasks and job.is_active:
                await self.begin_rounds(name, now)
            if job.due is None or job.due > now:
                continue
            is_begun = not job.is_active and job.wanted != "paused"
            job.due = next_start(job.schedule, now)
            if is_begun:
                try:
                    await self._begin(job)
                except Refusal:  # its recipe is gone
                    is_begun = False
            if not is_begun:
                job.skipped += 1
            if await self.records.swap("jobs", name, data, msgspec.json.encode(job)) and is_begun:
                begun.append(name)
        return begun

    # --- on the disk of this node ------------------------------------------------------------------------

    async def prepare(self, job: Job, run: Run) -> None:
        """Write down what the processes of a run read: its recipe, or its book of tasks as it is by now."""
        entries = (await self.task_list(job.name))[0].entries if job.tasks else []
        async with self._writing:
            await asyncio.to_thread(self._write_down, job, run, entries)

    def _write_down(self, job: Job, run: Run, entries: list[TaskChange]) -> None:
        self.ground.sources.mkdir(parents=True, exist_ok=True)
        if run.recipe is not None:
            path = self.ground.recipe_file(run)
            if not path.exists():
                draft = path.with_suffix(".tmp")
                draft.write_text(run.recipe.text, "utf-8")
                draft.replace(path)
        if job.tasks:
            with self.ground.book_file(run).open("ab+") as book:
                book.seek(0)
                known = book.read().count(b"\n")
                for entry in entries[known:]:
                    outputs = self.ground.outputs_of_task(entry.task, entry.outputs, job, run)
                    line = msgspec.structs.replace(entry, outputs=outputs)
                    book.write(msgspec.json.encode(line) + b"\n")


def _check_schedule(job: Job, schedule: str) -> None:
    if job.tasks and schedule:
        raise Refusal(
            "a job of tasks waits for them: it has no schedule", remedy="give its tasks one", field="schedule"
        )
    naming("schedule", lambda: next_start(schedule, time.time()))


def _check_limits(settings: dict[str, Any]) -> None:
    """Find out whether settings can be read. Raises :class:`~skitter.errors.SettingsError`."""
    read = build_settings(settings)
    read.politeness()
    read.queue_sizes()
