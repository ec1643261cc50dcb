"""Performs the waits, actions and recordings that a request defines for its page."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from skitter.browser.errors import ActionFailed, first_line, is_gone
from skitter.browsing import (
    Action,
    Click,
    Evaluate,
    Fill,
    Hover,
    InfiniteScroll,
    LoadMore,
    Pdf,
    Press,
    Screenshot,
    ScrollToEnd,
    Select,
    Wait,
)

if TYPE_CHECKING:
    from playwright.async_api import Page, Response

_ELEMENT_TIMEOUT = 10_000.0
"""Milliseconds to wait for the element of an action."""
_POLL_INTERVAL = 0.1
"""Seconds between two evaluations of an expression that has to become true."""
_BODY_TIMEOUT = 5.0
"""Seconds to wait at the end of a page for bodies that are still arriving."""
_SIZE = "[document.documentElement.scrollHeight, document.getElementsByTagName('*').length].join()"
_OPEN_IN_SAME_WINDOW = """() => {
  if (window.open.name === 'openHere') return;
  const isFrame = name => [...document.querySelectorAll('iframe, frame')].some(frame => frame.name === name);
  const stay = (element, attribute) => {
    const target = element && (element[attribute] || document.querySelector('base[target]')?.target);
    if (target && !isFrame(target)) element[attribute] = '_self';
  };
  const open = window.open, submit = HTMLFormElement.prototype.submit;
  window.open = function openHere(url, name) {
    if (isFrame(name)) return open.call(window, url, name);
    const go = target => location.assign(target);
    if (url && url !== 'about:blank') return go(url), null;
    const address = {assign: go, replace: go, set href(target) { go(target); }};
    return {closed: false, focus() {}, close() {}, get location() { return address; }, set location(target) { go(target); }};
  };
  HTMLFormElement.prototype.submit = function () { stay(this, 'target'); submit.call(this); };
  addEventListener('click', event => stay(event.composedPath().find(node => node.href !== undefined), 'target'), true);
  addEventListener('submit', event => {
    stay(event.target, 'target');
    if (event.submitter?.formTarget) stay(event.submitter, 'formTarget');
  }, true);
}"""
"""Makes links, forms and scripts open new windows in the current window instead. A script that opens an empty window, to give it an
address later, gets an object that passes the address on.

Chromium's own popup blocker does not stop windows that an action opens.
"""
_SCROLL = """() => {
  window.scrollTo(0, document.documentElement.scrollHeight);
  let found = null, area = innerWidth * innerHeight / 2;
  for (const element of document.querySelectorAll('body, body *')) {
    const size = element.clientWidth * element.clientHeight;
    if (size < area || element.scrollHeight <= element.clientHeight) continue;
    if (/auto|scroll/.test(getComputedStyle(element).overflowY)) [found, area] = [element, size];
  }
  if (found) found.scrollTop = found.scrollHeight;
}"""
"""Scrolls the page and the largest element that fills at least half of the window. In many applications only an element scrolls."""


async def perform(page: Page, action: Action, captured: dict[str, Any]) -> None:
    """Perform one action. Raises :class:`~skitter.browser.errors.ActionFailed`, and errors of a browser that has ended."""
    try:
        await _perform_action(page, action, captured)
    except Exception as error:
        if is_gone(error) or isinstance(error, ActionFailed):
            raise
        name = str(type(action).__struct_config__.tag)
        raise ActionFailed(f"{name}: {first_line(error)}", field="actions") from error


async def _perform_action(page: Page, action: Action, captured: dict[str, Any]) -> None:  # noqa: C901, PLR0912 - one line for each kind of action
    if isinstance(action, (Click, Press, LoadMore)):
        await page.evaluate(_OPEN_IN_SAME_WINDOW)
    match action:
        case Click(selector, optional):
            if optional and not await page.locator(selector).first.is_visible():
                return
            await page.click(selector, timeout=_ELEMENT_TIMEOUT)
        case Fill(selector, text):
            await page.fill(selector, text, timeout=_ELEMENT_TIMEOUT)
        case Select(selector, value):
            await page.select_option(selector, value, timeout=_ELEMENT_TIMEOUT)
        case Press(key, ""):
            await page.keyboard.press(key)
        case Press(key, selector):
            await page.press(selector, key, timeout=_ELEMENT_TIMEOUT)
        case Hover(selector):
            await page.hover(selector, timeout=_ELEMENT_TIMEOUT)
        case ScrollToEnd():
            await page.evaluate(_SCROLL)
        case InfiniteScroll(limit, timeout):
            for _ in range(limit):
                if not await _grows_after(page, page.evaluate(_SCROLL), timeout):
                    break
        case LoadMore(selector, limit, timeout):
            for _ in range(limit):
                button = page.locator(selector).first
                if not (await button.is_visible() and await button.is_enabled()):
                    break
                if not await _grows_after(page, button.click(timeout=_ELEMENT_TIMEOUT), timeout):
                    break
        case Wait():
            await wait(page, action)
        case Evaluate(script, name):
            captured[name] = await page.evaluate(script)
        case Screenshot(name, "", full_page):
            captured[name] = await page.screenshot(full_page=full_page)
        case Screenshot(name, selector, _):
            captured[name] = await page.locator(selector).first.screenshot(timeout=_ELEMENT_TIMEOUT)
        case Pdf(name):
            captured[name] = await page.pdf(print_background=True)


async def wait(page: Page, condition: Wait) -> None:
    """Wait for a condition. Raises a TimeoutError, Playwright's or Python's, after the time limit of the condition."""
    limit = 0.0 if condition.timeout is None else condition.timeout * 1000  # 0: the time limit of the page
    if condition.seconds:
        await asyncio.sleep(condition.seconds)
    if condition.selector:
        await page.wait_for_selector(condition.selector, state=condition.state, timeout=limit)
    if condition.function:
        await _becomes_true(page, condition.function, condition.timeout or None)
    if condition.network_idle:
        await page.wait_for_load_state("networkidle", timeout=limit)


async def _becomes_true(page: Page, expression: str, timeout: float | None) -> None:
    """Wait until an expression, or a function, returns a true value. Raises TimeoutError after ``timeout`` seconds.

    Playwright's ``wait_for_function`` evaluates the text again from within the page, which the Content-Security-Policy of many
    sites forbids. A policy does not restrict calls from outside.
    """
    try:
        async with asyncio.timeout(timeout):
            while not await _is_true(page, expression):  # noqa: ASYNC110 - the page sends no event
                await asyncio.sleep(_POLL_INTERVAL)
    except TimeoutError:
        text = " ".join(expression.split())
        raise TimeoutError(f"{text:.100} is not true after {timeout:g} s") from None


async def _is_true(page: Page, expression: str) -> bool:
    """Return whether an expression, or a function, returns a true value of any type, such as an element."""
    handle = await page.evaluate_handle(expression)
    result: bool = await handle.evaluate("value => !!value")
    await handle.dispose()  # a long wait evaluates the expression many times
    return result


async def _grows_after(page: Page, step: Any, timeout: float) -> bool:
    """Return whether the page grows within ``timeout`` seconds after a step."""
    before = await page.evaluate(_SIZE)
    await step
    try:
        await _becomes_true(page, f"{_SIZE} !== {before!r}", timeout)
    except TimeoutError:
        return False
    return True


class Recorder:
    """Records from its creation to :meth:`stop`. ``matches``: whether the response from a URL is recorded."""

    def __init__(self, page: Page, matches: Callable[[str], bool]) -> None:
        self._page = page
        self._matches = matches
        self._found: list[asyncio.Task[dict[str, Any] | None]] = []
        page.on("response", self._on_response)

    def _on_response(self, response: Response) -> None:
        if not response.request.is_navigation_request() and self._matches(response.url):
            self._found.append(asyncio.ensure_future(_read(response)))

    async def finish(self) -> list[dict[str, Any]]:
        """Return what has been recorded so far. A response without an end is left out, and so is a redirect."""
        if self._found:
            await asyncio.wait(self._found, timeout=_BODY_TIMEOUT)
        responses = [task.result() for task in self._found if task.done() and not task.cancelled()]
        for task in self._found:
            task.cancel()
        return [response for response in responses if response is not None]

    def stop(self) -> None:
        """Stop recording."""
        self._page.remove_listener("response", self._on_response)


async def _read(response: Response) -> dict[str, Any] | None:
    with contextlib.suppress(Exception):  # Playwright has no body for redirects and closed pages
        return {"url": response.url, "status": response.status, "body": await response.body()}
    return None
