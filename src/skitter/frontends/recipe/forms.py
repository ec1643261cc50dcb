"""Forms: filled in and sent as a browser would, with their hidden fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any

from skitter.frontends.recipe.compile_context import CompileContext
from skitter.frontends.recipe.finder import Finder
from skitter.frontends.recipe.model import Login
from skitter.frontends.recipe.page_context import PageContext, PageError
from skitter.frontends.recipe.validation import is_open
from skitter.plugins import need
from skitter.request import Request
from skitter.response import Response
from skitter.web.urls import host_of, normalize
from skitter.worker.hooks import HookAction
from skitter.worker.retry import REDIRECTS


def submit(
    response: Response,
    query: str,
    values: Mapping[str, Any],
    button: str | bool,
    **request_fields: Any,
) -> Request:
    """Return the request that a form makes when it is sent with these values.

    ``query``: CSS that finds the form; ``button``: CSS of the one to press, within the form, false for none.
    Raises :class:`~skitter.frontends.recipe.page_context.PageError` if the page has no such form or button, or the form cannot be
    sent (file uploads).
    """
    form2request = need("form2request", "recipes", "forms")
    page = _with_base(response)
    forms = page.css(query)
    if not forms or forms[0].root.tag != "form":
        raise PageError(f"{response.url} has no form {query!r}", remedy="select a <form> of the page")
    click: Any = None if button is True else False
    if isinstance(button, str):
        found = forms[0].css(button)
        if not found:
            raise PageError(
                f"the form {query!r} of {response.url} has no {button!r}", remedy="correct submit"
            )
        click = found[0]
    texts = {name: value if isinstance(value, list) else str(value) for name, value in values.items()}
    try:
        sent = form2request.form2request(forms[0], texts, click=click)
    except (ValueError, NotImplementedError) as error:
        raise PageError(
            f"the form {query!r} of {response.url}: {error}", remedy="send it from code"
        ) from None
    headers = {**request_fields.pop("headers", {}), **dict(sent.headers)}
    url = normalize(sent.url) or sent.url
    return Request(url, method=sent.method, headers=headers, body=sent.body, **request_fields)


def _with_base(response: Response) -> Any:
    from parsel import Selector  # noqa: PLC0415 - only pages with forms need its tree

    return Selector(text=response.text, base_url=response.base_url)


ASK, SENT, CHECK = "login", "login_sent", "login_check"
"""Callbacks of the three steps."""
_FORM = "form:has(input[type=password])"


class LoginStep:
    """Logs in: fetch the form, send it, look at where it leads.

    It is a collection of hooks too: the redirect that answers the form has to come to its callback, for its cookies.
    """

    def __init__(self, login: Login, compile_context: CompileContext) -> None:
        need("form2request", "recipes", "forms")
        self._login = login
        self._form = login.form or _FORM
        self._check = Finder(login.check, compile_context.at("check", reads_json=False))
        if login.form is not None:
            Finder(login.form, compile_context.at("form", reads_json=False))
        url = normalize(login.url)
        self.host = "" if url is None else host_of(url)
        if not is_open(login.url) and (url is None or not url.startswith(("http://", "https://"))):
            compile_context.problem(f"{login.url!r} is no absolute http(s) URL", "write the whole URL", "url")

    def after_request(self, response: Response) -> HookAction | None:
        """Let a redirect come to the callback if it answers the form."""
        asked = response.request
        if asked is not None and asked.callback == SENT and response.status in REDIRECTS:
            return HookAction.IGNORE
        return None

    def is_own(self, url: str) -> bool:
        """Tell whether a URL is on the host of the login."""
        return host_of(normalize(url) or "") == self.host

    def first(self) -> Request:
        """Return the request for the form."""
        return Request(self._login.url, ASK)

    def fill_in(self, response: Response) -> Request:
        """Return the request that sends the form."""
        login = self._login
        return submit(
            response, self._form, login.fields, login.submit, callback=SENT, cookies=_cookies(response)
        )

    def look(self, response: Response) -> Iterator[Request]:
        """Give the request for the page behind the form, unless that is this one already."""
        if response.status not in REDIRECTS:
            return
        yield response.follow(
            response.header("location"),
            CHECK,
            cookies=_cookies(response),
            # The same page may be among the first pages of the crawl.
            meta={"login": "check"},
            fingerprint_keys=("login",),
        )

    def cookies(self, response: Response) -> dict[str, str]:
        """Return the cookies of who is logged in. Raises :class:`PageError` if nobody is."""
        if not self._check.find(PageContext(response, "login", {}).root):
            raise PageError(
                f"the login at {self._login.url} has failed: {response.url} has nothing like"
                f" {self._check.source!r}",
                remedy="check login.fields and login.check",
            )
        return _cookies(response)


def _cookies(response: Response) -> dict[str, str]:
    """Return the cookies that were sent, with those that the answer sets or takes back."""
    cookies = {} if response.request is None else dict(response.request.cookies)
    for line in response.headers.getall("set-cookie", []):
        try:
            found = SimpleCookie(line)
        except CookieError:
            continue
        for name, morsel in found.items():
            if morsel["max-age"] == "0":
                cookies.pop(name, None)
            else:
                cookies[name] = morsel.value
    return cookies
