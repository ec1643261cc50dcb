"""RecipeSpider: a recipe as a spider, so that it runs like any other: any frontier, any number of workers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from skitter.frontends.recipe.follower import Follower
from skitter.frontends.recipe.plan import Plan, make_plan
from skitter.frontends.recipe.source import Source
from skitter.frontends.request_defaults import ROUND, RequestDefaults
from skitter.request import Request
from skitter.response import Response
from skitter.spider import Spider


class RecipeSpider(Spider):
    """Follows the recipe of its class. Arguments (``-a NAME=VALUE``) set the recipe's variables.

    Raises, when made, :class:`~skitter.frontends.recipe.problems.RecipeError` for a recipe that cannot be used.
    """

    source: ClassVar[Source]

    def __init__(self, **arguments: Any) -> None:
        plan = make_plan(self.source, arguments)
        super().__init__(name=plan.name)
        self._follower = Follower(plan)
        self._stamp = stamp_of(plan)
        self.allowed_domains = plan.allowed_domains
        self.custom_settings = plan.recipe.settings  # type: ignore[misc]  # of this recipe, not of all
        self.hooks = [] if plan.login is None else [plan.login]

    async def start(self) -> AsyncIterator[Request | str]:
        """Yield the first requests; with a login, its form first."""
        number = self._stamp.round_now()
        for request in await self._follower.first():
            for marked in self._stamp.on(request, number):
                yield marked

    async def parse(
        self,
        response: Response,
        page: str = "",
        data: Mapping[str, Any] | None = None,
        sitemap: int | None = None,
    ) -> list[Any]:
        """Read a page of the kind that its request names."""
        return self._marked(await self._follower.read(response, page, data or {}, sitemap), response)

    async def login(self, response: Response) -> list[Any]:
        """Fill in the form."""
        return self._marked(await self._follower.step("login", response), response)

    async def login_sent(self, response: Response) -> list[Any]:
        """Look where the form leads."""
        return self._marked(await self._follower.step("login_sent", response), response)

    async def login_check(self, response: Response) -> list[Any]:
        """Begin the crawl if the login has worked."""
        return self._marked(await self._follower.step("login_check", response), response)

    def _marked(self, given: Iterable[Any], response: Response) -> list[Any]:
        if self._stamp.does_nothing:
            return list(given)
        number = response.meta.get(ROUND, 0)
        return [marked for one in given for marked in self._stamp.on(one, number)]

    async def on_stop(self, worker: object) -> None:
        """Give back what the recipe holds in this process."""
        del worker
        await self._follower.close()


def stamp_of(plan: Plan, task: str = "", **limits: Any) -> RequestDefaults:
    """Return what a recipe puts on all its requests."""
    recipe = plan.recipe
    return RequestDefaults(
        task, home=plan.home_domains, cookies=recipe.cookies, priority=recipe.priority, reload=recipe.reload,
        **limits,
    )  # fmt: skip


def recipe_class(path: str | Path) -> type[RecipeSpider]:
    """Return the spider class of a recipe's file.

    Raises :class:`~skitter.frontends.recipe.problems.RecipeError` for a recipe that cannot be used whatever its variables.
    """
    source = Source.of_file(path)
    plan = make_plan(source, complete=False)
    members = {"source": source, "name": plan.name, "outputs": tuple(plan.recipe.outputs)}
    return type("Recipe", (RecipeSpider,), members)
