"""IdentityFetcher: dresses each request before another fetcher sends it, and tells the sources how it went."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from skitter.fetch.contract import (
    MAY_START,
    Aborted,
    Fetcher,
    FetchError,
    HeaderHook,
    MayStart,
    ProxyError,
    TooLate,
    asks_before_sending,
    fetch_watched,
)
from skitter.fetch.identity.contract import AllProxiesRest, Cookies, Proxies, UserAgents
from skitter.fetch.identity.cookies import CookieFile
from skitter.fetch.identity.proxy_lists import label
from skitter.fetch.identity.sessions import Session, SessionPool
from skitter.request import Request
from skitter.response import Response

_LONGEST_WAIT = 5.0
"""Seconds for which a request stays here while all proxies rest; then its lease is handed back."""
_PROXY_WANTS_LOGIN = 407
_JAR_OF = "@proxy "
"""Between the session and the proxy in the name of a jar."""


class IdentityFetcher:
    """A fetcher with sources: user agents, proxies, sessions, cookies; each may be missing.

    What a request itself says wins over every source. The dressed request is that of the response, so that hooks
    and callbacks see by which proxy and in which session it went; the frontier never sees it.
    """

    asks_before_sending = True
    """What the sources have to wait for may take longer than the distance between two fetches of a host allows."""

    def __init__(
        self,
        fetcher: Fetcher,
        *,
        user_agents: UserAgents | None = None,
        proxies: Proxies | None = None,
        sessions: SessionPool | None = None,
        cookies: Cookies | None = None,
        jar_per_proxy: bool = False,
        cookie_file: CookieFile | None = None,
    ) -> None:
        self._fetcher = fetcher
        self._user_agents = user_agents
        self._proxies = proxies
        self._sessions = sessions
        self._cookies = cookies
        self._jar_per_proxy = jar_per_proxy
        self._cookie_file = cookie_file
        self.blocked_statuses = frozenset(sessions.options.blocked_statuses if sessions is not None else ())
        """After these a request may be tried again: its session is gone, and the next one may do better."""

    async def open(self) -> None:
        """Open the fetcher, then the sources, which may fetch what they need."""
        await self._fetcher.open()
        try:
            for source in self._sources():
                if hasattr(source, "open"):
                    await source.open()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the sources and the fetcher."""
        for source in self._sources():
            if hasattr(source, "close"):
                await source.close()
        await self._fetcher.close()

    def _sources(self) -> list[Any]:
        sources = (self._user_agents, self._proxies, self._sessions, self._cookies, self._cookie_file)
        return [source for source in sources if source is not None]

    async def fetch(self, request: Request) -> Response:
        """Fetch one request as somebody. Raises :class:`~skitter.fetch.contract.FetchError`."""
        return await self._fetch(request, None)

    async def fetch_watched(self, request: Request, on_headers: HeaderHook) -> Response:
        """Fetch as :meth:`fetch`, and read the body only if ``on_headers`` wants it.

        Raises :class:`~skitter.fetch.contract.Aborted` besides.
        """
        return await self._fetch(request, on_headers)

    async def _fetch(self, request: Request, on_headers: HeaderHook | None) -> Response:
        # What the sources fetch themselves may take its time.
        may_start = MAY_START.get()
        MAY_START.set(None)
        if self._sessions is None:
            return await self._send(request, await self._unbound(request), on_headers, may_start)
        try:
            session = await self._sessions.take(request)
        except AllProxiesRest as error:
            raise await _waited(error) from None
        status, failure = None, None
        try:
            response = await self._send(request, self._as(request, session), on_headers, may_start)
            status = response.status
        except (TooLate, Aborted):
            raise
        except FetchError as error:
            failure = error
            raise
        finally:
            await self._sessions.settle(session, status, failure)
        return response

    # --- dressing --------------------------------------------------------------------------------------

    async def _unbound(self, request: Request) -> Request:
        changes: dict[str, Any] = {}
        if self._user_agents is not None:
            changes["headers"] = _worn(self._user_agents.headers(request), request)
        if self._proxies is not None and request.proxy is None:
            try:
                changes["proxy"] = self._proxies.choose(request, request.session)
            except AllProxiesRest as error:
                raise await _waited(error) from None
        if self._jar_per_proxy:
            session = request.session.partition(_JAR_OF)[0]  # the hop of a redirect brings the name of a jar
            proxy = changes.get("proxy", request.proxy) or ""
            changes["session"] = f"{session}{_JAR_OF}{label(proxy)}"
        return request.replace(**changes)

    @staticmethod
    def _as(request: Request, session: Session) -> Request:
        changes: dict[str, Any] = {"session": session.name, "headers": _worn(session.headers, request)}
        if session.proxy and request.proxy is None:
            changes["proxy"] = session.proxy
        return request.replace(**changes)

    # --- sending ---------------------------------------------------------------------------------------

    async def _send(
        self,
        request: Request,
        sent: Request,
        on_headers: HeaderHook | None,
        may_start: MayStart | None,
    ) -> Response:
        if self._cookies is not None:
            header = await self._cookies.header_for(sent)
            if header is not None:
                sent = sent.replace(cookies={}, headers={"Cookie": header, **sent.headers})
        if may_start is not None and not may_start():
            raise TooLate("the sources took too long")
        MAY_START.set(may_start if asks_before_sending(self._fetcher) else None)
        try:
            if self._proxies is not None and sent.proxy and request.proxy is None:
                response = await self._through(self._proxies, sent.proxy, sent, on_headers)
            else:
                response = await self._watched(sent, on_headers)
        finally:
            MAY_START.set(None)
        if self._cookies is not None:
            await self._cookies.absorb(response)
        return response

    async def _through(
        self, proxies: Proxies, proxy: str, sent: Request, on_headers: HeaderHook | None
    ) -> Response:
        """Send by a proxy of the list, and tell the list how it went."""
        try:
            response = await self._watched(sent, on_headers)
            if response.status == _PROXY_WANTS_LOGIN:
                raise ProxyError(
                    f"the proxy {label(proxy)} wants another login (407)", remedy="check its password"
                )
        except TooLate:
            raise
        except Aborted:
            proxies.report(proxy, sent, None)
            raise
        except FetchError as error:
            error.free = proxies.report(proxy, sent, error)
            raise
        proxies.report(proxy, sent, None)
        return response

    async def _watched(self, sent: Request, on_headers: HeaderHook | None) -> Response:
        if on_headers is None:
            return await self._fetcher.fetch(sent)
        return await fetch_watched(self._fetcher, sent, on_headers)


def _worn(headers: Mapping[str, str], request: Request) -> dict[str, str]:
    """Return the headers to send: the request's own win, and its own ``User-Agent`` leaves no others."""
    if not request.headers:
        return dict(headers)
    own = {name.lower() for name in request.headers}
    if "user-agent" in own:
        return request.headers
    return {**{name: value for name, value in headers.items() if name.lower() not in own}, **request.headers}


async def _waited(error: AllProxiesRest) -> AllProxiesRest:
    """Let some time pass before the lease goes back: nothing else could be fetched meanwhile either."""
    if error.free:
        await asyncio.sleep(min(error.wait, _LONGEST_WAIT))
    return error
