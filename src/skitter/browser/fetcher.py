"""BrowserFetcher: loads pages in Chromium, several at a time, and replaces used-up or broken tabs and browsers."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import signal
import time
import uuid
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from skitter._utils.concurrency import cancel_and_wait
from skitter.browser.errors import BrowserGone, PageCrashed, PageLimit, first_line, is_gone, network_error
from skitter.browser.executable import check_installed, check_settings
from skitter.browser.pool import ContextPool, TabContext
from skitter.browser.process import BrowserProcess, delete_left_folders
from skitter.browser.tab import PageLoad, Tab
from skitter.browsing import PLAIN_BROWSING, Pdf, Screenshot
from skitter.errors import FetchError
from skitter.fetch.address_guard import AddressGuard
from skitter.fetch.contract import (
    UNCONDITIONAL,
    FetcherCapabilities,
    HeaderHook,
    SendPermit,
    TimedOut,
    TooLate,
    UnsendableRequest,
)
from skitter.fetch.cookie_jar import CookieJar
from skitter.fetch.identity.contract import SourceContext
from skitter.fetch.proxy_routes import ProxyRoutes
from skitter.fetch.resolver import Resolver, make_resolver
from skitter.request import Request, fingerprint
from skitter.response import Response
from skitter.secrets import authorizations
from skitter.web.urls import normalize

log = logging.getLogger("skitter.browser")

_TAB_USES = 50
"""Number of pages after which a tab is replaced."""
_TAB_CLOSE_TIMEOUT = 5.0
_MONITOR_INTERVAL = 0.5
_CRASH_DELAY = 30.0
"""Seconds within which the browser reports the end of a renderer, even on a busy machine."""


class BrowserFetcher:
    """Loads pages in Chromium. The browser starts with the first page. Implements :class:`Fetcher`.

    Does not follow redirects. Cookies arrive as a ``Cookie`` header, and leave as ``Set-Cookie`` headers.
    """

    def __init__(self, context: SourceContext) -> None:
        self._settings = settings = context.settings
        self._guard = context.guard
        self._cookies = context.cookies
        self._proxies = ProxyRoutes(settings.proxy, os.environ)
        self._authorizations = authorizations(settings.credentials)
        self._resolver: Resolver | None = None
        self.capabilities = FetcherCapabilities(
            shows_headers=True, renders_pages=True, concurrency=settings.browser_pages
        )
        self._permits = asyncio.Semaphore(settings.browser_pages)
        """Limits the open pages. A page counts until its tab can be used again."""
        self._starting = asyncio.Lock()
        self._process: BrowserProcess | None = None
        """The browser for new pages."""
        self._pools: dict[BrowserProcess, ContextPool] = {}
        """The contexts of each browser that has not been closed."""
        self._running: set[asyncio.Task[Any]] = set()
        self._monitor: asyncio.Task[None] | None = None
        self._kills: dict[int, float] = {}
        """When renderers were killed because of their memory, until a page has failed for that reason."""
        self._closed = False
        self._users = 0

    async def open(self) -> None:
        """Check that the browser is installed, and that it supports the settings.

        Raises :class:`~skitter.errors.UsageError` and :class:`~skitter.errors.SettingsError`.
        """
        check_settings(self._settings)
        await asyncio.to_thread(check_installed, self._settings)
        await asyncio.to_thread(delete_left_folders)
        if not self._users:
            # Closing may have lost some permits.
            self._permits = asyncio.Semaphore(self._settings.browser_pages)
        self._users += 1
        self._closed = False
        if self._resolver is None:
            self._resolver = make_resolver(self._settings)

    async def close(self) -> None:
        """End the browser, with all pages, when all users of the fetcher have closed it."""
        self._users -= 1
        if self._users > 0:
            return
        self._closed = True
        if self._monitor is not None:
            await cancel_and_wait([self._monitor])
            self._monitor = None
        async with self._starting:  # wait for a browser that is starting, to close it as well
            self._process = None
        await asyncio.gather(*(process.close() for process in self._pools))
        await cancel_and_wait(self._running)
        await asyncio.gather(*(pool.close() for pool in self._pools.values()))
        self._pools.clear()
        resolver, self._resolver = self._resolver, None
        if resolver is not None:
            await resolver.close()

    async def fetch(
        self,
        request: Request,
        *,
        permit: SendPermit = UNCONDITIONAL,
        on_headers: HeaderHook | None = None,
    ) -> Response:
        url = normalize(request.url)
        if url is None or not url.startswith(("http://", "https://")):
            raise UnsendableRequest(
                f"not an http(s) URL: {request.url!r}", remedy="use an absolute http(s) URL", field="url"
            )
        if url != request.url:
            request = request.replace(url=url)
        proxy = self._proxies.proxy_for(request)
        if proxy:
            await self._guard.check_url_by_now(url)  # a literal address; the proxy looks up names
            request = request.replace(proxy=proxy)
        jar = CookieJar() if self._cookies is None else await self._cookies.jar_for(request)
        await self._permits.acquire()
        if not permit.may_send():
            self._permits.release()
            raise TooLate("the request missed its time slot while it waited for a page of the browser")
        try:
            process, pool = await self._browser()
        except BaseException:
            self._permits.release()
            raise
        load = PageLoad(request, request.browsing or PLAIN_BROWSING, permit, on_headers, jar)
        return await self._fetch(load, process, pool)

    async def _fetch(self, load: PageLoad, process: BrowserProcess, pool: ContextPool) -> Response:
        limit = load.request.timeout or self._settings.page_timeout
        opened: _OpenTab | None = None
        healthy = False
        try:
            async with asyncio.timeout(limit):
                opened = await self._open_tab(process, pool, load.request)
                response = await opened.tab.load(load)
            response.captured = await self._save(response.captured, load)
            healthy = True
        except TimeoutError:
            if opened is None:  # no tab has opened: the browser may hang
                process.retired = True
            raise TimedOut(f"the page was not complete after {limit:g} s", field="page_timeout") from None
        except Exception as error:  # whatever Playwright raises
            failure = self._failure_of(load, error)
            if failure is error:
                raise
            raise failure from error
        finally:
            if opened is None:
                self._permits.release()
            elif not (healthy and load.browsing.keep_page and response.moved_to is None):
                self._start(self.release_tab(opened, healthy=healthy))
        if load.browsing.keep_page and response.moved_to is None:
            opened.tab.start_callback()
            response.page = opened.tab.page
            response.open_page = _CallbackPage(self, opened)
        return response

    def _failure_of(self, load: PageLoad, error: Exception) -> Exception:
        """Return the error of a page: that of its header hook, or a :class:`FetchError`."""
        if error is load.hook_error:
            return error
        if isinstance(error, FetchError):
            return self._judged(error)
        if is_gone(error):
            return self._judged(network_error(error))
        return FetchError(f"the browser reports: {first_line(error)}")

    def _judged(self, error: FetchError) -> FetchError:
        """Return the error of a page whose process has ended, depending on why it has ended."""
        oldest = time.monotonic() - _CRASH_DELAY
        self._kills = {pid: moment for pid, moment in self._kills.items() if moment > oldest}
        if isinstance(error, PageCrashed) and self._kills:
            self._kills.popitem()
            return PageLimit(
                f"the page needs more than {self._settings.page_memory} bytes of memory", field="page_memory"
            )
        return error

    # --- browser ---------------------------------------------------------------------------------------

    @staticmethod
    async def _open_tab(process: BrowserProcess, pool: ContextPool, request: Request) -> _OpenTab:
        process.users += 1
        process.pages += 1
        try:
            context, tab = await pool.acquire(request)
        except BaseException as error:
            process.users -= 1
            # If a driver is killed at the wrong moment, its browser still seems to be connected.
            process.retired = process.retired or is_gone(error)
            raise
        return _OpenTab(process, pool, context, tab)

    async def _browser(self) -> tuple[BrowserProcess, ContextPool]:
        """Return the browser for a new page. Start a browser if there is none."""
        async with self._starting:
            if self._closed:
                raise BrowserGone("the fetcher was closed")
            process = self._process
            if process is not None:
                pool = self._pools.get(process)
                if pool is not None and process.is_alive and not process.retired:
                    if process.pages < self._settings.browser_max_pages:
                        return process, pool
                    process.retired = True
                self._start(self._end(process))
            self._process = process = await BrowserProcess.start(self._settings)
            self._pools[process] = pool = ContextPool(
                process, self._settings, self._authorizations, self._guard, self._resolver
            )
            if self._monitor is None:
                self._monitor = asyncio.create_task(self._watch_memory())
            return process, pool

    async def _end(self, process: BrowserProcess) -> None:
        """Close a browser when its last page has ended."""
        while process.users and process.is_alive:  # noqa: ASYNC110 - rare, and nothing depends on the moment
            await asyncio.sleep(_MONITOR_INTERVAL)
        await process.close()
        pool = self._pools.get(process)
        if pool is not None:
            await pool.close()
            self._pools.pop(process, None)  # only now: if this call is cancelled, `close` finishes its work

    async def release_tab(self, opened: _OpenTab, *, healthy: bool) -> None:
        """Return a tab to its context, or close it. If that fails, replace the browser."""
        process, tab = opened.process, opened.tab
        try:
            async with asyncio.timeout(_TAB_CLOSE_TIMEOUT):
                if not healthy or tab.uses >= _TAB_USES or tab.has_opened_window or not process.is_alive:
                    await opened.pool.discard(opened.context, tab)
                else:
                    await tab.clear()
                    await opened.pool.release(opened.context, tab)
        except Exception as error:  # noqa: BLE001 - whatever Playwright raises
            if process.is_alive and not is_gone(error):
                log.warning("the browser does not respond; it is replaced")
                process.retired = True
                self._start(process.close())
        finally:
            process.users -= 1
            self._permits.release()  # only now: otherwise the next page would open another tab

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _watch_memory(self) -> None:
        """Kill renderers that exceed the limit of a page, and retire a browser that exceeds its own limit."""
        while True:
            await asyncio.sleep(_MONITOR_INTERVAL)
            process = self._process
            if process is None or not process.users:
                continue
            sizes = await asyncio.to_thread(process.memory)
            for pid in await asyncio.to_thread(
                BrowserProcess.renderers_above, sizes, self._settings.page_memory
            ):
                self._kills[pid] = time.monotonic()
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if sum(sizes.values()) > self._settings.browser_memory and not process.retired:
                log.info("the browser uses %d MB; it is replaced", sum(sizes.values()) // 2**20)
                process.retired = True

    # --- files -----------------------------------------------------------------------------------------

    async def _save(self, captured: Any, load: PageLoad) -> Any:
        """Store pictures and PDFs in files, if there is a folder for them."""
        folder = self._settings.capture_dir
        if folder is None or not captured:
            return captured
        kinds = {action.name: ".pdf" if isinstance(action, Pdf) else ".png"
                 for action in load.browsing.actions if isinstance(action, (Screenshot, Pdf))}  # fmt: skip
        request, saved = load.request, dict(captured)
        # The same URL may be fetched with other actions, or in another session.
        identity = f"{request.url}\0{fingerprint(request, 0)!r}\0{request.session}\0{load.browsing}"
        for name, value in captured.items():
            if name in kinds and isinstance(value, bytes):
                digest = hashlib.blake2b(f"{identity}\0{name}".encode(), digest_size=10).hexdigest()
                path = Path(folder) / f"{digest}-{name}{kinds[name]}"
                await asyncio.to_thread(_write, path, value)
                saved[name] = str(path)
        return saved


_SHARED: WeakValueDictionary[AddressGuard, BrowserFetcher] = WeakValueDictionary()


def shared_browser(context: SourceContext) -> BrowserFetcher:
    """Return the browser fetcher of a worker, so that all fetchers that need a browser share one.

    Each worker has its own guard, which identifies the worker.
    """
    fetcher = _SHARED.get(context.guard)
    if fetcher is None:
        fetcher = _SHARED[context.guard] = BrowserFetcher(context)
    return fetcher


class _OpenTab(NamedTuple):
    """A tab in use, with its context and its browser."""

    process: BrowserProcess
    pool: ContextPool
    context: TabContext
    tab: Tab


class _CallbackPage:
    """The page of a response, which a callback uses."""

    def __init__(self, fetcher: BrowserFetcher, opened: _OpenTab) -> None:
        self._fetcher = fetcher
        self._opened = opened
        self._closed = False

    @property
    def failure(self) -> FetchError | None:
        """Why the page has ended before the callback."""
        if not self._opened.process.is_alive:
            return BrowserGone("the browser has ended during the callback")
        return self._opened.tab.failure

    async def close(self) -> None:
        """Close the page."""
        if not self._closed:
            self._closed = True
            await self._fetcher.release_tab(self._opened, healthy=False)


def _write(path: Path, data: bytes) -> None:
    """Write a file in one step, durably."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{uuid.uuid4().hex}.tmp")
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
