"""Follower: follows the plan of one recipe in one worker: first requests, pages, login, and the scripts' engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from skitter._utils.executor import SingleThreadExecutor
from skitter.errors import SpiderError, did_you_mean
from skitter.frontends.recipe.context import Context
from skitter.frontends.recipe.login import ASK, SENT, LoginStep
from skitter.frontends.recipe.plan import Plan
from skitter.frontends.scripting.engine import ScriptEngine
from skitter.links import Links
from skitter.request import Request
from skitter.response import Response
from skitter.worker.hooks import HookAction

type_of_gift = dict[str, Any] | Links | Request


class Follower:
    """Follows a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._scripts = ScriptEngine() if plan.uses_scripts else None
        self._thread: SingleThreadExecutor | None = None

    async def first(self) -> Iterable[Request]:
        """Return the first requests; with a login, that for its form."""
        if self.plan.login is not None:
            return [self.plan.login.first()]
        return await self._all_first()

    async def _all_first(self) -> Iterable[Request]:
        if any(rule.uses_scripts for rule in self.plan.starts):
            return await self._apart(self._requests)
        return self._requests()

    def _requests(self) -> Iterator[Request]:
        for rule in self.plan.starts:
            yield from rule.requests(self._scripts)

    async def read(
        self, response: Response, page: str, data: Mapping[str, Any], sitemap: int | None = None
    ) -> list[type_of_gift]:
        """Read a page of a kind, or the sitemap of a start.

        A request that names no kind, such as a seed from outside, leads to the first one. Raises
        :class:`~skitter.errors.SpiderError` for a kind that the recipe had when the request was made, and has no more.
        """
        page = page or next(iter(self.plan.pages))
        if sitemap is not None:
            if sitemap >= len(self.plan.starts):
                raise self._changed(f"start {sitemap + 1}")
            return list(self.plan.starts[sitemap].of_sitemap(Context(response, page, data)))
        reader = self.plan.pages.get(page)
        if reader is None:
            raise SpiderError(
                f"recipe {self.plan.name!r} has no page {page!r}", remedy=did_you_mean(page, self.plan.pages)
            )
        context = Context(response, page, data, self._scripts, reader.format)
        if reader.uses_scripts:  # which may take their time, and the worker must not wait
            return await self._apart(reader.read, context)
        return list(reader.read(context))

    async def _apart(self, call: Callable[..., Iterator[Any]], *arguments: Any) -> list[Any]:
        self._thread = self._thread or SingleThreadExecutor("recipe")
        return await self._thread.run(lambda: list(call(*arguments)))

    # --- login ---------------------------------------------------------------------------------------------

    async def step(self, name: str, response: Response) -> Iterable[Request]:
        """Do a step of the login: the callback of that name."""
        login = self._login()
        if name == ASK:
            return [login.fill_in(response)]
        if name == SENT and (further := list(login.look(response))):
            return further
        cookies = login.cookies(response)
        return [
            request.replace(cookies=cookies) if login.is_own(request.url) else request
            for request in await self._all_first()
        ]

    def after_request(self, response: Response) -> HookAction | None:
        """Let the answer to the login form come to its callback."""
        return None if self.plan.login is None else self.plan.login.after_request(response)

    def _login(self) -> LoginStep:
        if self.plan.login is None:
            raise self._changed("login")
        return self.plan.login

    def _changed(self, what: str) -> SpiderError:
        return SpiderError(
            f"recipe {self.plan.name!r} has no {what}",
            remedy="it was changed: start the job anew with --fresh",
        )

    async def close(self) -> None:
        """Give the scripts' engine and its thread back; they start again when they are needed."""
        thread, self._thread = self._thread, None
        if thread is not None and self._scripts is not None:
            await thread.run(self._scripts.close)
            thread.stop()
