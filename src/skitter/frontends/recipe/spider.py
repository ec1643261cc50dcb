"""RecipeSpider: a recipe as a spider, so that it runs like any other: any frontier, any number of workers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from skitter._utils.executor import SingleThreadExecutor
from skitter.errors import SpiderError, did_you_mean
from skitter.frontends.recipe.compiled_recipe import CompiledRecipe, compile_recipe
from skitter.frontends.recipe.forms import ASK, SENT, LoginStep
from skitter.frontends.recipe.page_context import PageContext
from skitter.frontends.recipe.source import RecipeSource
from skitter.frontends.request_defaults import RECRAWL, RequestDefaults
from skitter.frontends.scripting.engine import ScriptEngine
from skitter.links import Links
from skitter.request import Request
from skitter.response import Response
from skitter.spider import Spider
from skitter.worker.hooks import HookAction

RecipeOutput = dict[str, Any] | Links | Request


class RecipeRunner:
    """Follows a compiled."""

    def __init__(self, compiled: CompiledRecipe) -> None:
        self.compiled = compiled
        self._scripts = ScriptEngine() if compiled.uses_scripts else None
        self._thread: SingleThreadExecutor | None = None

    async def first(self) -> Iterable[Request]:
        """Return the first requests; with a login, that for its form."""
        if self.compiled.login is not None:
            return [self.compiled.login.first()]
        return await self._all_first()

    async def _all_first(self) -> Iterable[Request]:
        if any(rule.uses_scripts for rule in self.compiled.starts):
            return await self._apart(self._requests)
        return self._requests()

    def _requests(self) -> Iterator[Request]:
        for rule in self.compiled.starts:
            yield from rule.requests(self._scripts)

    async def read(
        self, response: Response, page: str, data: Mapping[str, Any], sitemap: int | None = None
    ) -> list[RecipeOutput]:
        """Read a page of a kind, or the sitemap of a start.

        A request that names no kind, such as a seed from outside, leads to the first one. Raises
        :class:`~skitter.errors.SpiderError` for a kind that the recipe had when the request was made, and has no more.
        """
        page = page or next(iter(self.compiled.pages))
        if sitemap is not None:
            if sitemap >= len(self.compiled.starts):
                raise self._changed(f"start {sitemap + 1}")
            return list(self.compiled.starts[sitemap].of_sitemap(PageContext(response, page, data)))
        reader = self.compiled.pages.get(page)
        if reader is None:
            raise SpiderError(
                f"recipe {self.compiled.name!r} has no page {page!r}",
                remedy=did_you_mean(page, self.compiled.pages),
            )
        context = PageContext(response, page, data, self._scripts, reader.format)
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
        return None if self.compiled.login is None else self.compiled.login.after_request(response)

    def _login(self) -> LoginStep:
        if self.compiled.login is None:
            raise self._changed("login")
        return self.compiled.login

    def _changed(self, what: str) -> SpiderError:
        return SpiderError(
            f"recipe {self.compiled.name!r} has no {what}",
            remedy="it was changed: start the job anew with --fresh",
        )

    async def close(self) -> None:
        """Give the scripts' engine and its thread back; they start again when they are needed."""
        thread, self._thread = self._thread, None
        if thread is not None and self._scripts is not None:
            await thread.run(self._scripts.close)
            thread.stop()


class RecipeSpider(Spider):
    """Follows the recipe of its class. Arguments (``-a NAME=VALUE``) set the recipe's variables.

    Raises, when made, :class:`~skitter.frontends.recipe.source.RecipeError` for a recipe that cannot be used.
    """

    source: ClassVar[RecipeSource]

    def __init__(self, **arguments: Any) -> None:
        compiled = compile_recipe(self.source, arguments)
        super().__init__(name=compiled.name)
        self._runner = RecipeRunner(compiled)
        self._defaults = request_defaults_of(compiled)
        self.allowed_domains = compiled.allowed_domains
        self.custom_settings = compiled.recipe.settings  # type: ignore[misc]  # of this recipe, not of all
        self.hooks = [] if compiled.login is None else [compiled.login]

    async def start(self) -> AsyncIterator[Request | str]:
        """Yield the first requests; with a login, its form first."""
        number = self._defaults.current_period()
        for request in await self._runner.first():
            for marked in self._defaults.apply(request, number):
                yield marked

    async def parse(
        self,
        response: Response,
        page: str = "",
        data: Mapping[str, Any] | None = None,
        sitemap: int | None = None,
    ) -> list[Any]:
        """Read a page of the kind that its request names."""
        return self._marked(await self._runner.read(response, page, data or {}, sitemap), response)

    async def login(self, response: Response) -> list[Any]:
        """Fill in the form."""
        return self._marked(await self._runner.step("login", response), response)

    async def login_sent(self, response: Response) -> list[Any]:
        """Look where the form leads."""
        return self._marked(await self._runner.step("login_sent", response), response)

    async def login_check(self, response: Response) -> list[Any]:
        """Begin the crawl if the login has worked."""
        return self._marked(await self._runner.step("login_check", response), response)

    def _marked(self, given: Iterable[Any], response: Response) -> list[Any]:
        if self._defaults.is_empty:
            return list(given)
        number = response.meta.get(RECRAWL, 0)
        return [marked for one in given for marked in self._defaults.apply(one, number)]

    async def on_stop(self, worker: object) -> None:
        """Give back what the recipe holds in this process."""
        del worker
        await self._runner.close()


def request_defaults_of(compiled: CompiledRecipe, **fields: Any) -> RequestDefaults:
    """Return the defaults for all requests of a recipe. ``fields``: further fields of the defaults."""
    recipe = compiled.recipe
    return RequestDefaults(
        cookie_domains=compiled.home_domains, cookies=recipe.cookies, priority=recipe.priority,
        reload=recipe.reload, **fields,
    )  # fmt: skip


def recipe_class(path: str | Path) -> type[RecipeSpider]:
    """Return the spider class of a recipe's file.

    Raises :class:`~skitter.frontends.recipe.source.RecipeError` for a recipe that cannot be used whatever its variables.
    """
    source = RecipeSource.of_file(path)
    compiled = compile_recipe(source, complete=False)
    members = {"source": source, "name": compiled.name, "outputs": tuple(compiled.recipe.outputs)}
    return type("Recipe", (RecipeSpider,), members)
