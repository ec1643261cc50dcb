"""TaskSpider: the spider of a job with many tasks, the limits of their hosts, and the sweeper of closed tasks."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import msgspec

from skitter.errors import DeferRequest, SpiderError, did_you_mean
from skitter.fetch.identity.contract import IdentitySources
from skitter.frontends.tasks.task import Task
from skitter.frontier.records import TASK
from skitter.politeness import HostLimits
from skitter.request import Request
from skitter.response import Response
from skitter.scope import EXACT, normalize_domain
from skitter.spider import Spider
from skitter.web.urls import host_of, normalize
from skitter.worker.callbacks import run_callback
from skitter.worker.hooks import HookAction

if TYPE_CHECKING:
    from skitter.worker.worker import Worker

log = logging.getLogger("skitter.frontends.tasks")

POLL_INTERVAL = 0.5
"""Seconds between two checks for added, paused and closed tasks."""
_VISITED_TTL = 100 * 365 * 86_400.0
"""Seconds after which pages may be fetched again. Longer than any job lasts."""
_PAUSED_HOST_DELAY = 5.0
"""Seconds for which a slot is paused if all of its requests belong to paused tasks. A resumed task continues after at
most this time."""
_PAUSED_REQUEST_DELAY = 60.0
"""Seconds for which a request of a paused task is deferred if other tasks use the same host. Each deferral uses one of the
host's time slots, so the delay is longer."""
_FIRST_SWEEP_GAP = 1.0
"""Seconds between the first two sweeps for a task. The gap doubles while sweeps find nothing."""
_SWEEP_REST_FACTOR = 20.0
"""Pause after a sweep, as a multiple of its duration: sweeping takes at most 5 % of the time, however long the queue is."""


class TaskSpider(Spider):
    """Runs the tasks of its class, or the tasks that are passed to it.

    ``class News(TaskSpider): tasks = (Task("front", start=["https://news.example/"], rules={"list": read_list}),)``

    Raises :class:`~skitter.errors.SpiderError` for two tasks of the same name.
    """

    tasks: Sequence[Task] = ()

    def __init__(self, tasks: Iterable[Task] | None = None, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.by_key: dict[str, Task] = {}
        self._reported_paused: set[str] = set()
        self._sweeper = ClosedTaskSweeper(self)
        for task in self.tasks if tasks is None else tasks:
            self.add_task(task)
        self.custom_settings = self._settings()  # type: ignore[misc]  # for the tasks of this object only

    def add_task(self, task: Task) -> None:
        """Add a task. Raises :class:`~skitter.errors.SpiderError` if its name is taken."""
        if task.key in self.by_key:
            raise SpiderError(
                f"two tasks have the name {task.name!r}", remedy="give each task a unique name", field="name"
            )
        self.by_key[task.key] = task

    def _settings(self) -> dict[str, Any]:
        """Return the settings of the class, with the limits and the expiry that the tasks need."""
        settings = dict(type(self).custom_settings)
        rules = [*settings.get("limit_rules", ()), *self._limit_rules()]
        if any(task.defaults.reloads for task in self.by_key.values()):
            # A recrawl of the job must fetch only pages of a new period.
            settings.setdefault("visited_ttl", _VISITED_TTL)
        return settings | ({"limit_rules": rules} if rules else {})

    def _limit_rules(self) -> list[dict[str, Any]]:
        return limit_rules(self.by_key.values())

    async def start(self) -> AsyncIterator[Request]:
        """Yield the start requests of all tasks."""
        for task in [*self.by_key.values()]:
            async for request in self.start_requests_of(task):
                yield request

    async def start_requests_of(self, task: Task) -> AsyncIterator[Request]:
        """Yield the start requests of one task, marked with the task and the current period."""
        if task.closed:
            return
        number = task.defaults.current_period()
        async for request in task.start_requests():
            for marked in task.defaults.apply(request, number):
                yield marked

    async def parse(
        self,
        response: Response,
        task: str = "",
        rule: str = "",
        data: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> list[Any]:
        """Read a page with the rule that its request names."""
        found = await self.find_task(task)
        if found.closed:  # the task was closed while the page was fetched
            return []
        results = await found.read(response, rule, data or {}, run_callback, **arguments)
        return found.defaults.apply_to_page(results, response)

    async def login(self, response: Response, task: str, step: str) -> list[Any]:
        """Perform a step of the login of a task: fill in the form, follow the response to it, or start the task."""
        found = await self.find_task(task)
        return found.defaults.apply_to_page(await found.step(step, response), response)

    async def find_task(self, name: str) -> Task:
        """Return a task by its key. A request without a task, such as an external seed, belongs to the only task.

        Raises :class:`~skitter.errors.SpiderError` for an unknown name.
        """
        if not name and len(self.by_key) == 1:
            return self._only_task()
        if name not in self.by_key:
            raise SpiderError(
                f"unknown task {name!r}", remedy=did_you_mean(name, self.by_key or ["-"]), field="task"
            )
        return self.by_key[name]

    def route_of(self, request: Request) -> tuple[str, ...]:
        """Return the outputs of a request's task; see :class:`~skitter.worker.routing.OutputRouter`."""
        task = self.by_key.get(request.cb_kwargs.get(TASK, ""))
        return tuple((self._only_task() if task is None else task).outputs)

    def identity_of(self, request: Request) -> IdentitySources | None:
        """Return the identity of a request's task; see :class:`~skitter.fetch.identity.contract.IdentityChooser`.

        A request without a task, such as a request for robots.txt, belongs to the first task that may fetch from its host.
        """
        if (name := request.cb_kwargs.get(TASK)) is not None:
            task = self.by_key.get(name)
        else:
            host = host_of(request.url)
            task = next((task for task in self.by_key.values() if task.may_fetch_from(host)), None)
        return None if task is None else task.identity

    def routes(self) -> Sequence[tuple[str, ...]]:
        """Return the outputs of all tasks; see :class:`~skitter.worker.routing.OutputRouter`."""
        return list(dict.fromkeys(tuple(task.outputs) for task in [*self.by_key.values()]))

    def _only_task(self) -> Task:
        return next(iter(self.by_key.values()))

    async def refresh(self) -> None:
        """Read changes of the tasks that another program made. The tasks of this class never change."""

    async def on_start(self, worker: Worker) -> None:
        """Start the sweeper of closed tasks."""
        worker.start_task(self._sweeper.run(worker))

    async def on_error(self, request: Request, error: BaseException) -> HookAction | None:
        """Do not retry requests of a closed task."""
        del error
        task = self.by_key.get(request.cb_kwargs.get(TASK, ""))
        return HookAction.DROP if task is not None and task.closed else None

    async def before_request(self, request: Request) -> HookAction | None:
        """Drop the requests of a closed task, and defer the requests of a paused task.

        Raises :class:`~skitter.errors.DeferRequest` for a paused task.
        """
        task = await self.find_task(request.cb_kwargs.get(TASK, ""))
        if task.paused and not task.closed:
            self._report_pause(task)
            host = host_of(normalize(request.url) or "")
            alone = not any(other.may_fetch_from(host) for other in self.by_key.values())
            delay = _PAUSED_HOST_DELAY if alone else _PAUSED_REQUEST_DELAY
            raise DeferRequest(f"task {task.name} is paused", delay, slot=alone)
        self._reported_paused.discard(task.key)
        if not task.closed:
            return None
        self._sweeper.sweep_again(task.key)
        return HookAction.DROP

    def _report_pause(self, task: Task) -> None:
        if task.key not in self._reported_paused:
            self._reported_paused.add(task.key)
            log.warning("task %s is paused: its requests stay queued, and the job does not finish", task.name)

    async def after_request(self, response: Response) -> HookAction | None:
        """Let a task handle a response before its status is checked."""
        arguments = {} if response.request is None else response.request.cb_kwargs
        return (await self.find_task(arguments.get(TASK, ""))).after_request(response)

    async def on_stop(self, worker: object) -> None:
        """Close the resources of the tasks in this process."""
        del worker
        for task in self.by_key.values():
            await task.close()


class SweepSchedule:
    """When to search for queued requests of one closed task. Times are seconds of a monotonic clock."""

    def __init__(self, now: float, timeout: float) -> None:
        self._timeout = timeout
        self.next_at = now
        self.gap = _FIRST_SWEEP_GAP
        self._until = now + timeout

    def record(self, began: float, ended: float, found: int) -> None:
        """Set the time of the next sweep after one that dropped ``found`` requests."""
        self.gap = _FIRST_SWEEP_GAP if found else 2 * self.gap
        if found:
            self._until = ended + self._timeout
        self.next_at = ended + max(self.gap, _SWEEP_REST_FACTOR * (ended - began))
        if self.next_at > self._until:
            self.next_at = float("inf")

    def restart(self, now: float) -> None:
        """Sweep again soon: a worker received a request of the task."""
        self._until = now + self._timeout
        self.gap = _FIRST_SWEEP_GAP
        self.next_at = min(self.next_at, now + _FIRST_SWEEP_GAP)


class ClosedTaskSweeper:
    """Drops queued requests of closed tasks while a job runs, instead of one by one when they are leased.

    One sweep is not enough: another worker may notice later that the task is closed, and the requests of a worker that
    dies return to the queue when their leases expire. So sweeps are repeated, less and less often, until all leases from
    before the closing have expired, and again when a worker receives a request of a closed task. Each sweep is done by one
    of the workers.
    """

    def __init__(self, spider: TaskSpider) -> None:
        self._spider = spider
        self._schedules: dict[str, SweepSchedule] = {}

    async def run(self, worker: Worker) -> None:
        """Sweep until the worker ends."""
        while True:
            await self._spider.refresh()
            for task in [task for task in self._spider.by_key.values() if task.closed]:
                await self._sweep(task.key, worker)
            await asyncio.sleep(POLL_INTERVAL)

    async def _sweep(self, task: str, worker: Worker) -> None:
        began = time.monotonic()
        if task not in self._schedules:
            self._schedules[task] = SweepSchedule(began, 1.5 * worker.settings.lease_seconds)
        schedule = self._schedules[task]
        if began >= schedule.next_at:
            found = await worker.drop_task(task, 0.9 * schedule.gap)
            schedule.record(began, time.monotonic(), found)

    def sweep_again(self, task: str) -> None:
        """Sweep a closed task again soon: one of its requests was leased."""
        if (schedule := self._schedules.get(task)) is not None:
            schedule.restart(time.monotonic())


# --- limits: one pool per task, or by domain; where tasks overlap, the strictest limits apply --------------


def limit_rules(tasks: Iterable[Task]) -> list[dict[str, Any]]:
    """Return the limits of tasks in the format of the setting ``limit_rules``.

    A domain that several tasks share is a separate pool with the limits of all of them. A task without domains or
    limits has no rule.
    """
    pools: dict[tuple[int, ...], tuple[list[str], Sequence[HostLimits]]] = {}
    for domain, limits in _by_domain(tasks).items():
        pools.setdefault(tuple(map(id, limits)), ([], limits))[0].append(domain)
    # The first matching rule applies to a name, so longer domains come first.
    return [
        _rule(domains, reduce(HostLimits.strictest, limits))
        for domains, limits in sorted(pools.values(), key=lambda pool: -max(map(len, pool[0])))
    ]


def domain_limits(tasks: Iterable[Task]) -> dict[str, HostLimits]:
    """Return the combined limits of all tasks of each domain. They apply to each host separately."""
    return {
        domain: reduce(HostLimits.strictest, limits) for domain, limits in sorted(_by_domain(tasks).items())
    }


def _by_domain(tasks: Iterable[Task]) -> dict[str, list[HostLimits]]:
    """Return the limits of all tasks of each domain that has limits."""
    found: dict[str, list[HostLimits]] = defaultdict(list)
    for task in tasks:
        for domain in task.bounds:
            found[normalize_domain(domain).removeprefix(EXACT)].append(task.limits)
    return {
        domain: limits
        for domain, limits in found.items()
        if any(task_limits != HostLimits() for task_limits in limits)
    }


def _rule(domains: Sequence[str], limits: HostLimits) -> dict[str, Any]:
    names = "|".join(re.escape(domain) for domain in domains)
    limit_fields = {
        name: value for name, value in msgspec.structs.asdict(limits).items() if value not in (None, ())
    }
    return {"domain_regexp": rf"(?:.+\.)?(?:{names})(?::\d+)?", "unit": "rule", **limit_fields}
