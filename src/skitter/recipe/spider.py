"""RecipeSpider: a recipe as a spider, so that it runs like any other: any frontier, any number of workers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from skitter.errors import SpiderError
from skitter.links import Links
from skitter.own_thread import OwnThread
from skitter.recipe.context import Context
from skitter.recipe.login import LoginStep
from skitter.recipe.plan import Plan, make_plan
from skitter.recipe.problems import did_you_mean
from skitter.recipe.source import Source
from skitter.recipe.starts import StartRule
from skitter.request import Request
from skitter.response import Response
from skitter.script.engine import ScriptEngine
from skitter.spider import Spider

type_of_gift = dict[str, Any] | Links | Request


class RecipeSpider(Spider):
    """Follows the recipe of its class. Arguments (``-a NAME=VALUE``) set the recipe's variables.

    Raises, when made, :class:`~skitter.recipe.problems.RecipeError` for a recipe that cannot be used.
    """

    source: ClassVar[Source]

    def __init__(self, **arguments: Any) -> None:
        plan = make_plan(self.source, arguments)
        super().__init__(name=plan.name)
        self._plan = plan
        self.allowed_domains = plan.allowed_domains
        self.custom_settings = plan.recipe.settings  # type: ignore[misc]  # of this recipe, not of all
        self.hooks = [] if plan.login is None else [plan.login]
        self._scripts = ScriptEngine() if plan.uses_scripts else None
        self._thread: OwnThread | None = None

    @property
    def plan(self) -> Plan:
        """The checked recipe."""
        return self._plan

    async def start(self) -> AsyncIterator[Request | str]:
        """Yield the first requests; with a login, its form first."""
        if self._plan.login is not None:
            yield self._plan.login.first()
            return
        for request in self._first_requests():
            yield request

    def _first_requests(self) -> Iterator[Request]:
        for rule in self._plan.starts:
            yield from rule.requests()

    async def parse(
        self,
        response: Response,
        page: str = "",
        data: Mapping[str, Any] | None = None,
        sitemap: int | None = None,
    ) -> list[type_of_gift]:
        """Read a page of the kind that its request names."""
        if sitemap is not None:
            return list(self._start(sitemap).of_sitemap(Context(response, page, data or {})))
        reader = self._plan.pages.get(page)
        if reader is None:
            raise SpiderError(
                f"recipe {self.name!r} has no page {page!r}", remedy=did_you_mean(page, self._plan.pages)
            )
        context = Context(response, page, data or {}, self._scripts, reader.format)
        if reader.uses_scripts:  # which may take their time, and the worker must not wait
            self._thread = self._thread or OwnThread("recipe")
            return await self._thread.run(_all, reader.read, context)
        return list(reader.read(context))

    def _start(self, place: int) -> StartRule:
        if place >= len(self._plan.starts):
            raise SpiderError(
                f"recipe {self.name!r} has no start {place + 1}", remedy="start the job anew with --fresh"
            )
        return self._plan.starts[place]

    # --- login ---------------------------------------------------------------------------------------------

    def login(self, response: Response) -> Request:
        """Fill in the form."""
        return self._login_step().fill_in(response)

    def login_sent(self, response: Response) -> list[Request]:
        """Look where the form leads."""
        further = list(self._login_step().look(response))
        return further or self.login_check(response)

    def login_check(self, response: Response) -> list[Request]:
        """Begin the crawl if the login has worked."""
        step = self._login_step()
        cookies = step.cookies(response)
        return [
            request.replace(cookies=cookies) if step.is_own(request.url) else request
            for request in self._first_requests()
        ]

    def _login_step(self) -> LoginStep:
        if self._plan.login is None:
            raise SpiderError(
                f"recipe {self.name!r} has no login", remedy="it was changed: start the job anew with --fresh"
            )
        return self._plan.login

    async def on_stop(self, worker: object) -> None:
        """Give the JavaScript engine and its thread back."""
        del worker
        thread, self._thread = self._thread, None
        if thread is not None and self._scripts is not None:
            await thread.run(self._scripts.close)
            thread.stop()


def _all(read: Callable[[Context], Iterator[type_of_gift]], context: Context) -> list[type_of_gift]:
    return list(read(context))


def recipe_class(path: str | Path) -> type[RecipeSpider]:
    """Return the spider class of a recipe's file.

    Raises :class:`~skitter.recipe.problems.RecipeError` for a recipe that cannot be used whatever its variables.
    """
    source = Source.of_file(path)
    plan = make_plan(source, complete=False)
    members = {"source": source, "name": plan.name, "outputs": tuple(plan.recipe.outputs)}
    return type("Recipe", (RecipeSpider,), members)
