"""ContextPool: the contexts and tabs of one browser, by the identity of requests."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import unquote, urlsplit

from skitter._utils.concurrency import cancel_and_wait
from skitter.browser.guard_proxy import GuardProxy
from skitter.browser.process import BrowserProcess
from skitter.browser.tab import Tab, end_quietly
from skitter.fetch.address_guard import AddressGuard
from skitter.fetch.contract import UnsendableRequest
from skitter.fetch.resolver import Resolver
from skitter.fetch.tls import is_unverified
from skitter.request import Request
from skitter.settings import Settings

if TYPE_CHECKING:
    from playwright.async_api import ProxySettings

_MAX_CONTEXTS = 64
"""Maximum number of contexts of named sessions. The least recently used context is closed first."""


class Identity(NamedTuple):
    """What the requests of a context have in common."""

    session: str
    proxy: str
    user_agent: str
    is_verified: bool
    """Whether certificates are verified."""


class TabContext:
    """A context of the browser, with its proxy and its idle tabs."""

    def __init__(self, context: Any, identity: Identity, proxy: GuardProxy | None) -> None:
        self.context = context
        self.identity = identity
        self.proxy = proxy
        self.idle: list[Tab] = []
        self.used = 0


class ContextPool:
    """The contexts of one browser: one for each named session, and one for each tab without a session."""

    def __init__(
        self,
        process: BrowserProcess,
        settings: Settings,
        authorizations: Mapping[str, str],
        guard: AddressGuard,
        resolver: Resolver | None,
    ) -> None:
        self._process = process
        self._settings = settings
        self._authorizations = authorizations
        self._guard = guard
        self._resolver = resolver
        self._named: OrderedDict[Identity, asyncio.Task[TabContext]] = OrderedDict()
        self._waiting: Counter[Identity] = Counter()
        """Number of requests that wait for the context of a named session."""
        self._free: list[TabContext] = []
        """Contexts without a session whose tab is idle."""
        self._open: set[TabContext] = set()

    async def acquire(self, request: Request) -> tuple[TabContext, Tab]:
        """Return an idle tab for a request, or open a new one."""
        identity = _identity(request, self._settings)
        context = await (self._named_context(identity) if identity.session else self._free_context(identity))
        try:
            for surplus in self._take_surplus():
                await end_quietly(self._close(surplus))
            if context.idle:
                return context, context.idle.pop()
            tab = await Tab.open(
                context.context, self._settings, self._authorizations, context.proxy, identity.user_agent
            )
        except BaseException as error:
            context.used -= 1
            # If the time limit of the page has cancelled this call, the browser hangs, and the fetcher replaces it.
            if isinstance(error, Exception) and not identity.session:  # nothing else refers to the context
                await end_quietly(self._close(context))
            raise
        return context, tab

    async def _named_context(self, identity: Identity) -> TabContext:
        making = self._named.get(identity)
        if making is None:
            making = self._named[identity] = asyncio.ensure_future(self._create_named(identity))
        self._named.move_to_end(identity)
        self._waiting[identity] += 1
        try:
            context = await asyncio.shield(making)
            context.used += 1
        finally:
            self._waiting[identity] -= 1
        return context

    async def _create_named(self, identity: Identity) -> TabContext:
        try:
            return await self._create(identity)
        except BaseException:
            self._named.pop(identity, None)  # the next request of the session tries again
            raise

    def _take_surplus(self) -> list[TabContext]:
        """Remove unused contexts of named sessions above the maximum, the least recently used first. Return them."""
        count = len(self._named) - _MAX_CONTEXTS
        if count <= 0:
            return []
        self._waiting += Counter()  # removes identities without waiting requests
        unused = [
            identity
            for identity, making in self._named.items()
            if identity not in self._waiting and making.done() and not making.result().used
        ]
        return [self._named.pop(identity).result() for identity in unused[:count]]

    async def _free_context(self, identity: Identity) -> TabContext:
        for number, context in enumerate(self._free):
            if context.identity == identity:
                self._free.pop(number).used += 1
                return context
        if len(self._free) >= self._settings.browser_pages:
            await end_quietly(self._close(self._free.pop(0)))
        context = await self._create(identity)
        context.used += 1
        return context

    async def _create(self, identity: Identity) -> TabContext:
        proxy: GuardProxy | None = None
        if not identity.proxy:
            proxy = GuardProxy(self._guard, self._settings.connect_timeout, self._resolver)
        try:
            proxy_options = (
                _proxy_options(identity.proxy) if proxy is None else {"server": await proxy.open()}
            )
            context = await self._process.browser.new_context(
                proxy=cast("ProxySettings", proxy_options), user_agent=identity.user_agent, service_workers="block",
                accept_downloads=False, ignore_https_errors=not identity.is_verified,
                **self._settings.browser_context,
            )  # fmt: skip
        except BaseException:
            if proxy is not None:
                await proxy.close()
            raise
        made = TabContext(context, identity, proxy)
        self._open.add(made)
        return made

    async def release(self, context: TabContext, tab: Tab) -> None:
        """Return a tab that can be used again."""
        context.used -= 1
        context.idle.append(tab)
        if not context.identity.session:
            self._free.append(context)

    async def discard(self, context: TabContext, tab: Tab) -> None:
        """Close a tab, and its context if no session needs it."""
        context.used -= 1
        if context.identity.session:
            await tab.close()
        else:
            await self._close(context)

    async def _close(self, context: TabContext) -> None:
        if context.proxy is not None:
            await context.proxy.close()
        self._open.discard(context)  # only now: if this call is cancelled, `close` finishes its work
        await context.context.close()

    async def close(self) -> None:
        """Close the proxies. The contexts end with their browser."""
        await cancel_and_wait(self._named.values())
        for context in list(self._open):
            if context.proxy is not None:
                await context.proxy.close()


def _identity(request: Request, settings: Settings) -> Identity:
    agent = next(
        (value for name, value in request.headers.items() if name.lower() == "user-agent"),
        settings.user_agent,
    )
    is_verified = settings.verify_tls and not is_unverified(request.url, settings.unverified_hosts)
    return Identity(request.session, request.proxy or "", agent, is_verified)


def _proxy_options(url: str) -> dict[str, str]:
    parts = urlsplit(url if "://" in url else f"http://{url}")  # as curl reads variables of the environment
    server = parts.netloc.rpartition("@")[2]
    options = {"server": f"{parts.scheme.replace('socks5h', 'socks5')}://{server}"}
    if parts.username:
        if parts.scheme.startswith("socks"):
            raise UnsendableRequest(
                "browsers do not log in to SOCKS proxies",
                remedy="use an HTTP proxy for browser pages",
                field="proxy",
            )
        options |= {"username": unquote(parts.username), "password": unquote(parts.password or "")}
    return options
