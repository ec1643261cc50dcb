"""PageFetcher: fetches single pages in the same way as a job, with its settings, robots.txt and redirects."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from skitter.errors import UsageError
from skitter.fetch.contract import UNCONDITIONAL, FetchError, ProtocolError
from skitter.fetch.robots import Deferred
from skitter.fetch.robots_cache import RobotsCache
from skitter.request import Request
from skitter.response import Response
from skitter.run.builder import JobBuilder
from skitter.run.job import JobSpec
from skitter.secrets import authorization_of_userinfo
from skitter.web.urls import normalize, split_userinfo
from skitter.worker.retry import REDIRECTS, RedirectError, redirected


class PageFetcher:
    """Fetches pages within an ``async with`` block, for a job or with settings alone."""

    def __init__(self, job: JobBuilder | Mapping[str, Any]) -> None:
        if not isinstance(job, JobBuilder):
            job = JobBuilder(
                JobSpec(job="single", spider="skitter.frontends.page_spider:PageSpider", settings=dict(job))
            )
        self._settings = job.settings
        self._guard = job.guard()
        self._fetcher = job.fetcher(guard=self._guard)
        self._robots = RobotsCache(self._fetcher, self._settings.user_agent)

    async def __aenter__(self) -> Self:
        await self._fetcher.open()
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self._robots.close()
        await self._fetcher.close()

    async def fetch(self, request: Request | str) -> Response:
        """Fetch a page, whatever its status.

        Raises :class:`~skitter.fetch.contract.FetchError` if the server does not answer, and
        :class:`~skitter.errors.UsageError` for an invalid URL or a URL that robots.txt forbids.
        """
        request = Request(request) if isinstance(request, str) else request
        url = normalize(request.url)
        if url is None or not url.startswith(("http://", "https://")):
            raise UsageError(
                f"not an absolute http(s) URL: {request.url!r}", remedy="write it like https://example.com/"
            )
        url, userinfo = split_userinfo(url)
        request = request.replace(url=url)
        if userinfo and "authorization" not in map(str.lower, request.headers):
            authorization = authorization_of_userinfo(userinfo)
            request = request.replace(headers={**request.headers, "Authorization": authorization})
        await self._guard.open_for_seeds([url])
        while True:
            await self._ask_robots(request.url)
            response = await self._fetcher.fetch(request, permit=UNCONDITIONAL)
            if response.status not in REDIRECTS and response.moved_to is None:
                return response
            try:
                request = redirected(request, response, self._settings.max_redirects)
            except RedirectError as error:
                raise ProtocolError(str(error)) from error

    async def _ask_robots(self, url: str) -> None:
        if not self._settings.robots:
            return
        verdict = await self._robots.verdict(url)
        if isinstance(verdict, Deferred):
            raise FetchError(
                f"robots.txt of {url} is unavailable: {verdict.error}",
                remedy="try again later, or use --no-robots",
            )
        if not verdict.allowed(url):
            raise UsageError(f"robots.txt forbids {url}", remedy="use --no-robots to fetch it nevertheless")
