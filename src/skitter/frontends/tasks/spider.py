"""TaskSpider: the spider of a job that holds many tasks."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from skitter.errors import DeferRequest, SpiderError, did_you_mean
from skitter.frontends.request_defaults import ROUND
from skitter.frontends.tasks.closing import Closing
from skitter.frontends.tasks.limits import limit_rules
from skitter.frontends.tasks.task import Task
from skitter.frontier.group_filter import TASK
from skitter.request import Request
from skitter.response import Response
from skitter.spider import Spider
from skitter.web.urls import host_of, normalize
from skitter.worker.callbacks import run_callback
from skitter.worker.hooks import HookAction

if TYPE_CHECKING:
    from skitter.worker.worker import Worker

log = logging.getLogger("skitter.frontends.tasks")
_FOR_EVER = 100 * 365 * 86_400.0
_LOOK_AGAIN = 5.0
"""Seconds for which a host is left alone on which only paused tasks are: a task goes on so soon after it is resumed."""
_PUT_BACK = 60.0
"""Seconds for which a request of a paused task is put back where other tasks wait for the same host: each costs the host a
turn, so it is not done more often."""


class TaskSpider(Spider):
    """Runs the tasks of its class, or those it is given.

    ``class News(TaskSpider): tasks = (Task("front", root=["https://news.example/"], trunk={"list": read_list}),)``

    Raises :class:`~skitter.errors.SpiderError` for two tasks of one name.
    """

    tasks: Sequence[Task] = ()

    def __init__(self, tasks: Iterable[Task] | None = None, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.by_name: dict[str, Task] = {}
        self._told_paused: set[str] = set()
        self._closing = Closing(lambda: [*self.by_name.values()], self.look)
        for task in self.tasks if tasks is None else tasks:
            self.add_task(task)
        self.custom_settings = self._settings()  # type: ignore[misc]  # of these tasks, not of the class

    def add_task(self, task: Task) -> None:
        """Add a task. Raises :class:`~skitter.errors.SpiderError` if its name is taken."""
        if task.name in self.by_name:
            raise SpiderError(f"there are two tasks {task.name!r}", remedy="give each a name of its own")
        self.by_name[task.name] = task

    def _settings(self) -> dict[str, Any]:
        """Return the settings of the class with what the tasks ask for."""
        own = dict(type(self).custom_settings)
        rules = [*own.get("limit_rules", ()), *self._limit_rules()]
        if any(task.stamp.reloads for task in self.by_name.values()):
            own.setdefault("visited_ttl", _FOR_EVER)  # a re-crawl fetches what reloads, and nothing else
        return own | ({"limit_rules": rules} if rules else {})

    def _limit_rules(self) -> list[dict[str, Any]]:
        return limit_rules(self.by_name.values())

    async def start(self) -> AsyncIterator[Request]:
        """Yield the roots of all tasks."""
        for task in [*self.by_name.values()]:
            async for request in self.roots_of(task):
                yield request

    async def roots_of(self, task: Task) -> AsyncIterator[Request]:
        """Yield the roots of one task, marked as its own, for the period that it is now."""
        if task.closed:
            return
        number = task.stamp.round_now()
        async for request in task.roots():
            for marked in task.stamp.on(request, number):
                yield marked

    async def parse(
        self,
        response: Response,
        task: str = "",
        rule: str = "",
        data: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> list[Any]:
        """Read a page by the rule that its request names."""
        found = await self.find_task(task)
        if found.closed:  # since it was fetched
            return []
        return _marked(
            found, await found.read(response, rule, data or {}, run_callback, **arguments), response
        )

    async def login(self, response: Response, task: str) -> list[Any]:
        """Fill in the form of a task's login."""
        return await self._step("login", response, task)

    async def login_sent(self, response: Response, task: str) -> list[Any]:
        """Look where the form of a task's login leads."""
        return await self._step("login_sent", response, task)

    async def login_check(self, response: Response, task: str) -> list[Any]:
        """Begin a task if its login has worked."""
        return await self._step("login_check", response, task)

    async def _step(self, name: str, response: Response, task: str) -> list[Any]:
        found = await self.find_task(task)
        return _marked(found, await found.step(name, response), response)

    async def find_task(self, name: str) -> Task:
        """Return a task; a request that names none, such as a seed from outside, belongs to the only one.

        Raises :class:`~skitter.errors.SpiderError` if there is none of that name.
        """
        if not name and len(self.by_name) == 1:
            return self._only_task()
        if name not in self.by_name:
            raise SpiderError(f"there is no task {name!r}", remedy=did_you_mean(name, self.by_name or ["-"]))
        return self.by_name[name]

    def route_of(self, request: Request) -> tuple[str, ...]:
        """Return the outputs of a request's task; see :class:`~skitter.worker.routing.OutputRouter`."""
        task = self.by_name.get(request.cb_kwargs.get("task", ""))
        return self._only_task().outputs if task is None else task.outputs

    def routes(self) -> Sequence[tuple[str, ...]]:
        """Return the outputs of all tasks; see :class:`~skitter.worker.routing.OutputRouter`."""
        return list(dict.fromkeys(task.outputs for task in [*self.by_name.values()]))

    def _only_task(self) -> Task:
        return next(iter(self.by_name.values()))

    async def look(self) -> None:
        """Learn what has become of the tasks, where somebody else says so."""

    async def on_start(self, worker: Worker) -> None:
        """Begin to look after the tasks that are closed."""
        worker.start_task(self._closing.run(worker))

    async def on_error(self, request: Request, error: BaseException) -> HookAction | None:
        """Let nothing of a closed task be tried again."""
        del error
        task = self.by_name.get(request.cb_kwargs.get(TASK, ""))
        return HookAction.DROP if task is not None and task.closed else None

    async def before_request(self, request: Request) -> HookAction | None:
        """Drop the requests of a task that was closed, and put off those of one that is paused.

        Raises :class:`~skitter.errors.DeferRequest` for the latter.
        """
        task = await self.find_task(request.cb_kwargs.get("task", ""))
        if task.paused and not task.closed:
            self._tell_of_pause(task)
            host = host_of(normalize(request.url) or "")
            alone = not any(other.may_fetch_from(host) for other in self.by_name.values())
            raise DeferRequest(f"task {task.name} is paused", _LOOK_AGAIN if alone else _PUT_BACK, slot=alone)
        self._told_paused.discard(task.name)
        if not task.closed:
            return None
        self._closing.meet(task.name)
        return HookAction.DROP

    def _tell_of_pause(self, task: Task) -> None:
        if task.name not in self._told_paused:
            self._told_paused.add(task.name)
            log.warning("task %s is paused: its requests wait, and so does the end of the job", task.name)

    async def after_request(self, response: Response) -> HookAction | None:
        """Let a task decide over a response."""
        words = {} if response.request is None else response.request.cb_kwargs
        return (await self.find_task(words.get("task", ""))).after_request(response)

    async def on_stop(self, worker: object) -> None:
        """Give back what the tasks hold in this process."""
        del worker
        for task in self.by_name.values():
            await task.close()


def _marked(task: Task, given: Iterable[Any], response: Response) -> list[Any]:
    number = response.meta.get(ROUND, 0)
    return [marked for one in given for marked in task.stamp.on(one, number)]
