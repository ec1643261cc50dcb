"""Tab: a page of the browser that loads one main document for each request and intercepts everything else.

The design note on browser pages lists what happens with each kind of request that a page sends.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urldefrag

from skitter._utils.patterns import LimitedPattern, SlowPattern, compile_pattern
from skitter.browser.actions import Recorder, perform, wait
from skitter.browser.client_hints import user_agent_override
from skitter.browser.cookies import changed_cookies, cookies_to_set, place_of, with_attributes
from skitter.browser.dom import final_dom
from skitter.browser.errors import (
    ActionFailed,
    BrowserGone,
    PageCrashed,
    PageLimit,
    first_line,
    is_gone,
    network_error,
)
from skitter.browser.guard_proxy import GuardProxy
from skitter.browsing import Browsing, Click, Press, Wait, WaitUntil, remaining
from skitter.errors import FetchError
from skitter.fetch.contract import (
    Aborted,
    BodyTooLarge,
    Disconnected,
    FetchPhases,
    HeaderHook,
    SendPermit,
    TooLate,
)
from skitter.fetch.cookie_jar import CookieJar
from skitter.fetch.transfer import cuts_body
from skitter.request import Request
from skitter.response import Response
from skitter.settings import Settings
from skitter.web.headers import REDIRECTS, media_type, parse_length

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Dialog, Page

_MAX_DIALOGS = 20
_MAX_POPUPS = 20
_MAX_REDIRECT_DELAY = 1.0
"""Delay in seconds up to which a scheduled navigation counts as a redirect."""
_NAVIGATION_TIMEOUT = 3.0
"""Seconds to wait for a navigation that the page has announced."""
_ABANDON_TIMEOUT = 2.0
"""Seconds to wait until the browser has closed what could not be opened completely."""
_COLLECTION_INTERVAL = 10
"""Number of pages of a tab between two garbage collections. By itself, a renderer keeps about 2.5 MB of each page for a long
time."""
_CHUNK = 256 * 1024
_EMPTY = frozenset({204, 205, 304})
_HARMLESS = ("http:", "https:", "javascript:", "blob:", "data:", "mailto:", "tel:", "sms:")
_BROWSERS_OWN = frozenset({"cookie", "host", "content-length", "connection", "accept-encoding", "user-agent"})
"""Headers that the browser sets by itself."""

Result = TypeVar("Result")


class _Moved(Exception):
    """The page navigates to another document."""

    def __init__(
        self, url: str, method: str = "GET", headers: dict[str, str] | None = None, body: bytes = b""
    ) -> None:
        self.url = url
        self.method = method
        self.headers = headers or {}
        self.body = body


class PageLoad:
    """One request in a tab, from its navigation to the end of the page.

    ``jar``: the cookies of the session and the site of the request, with their domains and paths.
    """

    def __init__(
        self,
        request: Request,
        browsing: Browsing,
        permit: SendPermit,
        on_headers: HeaderHook | None,
        jar: CookieJar,
    ) -> None:
        self.request = request
        self.kept = jar.select(request.url)
        """The cookies of the jar that apply to the URL."""
        chosen = set(map(id, self.kept))
        self.others = [cookie for cookie in jar if id(cookie) not in chosen]
        """The cookies of the jar for other hosts and paths of the site, which sub-requests may need."""
        self.browsing = browsing
        self.permit = permit
        self.on_headers = on_headers
        self.url = urldefrag(request.url)[0]
        self.outcome: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        """Set when the page ends early: because of a redirect, another navigation, a raw body or an error."""
        self.begun_at = time.monotonic()
        self.sent_at = 0.0
        self.status = 0
        self.latency = 0.0
        self.headers: list[tuple[str, str]] = []
        self.requests = 0
        self.dialogs = 0
        self.popups = 0
        self.announced = ""
        """URL of a navigation that the page has announced."""
        self.actions_done = 0
        self.in_callback = False
        self.is_committed = False
        """Whether the tab shows the document."""
        self.is_parsed = False
        """Whether the parser has reached the end of the document."""
        self.stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Set when a script of the page has stopped loading it. The browser does not report such a page as loaded."""
        self.captured: dict[str, Any] = {}
        self.hook_error: BaseException | None = None
        """The error of the header hook."""
        self.first_byte = 0

    def end(self, outcome: Response | BaseException) -> None:
        """End the page early. Only the first call has an effect."""
        if self.outcome.done() or self.in_callback:
            return
        if isinstance(outcome, Response):
            self.outcome.set_result(outcome)
        else:
            self.outcome.set_exception(outcome)
            self.outcome.exception()  # retrieve it: the page may have ended already, so no caller waits for the outcome

    async def race(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Return the result of some work on the page. Raises the error if the page ends early, or ``_Ended``."""
        task = asyncio.ensure_future(work)
        try:
            waiting: set[asyncio.Future[Any]] = {task, self.outcome}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if self.outcome.done():
                raise _Ended
            return task.result()
        finally:
            if not task.done():
                task.cancel()
            task.add_done_callback(_retrieve)

    async def settle(self) -> None:
        """Wait for a navigation that the page has announced. Raises ``_Ended`` when it takes place."""
        if self.announced and not self.outcome.done():
            await asyncio.wait({self.outcome}, timeout=_NAVIGATION_TIMEOUT)
            self.announced = ""
        if self.outcome.done():
            raise _Ended

    def header(self, name: str) -> str:
        """Return a header of the main document."""
        return next((value for key, value in self.headers if key.lower() == name), "")

    def response(self, status: int, body: bytes = b"", **more: Any) -> Response:
        """Return a response with the headers of the main document."""
        return Response(
            self.request.url, status, headers=_header_block(self.headers), body=body, request=self.request,
            latency=self.latency, **more,
        )  # fmt: skip


class _Ended(Exception):
    """The page has ended early, and its outcome is set."""


class Tab:
    """One page of the browser. Create it with :meth:`open`."""

    def __init__(
        self,
        page: Page,
        session: CDPSession,
        frame: str,
        settings: Settings,
        authorizations: Mapping[str, str],
        proxy: GuardProxy | None,
        user_agent: str,
    ) -> None:
        self.page = page
        self._session = session
        self._frame = frame
        """Id of the main frame, which lasts as long as the page."""
        self._user_agent = user_agent
        self._override: dict[str, Any] = {}
        """The values of the browser that the page sees; see :func:`user_agent_override`."""
        self._settings = settings
        self._authorizations = authorizations
        self._proxy = proxy
        self._blocked_kinds = frozenset(name.lower() for name in settings.blocked_resources)
        self._blocked_urls = [compile_pattern(pattern) for pattern in settings.blocked_urls]
        self._load: PageLoad | None = None
        self._given: dict[tuple[str, str, str], str] = {}
        """Values of the cookies of the jar, by their places, that the last page did not send itself."""
        self._tasks: set[asyncio.Future[Any]] = set()
        self._windows: list[Page] = []
        """Windows that the page has opened, until they are closed."""
        self.has_opened_window = False
        """Whether a window may be open that only closing the context is certain to close."""
        self.uses = 0
        self.failure: FetchError | None = None
        """Why the page has ended by itself."""
        page.on("crash", lambda _page: self._lose(PageCrashed("the process of the page has ended")))
        page.on("close", lambda _page: self._lose(BrowserGone("the page was closed")))
        page.on("popup", self._on_window)
        page.on("dialog", lambda dialog: self._start(self._on_dialog(dialog)))
        session.on("Fetch.requestPaused", self._on_paused)
        session.on("Fetch.authRequired", lambda event: self._start(self._on_login(event)))
        session.on("Page.windowOpen", self._on_popup)
        session.on("Page.frameScheduledNavigation", self._on_scheduled)
        session.on("Page.frameNavigated", self._on_committed)
        session.on("Page.domContentEventFired", self._on_parsed)
        session.on("Page.frameStoppedLoading", self._on_stopped)

    @classmethod
    async def open(
        cls,
        context: Any,
        settings: Settings,
        authorizations: Mapping[str, str],
        proxy: GuardProxy | None,
        user_agent: str,
    ) -> Tab:
        """Open a tab in a context of the browser.

        ``authorizations``: value of the ``Authorization`` header, by origin. ``user_agent``: the user agent of the context.
        """
        page = await context.new_page()
        try:
            session = await context.new_cdp_session(page)
            tree, *_ = await asyncio.gather(
                session.send("Page.getFrameTree"),
                session.send("Page.enable"),
                session.send(
                    "Fetch.enable",
                    {"patterns": [{"urlPattern": "*"},
                                  {"urlPattern": "*", "resourceType": "Document", "requestStage": "Response"}],
                     "handleAuthRequests": True},
                ),
            )  # fmt: skip
        except Exception:  # not on cancellation, because the browser then hangs
            await end_quietly(page.close())
            raise
        return cls(
            page, session, tree["frameTree"]["frame"]["id"], settings, authorizations, proxy, user_agent
        )

    # --- loading ---------------------------------------------------------------------------------------

    async def load(self, load: PageLoad) -> Response:
        """Load the page of a request. Raises :class:`~skitter.errors.FetchError`."""
        self._load = load
        self.uses += 1
        request_headers = {**self._settings.headers, **load.request.headers}
        override = user_agent_override(self._user_agent, request_headers)
        if override != self._override:
            await self._session.send("Emulation.setUserAgentOverride", override)
            self._override = override
        sent = await self._set_cookies(load)
        if self._proxy is not None:
            load.first_byte = self._proxy.received
            self._proxy.on_receive = self._on_receive
        script: dict[str, Any] = {}
        if source := load.browsing.init_script:
            method = "Page.addScriptToEvaluateOnNewDocument"
            script = await self._session.send(method, {"source": source})
        try:
            html = await (self._run_recorded(load) if load.browsing.record else self._run(load))
        except _Ended:
            try:
                response = load.outcome.result()
            except _Moved as moved:
                response = load.response(load.status or 200, moved_to=_request_of(moved, load))
        else:
            body = html.encode("utf-8", "surrogatepass")
            limit = load.request.max_body or self._settings.max_body
            if len(body) > limit and not cuts_body(load.request, self._settings):
                raise BodyTooLarge(f"the page has {len(body)} bytes", remedy="raise max_body")
            response = load.response(load.status, body[:limit], encoding="utf-8", captured=load.captured)
            response.is_truncated = len(body) > limit
        if script:
            await self._session.send("Page.removeScriptToEvaluateOnNewDocument", script)
        if self._proxy is not None:
            response.ip = self._proxy.ip_of(load.request.url)
        return await self._add_cookies(response, load, sent)

    async def _run_recorded(self, load: PageLoad) -> str:
        patterns = [compile_pattern(load.browsing.record)]
        recorder = Recorder(self.page, lambda url: self._matches(load, patterns, url, "record"))
        try:
            html = await self._run(load)
            load.captured["responses"] = await recorder.finish()
        finally:
            recorder.stop()
        return html

    async def _run(self, load: PageLoad) -> str:
        """Load the page, wait, perform the actions, and return the final DOM. Raises ``_Ended``."""
        browsing, page = load.browsing, self.page
        until = browsing.wait_until or self._settings.wait_until
        try:
            await load.race(self._go_to(load, until))
        except _Ended:
            raise
        except Exception as error:
            failure = None if self._proxy is None else self._proxy.failure_of(load.request.url)
            raise network_error(error) if failure is None or load.status else failure from error
        await load.settle()
        if browsing.wait_for:
            condition = Wait(browsing.wait_for) if isinstance(browsing.wait_for, str) else browsing.wait_for
            await self._step(load, wait(page, condition), "wait_for")
        for number, action in enumerate(browsing.actions):
            # An interrupted wait continues on the page that replaces this one; any other action has caused the change.
            load.actions_done = number + (not isinstance(action, Wait))
            await load.race(perform(page, action, load.captured))
            if isinstance(action, (Click, Press)):
                await load.race(page.evaluate("0"))  # what the action has announced arrives before the reply
            load.actions_done = number + 1
            await load.settle()
        html, refreshes = await self._step(load, final_dom(page, self._session, load.request.url), "content")
        if refreshes:
            load.announced = load.announced or load.url
        await load.settle()
        return html

    async def _go_to(self, load: PageLoad, until: WaitUntil) -> None:
        going = asyncio.ensure_future(self.page.goto(load.request.url, wait_until=until, timeout=0))
        going.add_done_callback(_retrieve)
        waiting: set[asyncio.Future[Any]] = {going, load.stopped}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if going.done():
            going.result()
        else:
            going.cancel()

    @staticmethod
    async def _step(load: PageLoad, work: Coroutine[Any, Any, Result], name: str) -> Result:
        try:
            return await load.race(work)
        except (_Ended, FetchError):
            raise
        except Exception as error:
            if is_gone(error):
                raise network_error(error) from error
            raise ActionFailed(f"{name}: {first_line(error)}", field=name) from error

    def start_callback(self) -> None:
        """Let a callback use the page: navigations are no longer intercepted, and no limit ends the page."""
        assert self._load is not None
        self._load.in_callback = True

    async def close(self) -> None:
        """Close the page, and the windows that it has opened for a callback."""
        await self._close_windows()
        await self.page.close()

    async def clear(self) -> None:
        """Remove the page, so that the tab can be used again."""
        load, self._load = self._load, None
        if load is not None and load.outcome.done():
            _retrieve(load.outcome)
        if self._proxy is not None:
            self._proxy.on_receive = None
        # Page.navigate of the protocol returns before the navigation is committed; it would interrupt the next page.
        await self.page.goto("about:blank", wait_until="commit", timeout=0)
        if self.uses % _COLLECTION_INTERVAL == 0:
            await self._session.send("HeapProfiler.collectGarbage")

    # --- cookies ---------------------------------------------------------------------------------------

    async def _set_cookies(self, load: PageLoad) -> list[tuple[str, str]]:
        """Give the browser the cookies of the request and of its site. Return names and values of those of the request."""
        request = load.request
        header = next((value for name, value in request.headers.items() if name.lower() == "cookie"), "")
        pairs = [pair.partition("=") for pair in header.split("; ") if pair]
        sent = [*request.cookies.items(), *((name, value) for name, _, value in pairs)]
        found = await self._session.send("Network.getCookies", {"urls": [request.url]})
        changes, expired = cookies_to_set(request.url, sent, found["cookies"], load.kept)
        # Another tab of the session may have just received such a cookie.
        for cookie in () if request.session else expired:
            await self._session.send("Network.deleteCookies", cookie)
        if changes:
            await self._session.send("Network.setCookies", {"cookies": changes})
        if load.others:
            await self._set_others(load)
        return sent

    async def _set_others(self, load: PageLoad) -> None:
        """Give the browser the cookies that its sub-requests may need.

        A sub-request may have changed a cookie since, which no response shows. So a cookie that the browser has is set again
        only if the jar has another value than before.
        """
        others = [with_attributes(cookie, load.request.url) for cookie in load.others]
        found = await self._session.send("Network.getCookies", {"urls": [cookie["url"] for cookie in others]})
        known = set(map(place_of, found["cookies"]))
        given, self._given = self._given, {place_of(cookie): cookie["value"] for cookie in others}
        changes = [
            cookie
            for cookie in others
            if (place := place_of(cookie)) not in known
            or given.get(place, cookie["value"]) != cookie["value"]
        ]
        if changes:
            await self._send("Network.setCookies", {"cookies": changes})

    async def _add_cookies(
        self, response: Response, load: PageLoad, sent: Sequence[tuple[str, str]]
    ) -> Response:
        """Add the cookies that the page has set by script or by sub-requests to the headers."""
        try:
            found = await self._session.send("Network.getAllCookies")
        except Exception as error:
            raise network_error(error) from error
        lines = changed_cookies(response.url, found["cookies"], sent, load.kept, load.others)
        if lines:
            own = response.headers.getall("set-cookie", [])
            set_already = {line.partition(";")[0].strip() for line in own}
            added = [("Set-Cookie", line) for line in lines if line.partition(";")[0] not in set_already]
            response = response.replace(headers=_header_block([*response.headers.items(), *added]))
        return response

    # --- events ----------------------------------------------------------------------------------------

    def _start(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and isinstance(error, FetchError):
            self._end(error)

    def _lose(self, error: FetchError) -> None:
        self.failure = self.failure or error
        self._end(error)

    def _end(self, error: FetchError) -> None:
        if self._load is not None:
            self._load.end(error)

    def _on_receive(self) -> None:
        load, proxy = self._load, self._proxy
        if (
            load is not None
            and proxy is not None
            and proxy.received - load.first_byte > self._settings.page_max_bytes
        ):
            load.end(PageLimit("the page has received more than page_max_bytes", field="page_max_bytes"))

    async def _on_dialog(self, dialog: Dialog) -> None:
        load = self._load
        if load is not None:
            load.dialogs += 1
            if load.dialogs > _MAX_DIALOGS:
                load.end(PageLimit(f"the page has opened more than {_MAX_DIALOGS} dialogs"))
        with contextlib.suppress(Exception):  # the page is gone
            await (dialog.accept() if dialog.type == "beforeunload" else dialog.dismiss())

    def _on_popup(self, event: dict[str, Any]) -> None:
        """Handle a window that the page is about to open. The browser blocks it unless an action has just taken place."""
        load = self._load
        has_gesture = bool(event.get("userGesture"))
        self.has_opened_window = self.has_opened_window or has_gesture
        if load is None:
            return
        load.popups += 1
        if load.popups > _MAX_POPUPS:
            load.end(PageLimit(f"the page has opened more than {_MAX_POPUPS} windows"))
        elif load.actions_done and has_gesture and event["url"].startswith(("http://", "https://")):
            load.end(_Moved(event["url"]))  # the link of an action opens a new window

    def _on_window(self, window: Page) -> None:
        self.has_opened_window = True
        self._windows.append(window)
        if self._load is None or not self._load.in_callback:  # otherwise the callback may want it
            self._start(self._close_windows())

    async def _close_windows(self) -> None:
        while self._windows:
            await end_quietly(self._windows.pop().close())

    def _on_scheduled(self, event: dict[str, Any]) -> None:
        load, url = self._load, event["url"]
        if load is None or event["frameId"] != self._frame or load.in_callback or not load.status:
            return
        if not url.startswith(_HARMLESS):
            load.end(PageLimit(f"the page opens {url:.200}, which is not on the web"))
        elif url.startswith(("http:", "https:")) and event.get("delay", 0) <= _MAX_REDIRECT_DELAY:
            is_fragment = "#" in url and urldefrag(url)[0] == load.url
            load.announced = load.announced if is_fragment else url

    def _on_committed(self, event: dict[str, Any]) -> None:
        load, frame = self._load, event["frame"]
        if load is not None and frame["id"] == self._frame and frame["url"].startswith(("http:", "https:")):
            load.is_committed = True

    def _on_parsed(self, _event: dict[str, Any]) -> None:
        if self._load is not None and self._load.is_committed:
            self._load.is_parsed = True

    def _on_stopped(self, event: dict[str, Any]) -> None:
        load = self._load
        if load is not None and event["frameId"] == self._frame and load.is_committed and not load.is_parsed:
            self._start(self._judge_stop(load))

    async def _judge_stop(self, load: PageLoad) -> None:
        """Decide about a document that has stopped loading before its end.

        If the connection broke, the document stays in the state "loading". Otherwise a script has stopped it, or has started
        a navigation that led to no document.
        """
        with contextlib.suppress(Exception):  # the page is gone, which other events report
            found = await self._session.send("Runtime.evaluate", {"expression": "document.readyState"})
            if found["result"]["value"] == "loading":
                load.end(Disconnected("the connection closed before the end of the document"))
            elif not load.stopped.done():
                load.stopped.set_result(None)

    # --- requests of the page --------------------------------------------------------------------------

    def _on_paused(self, event: dict[str, Any]) -> None:
        is_main = event["resourceType"] == "Document" and event["frameId"] == self._frame
        is_response = "responseStatusCode" in event or "responseErrorReason" in event
        if not is_main:
            self._start(self._on_part(event, is_response=is_response))
        elif is_response:
            self._start(self._on_response(event))
        else:
            self._start(self._on_document(event))

    async def _on_part(self, event: dict[str, Any], *, is_response: bool) -> None:
        """Decide whether a sub-request is sent."""
        load = self._load
        if not is_response:
            if load is None or _is_prefetch(event) or self._is_blocked(load, event):
                return await self._fail(event, "BlockedByClient")
            load.requests += 1
            if load.requests > self._settings.page_max_requests:
                load.end(
                    PageLimit("the page has sent more than page_max_requests", field="page_max_requests")
                )
                return await self._fail(event, "BlockedByClient")
            if self._authorizations and _origin(event["request"]["url"]) == _origin(load.url):
                return await self._continue(event, **self._changed_headers(event, {}))
        return await self._continue(event)

    def _is_blocked(self, load: PageLoad, event: dict[str, Any]) -> bool:
        """Return whether the settings block a sub-request."""
        if _kind_of(event) in self._blocked_kinds:
            return True
        patterns = self._blocked_urls
        return bool(patterns) and self._matches(load, patterns, event["request"]["url"], "blocked_urls")

    def _matches(
        self, load: PageLoad, patterns: Sequence[re.Pattern[str] | LimitedPattern], url: str, field: str
    ) -> bool:
        """Return whether a URL matches one of the patterns of a field.

        A pattern that takes too long for the URL ends the page, and counts as a match.
        """
        # A URL may have 2 MB, and the search for "ads.*js" takes quadratic time.
        start = url[: self._settings.max_url_length]
        try:
            return any(pattern.search(start) for pattern in patterns)
        except SlowPattern as error:
            load.end(PageLimit(str(error), remedy=error.remedy, field=field))
            return True

    async def _on_login(self, event: dict[str, Any]) -> None:
        """Show the page of a server that asks for a user name. Playwright handles the login to a proxy."""
        is_proxy = event["authChallenge"].get("source") == "Proxy"
        choice = {"response": "Default" if is_proxy else "CancelAuth"}
        await self._send(
            "Fetch.continueWithAuth", {"requestId": event["requestId"], "authChallengeResponse": choice}
        )

    async def _on_document(self, event: dict[str, Any]) -> None:
        """Decide about a main document: the document of the request, or one that replaces it."""
        load, sent = self._load, event["request"]
        if load is None:
            return await self._fail(event)
        if load.in_callback:
            return await self._continue(event)
        if load.sent_at:
            await self._fail(event)
            body = sent.get("postData", "").encode("utf-8", "surrogateescape")
            entries = sent.get("postDataEntries")
            if entries:
                body = b"".join(base64.b64decode(entry.get("bytes", "")) for entry in entries)
            kind = {
                name: value
                for name, value in sent["headers"].items()
                if name.lower() in {"content-type", "referer"}
            }
            return load.end(_Moved(sent["url"], sent["method"], kind, body))
        # Later leases allow for this time. Otherwise a slow browser misses each time slot of a host with a short delay.
        load.permit.report_connecting(time.monotonic() - load.begun_at)
        if load.permit.expires and not load.permit.may_send():
            load.end(TooLate("the request missed its time slot while the browser prepared the page"))
            return await self._fail(event)
        load.sent_at = time.monotonic()
        return await self._send_document(event, load.request)

    async def _send_document(self, event: dict[str, Any], request: Request) -> None:
        headers = {**self._settings.headers, **request.headers}
        changes = self._changed_headers(
            event, {name: value for name, value in headers.items() if name.lower() not in _BROWSERS_OWN}
        )
        if request.method != "GET":
            changes["method"] = request.method
        if request.body:
            changes["postData"] = base64.b64encode(request.body).decode("ascii")
        await self._continue(event, **changes)

    def _changed_headers(self, event: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
        """Return the argument ``headers`` for a request with additional headers and the credentials of its origin, if any."""
        sent: dict[str, str] = event["request"]["headers"]
        names = {name.lower() for name in headers}
        authorization = self._authorizations.get(_origin(event["request"]["url"]))
        if authorization and "authorization" not in names | {name.lower() for name in sent}:
            headers = {**headers, "Authorization": authorization}
        if not headers:
            return {}
        kept = {name: value for name, value in sent.items() if name.lower() not in names}
        return {"headers": [{"name": name, "value": value} for name, value in {**kept, **headers}.items()]}

    async def _on_response(self, event: dict[str, Any]) -> None:  # noqa: PLR0911 - one for each decision
        """Decide about the response of a main document."""
        load = self._load
        if load is None or load.in_callback or load.outcome.done() or "responseErrorReason" in event:
            return await self._continue(event)
        load.latency = time.monotonic() - load.sent_at
        if load.permit.is_traced:
            # The browser does not report the phases of its connections.
            load.permit.report_phases(FetchPhases(answered=load.latency, ended=load.latency))
        headers = [(header["name"], header["value"]) for header in event.get("responseHeaders", ())]
        load.headers = headers
        if self._proxy is not None and load.header("x-skitter-proxy") == self._proxy.token:
            error = self._proxy.failure_of(load.request.url)
            load.end(error or FetchError("the connection failed"))
            return await self._fail(event)
        load.status = status = event["responseStatusCode"]
        if load.on_headers is not None and not await self._is_wanted(load, load.on_headers):
            return await self._fail(event)
        if (
            (status in REDIRECTS and load.header("location"))
            or status in _EMPTY
            or load.request.method == "HEAD"
        ):
            load.end(load.response(status))
            return await self._fail(event)
        limit = load.request.max_body or self._settings.max_body
        length = parse_length(load.header("content-length"))
        if length is not None and length > limit and not cuts_body(load.request, self._settings):
            load.end(BodyTooLarge(f"the body has {length} bytes", remedy="raise max_body"))
            return await self._fail(event)
        is_page = media_type(load.header("content-type")).is_html
        if is_page and not load.header("content-disposition").lower().startswith("attachment"):
            return await self._continue(event)
        try:
            body, is_truncated = await self._raw_body(load, event, limit)
            response = load.response(status, body)
            response.is_truncated = is_truncated
            load.end(response)
        except FetchError as error:
            load.end(error)
        return await self._fail(event)

    @staticmethod
    async def _is_wanted(load: PageLoad, on_headers: HeaderHook) -> bool:
        """Return whether the header hook wants the page. Otherwise, or if the hook raises an error, end the page."""
        try:
            wanted = bool(await on_headers(load.response(load.status)))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - hooks are user code
            load.hook_error = error
            load.end(error)
            return False
        if not wanted:
            load.end(Aborted("the header hook rejected the response"))
        return wanted

    async def _raw_body(self, load: PageLoad, event: dict[str, Any], limit: int) -> tuple[bytes, bool]:
        """Return the body of a document that is not a page, and whether it was cut at the limit."""
        taken = await self._session.send("Fetch.takeResponseBodyAsStream", {"requestId": event["requestId"]})
        handle, body = {"handle": taken["stream"]}, bytearray()
        while True:
            chunk = await self._session.send("IO.read", {**handle, "size": _CHUNK})
            body += base64.b64decode(chunk["data"]) if chunk.get("base64Encoded") else chunk["data"].encode()
            if len(body) > limit:
                if cuts_body(load.request, self._settings):
                    await self._session.send("IO.close", handle)
                    return bytes(body[:limit]), True
                raise BodyTooLarge(f"the body exceeds {limit} bytes", remedy="raise max_body")
            if chunk["eof"]:
                await self._session.send("IO.close", handle)
                break
        length = parse_length(load.header("content-length"))
        if length is not None and len(body) < length and not load.header("content-encoding"):
            raise Disconnected(f"the connection closed after {len(body)} of {length} bytes")
        return bytes(body), False

    async def _continue(self, event: dict[str, Any], **changes: Any) -> None:
        await self._send("Fetch.continueRequest", {"requestId": event["requestId"], **changes})

    async def _fail(self, event: dict[str, Any], reason: str = "Aborted") -> None:
        await self._send("Fetch.failRequest", {"requestId": event["requestId"], "errorReason": reason})

    async def _send(self, method: str, arguments: dict[str, Any]) -> None:
        # The request has ended, or the page is gone, which other events report.
        with contextlib.suppress(Exception):
            await self._session.send(method, arguments)


async def end_quietly(closing: Coroutine[Any, Any, None]) -> None:
    """Close a part that could not be opened completely. Raises no errors, because another error is being raised."""
    with contextlib.suppress(Exception):  # the browser may hang or be gone, which other calls report
        async with asyncio.timeout(_ABANDON_TIMEOUT):
            await closing


def _header_block(headers: Iterable[tuple[str, str]]) -> bytes:
    return "".join(f"{name}: {value}\r\n" for name, value in headers).encode("latin-1", "replace")


def _request_of(moved: _Moved, load: PageLoad) -> Request:
    """Return the request that replaces a page, with the actions that are left."""
    browsing = remaining(load.browsing, load.actions_done) if load.actions_done else load.browsing
    fetcher = "browser" if browsing.actions or browsing.wait_for else ""
    return Request(
        moved.url,
        method=moved.method,
        headers=moved.headers,
        body=moved.body,
        fetcher=fetcher,
        browsing=browsing,
    )


def _kind_of(event: dict[str, Any]) -> str:
    """Return the kind of a sub-request, as the setting ``blocked_resources`` names it."""
    kind: str = event["resourceType"].lower()
    is_icon = kind == "other" and event["request"]["headers"].get("Accept", "").startswith("image/")
    return "image" if is_icon else kind  # the browser requests the icon of a site by itself


def _is_prefetch(event: dict[str, Any]) -> bool:
    """Return whether a page prefetches a document, which is not allowed: no document is loaded without a lease."""
    headers = event["request"]["headers"]
    return event["resourceType"] == "Prefetch" or "Sec-Purpose" in headers or "Purpose" in headers


def _origin(url: str) -> str:
    """Return the origin of a URL in the form of the browser, which always has a path."""
    return url[: url.find("/", len("https://"))]


def _retrieve(task: asyncio.Future[Any]) -> None:
    """Retrieve the error of a task for which no caller waits."""
    if not task.cancelled():
        task.exception()
