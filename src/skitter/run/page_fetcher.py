"""Fetches single pages in the same way as a job, with its settings, robots.txt and redirects, and tries callbacks on them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import msgspec

from skitter.errors import FetchError, RedirectError, SkitterError, UsageError
from skitter.fetch.contract import UNCONDITIONAL, ProtocolError
from skitter.fetch.robots import Deferred
from skitter.fetch.robots_cache import RobotsCache
from skitter.frontier.records import JobInfo
from skitter.item import encode_item
from skitter.links import Links, SkippedLinks
from skitter.request import Request
from skitter.response import Response
from skitter.run.builder import JobBuilder
from skitter.run.job import JobSpec
from skitter.secrets import authorization_of_userinfo
from skitter.web.headers import REDIRECTS
from skitter.web.urls import normalize, remedy_without_scheme, split_userinfo
from skitter.worker.callbacks import CallbackRunner, describe
from skitter.worker.retry import redirected


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

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._robots.close()
        finally:
            await self._fetcher.close()

    async def fetch(self, request: Request | str) -> Response:
        """Fetch a page. Any status is a response.

        Raises :class:`~skitter.errors.FetchError` if the server does not respond, and
        :class:`~skitter.errors.UsageError` for an invalid URL or a URL that robots.txt forbids.
        """
        request = Request(request) if isinstance(request, str) else request
        url = normalize(request.url)
        if url is None or not url.startswith(("http://", "https://")):
            raise UsageError(
                f"not an absolute http(s) URL: {request.url!r}", remedy=remedy_without_scheme(request.url)
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
        policy = await self._robots.policy(url)
        if isinstance(policy, Deferred):
            raise FetchError(
                f"robots.txt of {url} is unavailable: {policy.error}",
                remedy="try again later, or use --no-robots",
            )
        if not policy.allowed(url):
            raise UsageError(f"robots.txt forbids {url}", remedy="use --no-robots to fetch it anyway")


class FoundRequest(NamedTuple):
    """A request that a callback returned."""

    url: str
    callback: str
    method: str
    refused: str
    """Reason why the crawl would refuse it; empty if the crawl would accept it."""


class CallbackTrial(NamedTuple):
    """The results of a callback for one page."""

    response: Response
    items: list[msgspec.Raw]
    requests: list[FoundRequest]


class CallbackFailed(SkitterError):
    """The callback raised an exception, or returned something unsupported."""


async def try_callback(spec: JobSpec, request: Request | None) -> CallbackTrial:
    """Fetch one page, call its callback, and return the results. Nothing is stored, and hooks do not run.

    ``request``: ``None`` for the first request of the spider. Raises :class:`~skitter.errors.FetchError`,
    :class:`CallbackFailed` and other :class:`~skitter.errors.SkitterError`.
    """
    builder = await asyncio.to_thread(JobBuilder, spec)
    if request is None:
        request = await _first_request(builder)
    # Report a missing callback before the fetch.
    CallbackRunner().find(builder.spider, _name_of_callback(request))
    async with PageFetcher(builder) as fetcher:
        response = await fetcher.fetch(request)
        items, requests = await call_back(builder, request, response)
    return CallbackTrial(response, items, list(_with_refusals(builder, requests)))


async def call_back(
    builder: JobBuilder, request: Request, response: Response
) -> tuple[list[msgspec.Raw], list[Request]]:
    """Call the callback of a request, and return its items and requests. Raises :class:`CallbackFailed`."""
    runner = CallbackRunner()
    name = _name_of_callback(request)
    function = runner.find(builder.spider, name)
    try:
        with builder.spider.stats.discarded():
            results = await runner.run(function, response, **request.cb_kwargs)
    except Exception as error:
        raise CallbackFailed(f"callback {name or 'parse'}: {describe(error)}") from error
    items: list[msgspec.Raw] = []
    requests: list[Request] = []
    for result in results:
        if isinstance(result, Request):
            requests.append(result)
        elif isinstance(result, Links):
            requests += result
        elif not isinstance(result, SkippedLinks):
            items.append(msgspec.Raw(encode_item(result)))
    return items, requests


def _name_of_callback(request: Request) -> str | None:
    return None if request.callback is None else str(request.callback)


async def _first_request(builder: JobBuilder) -> Request:
    async for request in builder.spider.start():
        return request if isinstance(request, Request) else Request(request)
    raise UsageError("the spider has no first request", remedy="name a URL", field="url")


def _with_refusals(builder: JobBuilder, requests: Sequence[Request]) -> Iterator[FoundRequest]:
    """Yield each request with the reason why a crawl would refuse it, if one page is enough to know."""
    links = builder.link_collector(JobInfo(fingerprint_seed=0, fingerprint_version=0, lease_seconds=60.0))
    fingerprints: set[bytes] = set()
    for request in requests:
        entry = links.entry(request)
        refused = entry if isinstance(entry, str) else ""
        if not isinstance(entry, str):
            if entry.dedup and entry.fingerprint in fingerprints:
                refused = "duplicate"
            fingerprints.add(entry.fingerprint)
        yield FoundRequest(request.url, str(request.callback or "parse"), request.method, refused)
