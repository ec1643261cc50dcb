"""How the pages of a kind are loaded: their fetcher, and what a browser does with them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from skitter.browsing import Browsing, browsing_of
from skitter.errors import RequestError
from skitter.frontends.recipe.compile_context import CompileContext
from skitter.frontends.recipe.model import RecipePage
from skitter.request import Request


class PageLoading(msgspec.Struct, frozen=True):
    """The fetcher and the browser options of a kind of page."""

    fetcher: str
    browsing: Browsing | None


def page_loading(page: RecipePage, compile_context: CompileContext) -> PageLoading | None:
    """Return how the pages of a kind are loaded; ``None``: as the job says. Invalid actions become problems."""
    if not (page.wait_for or page.actions):
        return PageLoading(page.fetch, None) if page.fetch else None
    if page.fetch == "http":
        compile_context.problem(
            "needs a browser", "write fetch: browser", "actions" if page.actions else "wait_for"
        )
    wait_for = page.wait_for if isinstance(page.wait_for, str) else {"do": "wait", **page.wait_for}
    try:
        browsing = browsing_of({"wait_for": wait_for, "actions": page.actions})
    except RequestError as error:
        compile_context.problem(str(error), error.remedy, "actions" if page.actions else "wait_for")
        return None
    return PageLoading(page.fetch or "browser", browsing)


class LoadingHook:
    """Gives each request the fetcher and the browser options of its kind of page, unless it has its own."""

    def __init__(self, loading: Mapping[str, PageLoading], first_page: str) -> None:
        self._loading = loading
        self._first_page = first_page

    def before_request(self, request: Request) -> Request | None:
        """Return the request with its fetcher, if its kind of page names one."""
        loading = self._loading.get(request.cb_kwargs.get("page") or self._first_page)
        if loading is None:
            return None
        browsing = loading.browsing if request.browsing is None else request.browsing
        return request.replace(fetcher=request.fetcher or loading.fetcher, browsing=browsing)
