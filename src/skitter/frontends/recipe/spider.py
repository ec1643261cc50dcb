"""RecipeRunner runs a compiled recipe in one worker; RecipeSpider is the spider of a recipe."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from skitter._utils.concurrency import SingleThreadExecutor
from skitter.errors import SpiderError, did_you_mean
from skitter.frontends.recipe.compiled_recipe import CompiledRecipe, compile_recipe
from skitter.frontends.recipe.forms import ASK, SENT
from skitter.frontends.recipe.page_context import PageContext
from skitter.frontends.recipe.pages import LoadingHook
from skitter.frontends.recipe.source import RecipeSource
from skitter.frontends.request_defaults import RequestDefaults
from skitter.frontends.scripting.engine import ScriptEngine
from skitter.links import Links
from skitter.request import Request
from skitter.response import Response
from skitter.spider import Spider
from skitter.worker.hooks import HookAction

RecipeOutput = dict[str, Any] | Links | Request
"""A result of reading a page."""


class RecipeRunner:
    """Runs a compiled recipe in one worker: start requests, pages, login, and the engine of its scripts."""

    def __init__(self, compiled: CompiledRecipe) -> None:
        self.compiled = compiled
        self._scripts = ScriptEngine() if compiled.uses_scripts else None
        self._thread: SingleThreadExecutor | None = None

    async def first(self) -> Iterable[Request]:
        """Return the start requests. With a login: the request for its form."""
        if self.compiled.login is not None:
            return [self.compiled.login.first()]
        return await self._all_first()

    async def _all_first(self) -> Iterable[Request]:
        if any(rule.uses_scripts for rule in self.compiled.starts):
            return await self._in_thread(self._requests)
        return self._requests()

    def _requests(self) -> Iterator[Request]:
        for rule in self.compiled.starts:
            yield from rule.requests(self._scripts)

    async def read(
        self,
        response: Response,
        page: str,
        data: Mapping[str, Any],
        sitemap: int | None = None,
        *,
        uses_lastmod: bool = False,
    ) -> list[RecipeOutput]:
        """Read a page of a kind, or the sitemap of a start.

        A request without a kind, such as an external seed, leads to the first kind. Raises
        :class:`~skitter.errors.SpiderError` for a kind that the recipe no longer has.
        """
        page = page or next(iter(self.compiled.pages))
        if sitemap is not None:
            if sitemap >= len(self.compiled.starts):
                raise self._changed(f"start {sitemap + 1}")
            context = PageContext(response, page, data)
            return list(self.compiled.starts[sitemap].of_sitemap(context, uses_lastmod=uses_lastmod))
        reader = self.compiled.pages.get(page)
        if reader is None:
            raise SpiderError(
                f"recipe {self.compiled.name!r} has no page {page!r}",
                remedy=did_you_mean(page, self.compiled.pages),
                field="page",
            )
        context = PageContext(response, page, data, self._scripts, reader.format)
        if reader.is_slow:
            return await self._in_thread(reader.read, context)
        return list(reader.read(context))

    async def _in_thread(self, call: Callable[..., Iterator[Any]], *arguments: Any) -> list[Any]:
        self._thread = self._thread or SingleThreadExecutor("recipe")
        return await self._thread.run(lambda: list(call(*arguments)))

    # --- login ---------------------------------------------------------------------------------------------

    async def step(self, name: str, response: Response) -> Iterable[Request]:
        """Perform a step of the login; see :data:`~skitter.frontends.recipe.forms.ASK`."""
        login = self.compiled.login
        if login is None:
            raise self._changed("login")
        if name == ASK:
            return [login.fill_in(response)]
        if name == SENT and (further := list(login.next_page(response))):
            return further
        cookies = login.cookies(response)
        return [
            request.replace(cookies=cookies) if login.is_own(request.url) else request
            for request in await self._all_first()
        ]

    def after_request(self, response: Response) -> HookAction | None:
        """Pass the response to the login form to its callback."""
        return None if self.compiled.login is None else self.compiled.login.after_request(response)

    def _changed(self, missing: str) -> SpiderError:
        return SpiderError(
            f"recipe {self.compiled.name!r} has no {missing}, although a stored request names it",
            remedy="the recipe has changed: start the job again with --fresh",
        )

    async def close(self) -> None:
        """Close the script engine and its thread. They start again when they are needed."""
        thread, self._thread = self._thread, None
        if thread is not None and self._scripts is not None:
            await thread.run(self._scripts.close)
            thread.stop()


class RecipeSpider(Spider):
    """Runs the recipe of its class. Arguments (``-a NAME=VALUE``) set the recipe's variables.

    Raises :class:`~skitter.frontends.recipe.source.RecipeError` for an invalid recipe.
    """

    source: ClassVar[RecipeSource]

    def __init__(self, **arguments: Any) -> None:
        compiled = compile_recipe(self.source, arguments)
        super().__init__(name=compiled.name)
        self._runner = RecipeRunner(compiled)
        self._defaults = request_defaults_of(compiled)
        self.allowed_domains = compiled.allowed_domains
        self.custom_settings = compiled.recipe.settings  # type: ignore[misc]  # for this recipe only
        self.hooks = [] if compiled.login is None else [compiled.login]
        if compiled.loading:
            self.hooks.append(LoadingHook(compiled.loading, next(iter(compiled.pages))))

    async def start(self) -> AsyncIterator[Request | str]:
        """Yield the start requests. With a login: the request for its form."""
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
        uses_lastmod = sitemap is not None and self.settings.use_lastmod
        results = await self._runner.read(response, page, data or {}, sitemap, uses_lastmod=uses_lastmod)
        return self._defaults.apply_to_page(results, response)

    async def login(self, response: Response, step: str) -> list[Any]:
        """Perform a step of the login: fill in the form, follow the response to it, or start the crawl."""
        return self._defaults.apply_to_page(await self._runner.step(step, response), response)

    async def on_stop(self, worker: object) -> None:
        """Close the resources of the recipe in this process."""
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

    Raises :class:`~skitter.frontends.recipe.source.RecipeError` for a recipe that is invalid for all values of its
    variables.
    """
    source = RecipeSource.of_file(path)
    compiled = compile_recipe(source, complete=False)
    members = {"source": source, "name": compiled.name, "outputs": tuple(compiled.recipe.outputs)}
    return type("Recipe", (RecipeSpider,), members)
