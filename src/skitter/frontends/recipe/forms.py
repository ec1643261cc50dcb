"""Forms that are filled in and sent as by a browser, with their hidden fields; and the login form of a recipe.

The cookies of a login are sent with every later request to its host. They are stored in the requests, so that all
workers have them, even after a restart.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from skitter.errors import FormError
from skitter.fetch.cookie_jar import parse_set_cookie
from skitter.fetch.cookies import received_text
from skitter.forms import form_request
from skitter.frontends.recipe.compile_context import CompileContext
from skitter.frontends.recipe.finder import Finder
from skitter.frontends.recipe.model import Login
from skitter.frontends.recipe.page_context import PageContext, PageError
from skitter.frontends.recipe.validation import is_open
from skitter.plugins import need
from skitter.request import Request
from skitter.response import Response
from skitter.web.headers import REDIRECTS, url_in_header
from skitter.web.urls import host_of, may_carry_cookies, normalize
from skitter.worker.hooks import HookAction


def submit(
    response: Response,
    query: str,
    values: Mapping[str, Any],
    button: str | bool,
    **request_fields: Any,
) -> Request:
    """Return the request that sends a form with these values.

    ``query``
        CSS query of the form.
    ``button``
        CSS query of the button within the form. ``True``: the first button, ``False``: none.

    Raises :class:`~skitter.frontends.recipe.page_context.PageError` if the page lacks the form or the button, or the
    form cannot be sent (file uploads).
    """
    try:
        return form_request(response, values, query, button, **request_fields)
    except FormError as error:
        field = "submit" if error.field == "click" else "form"
        raise PageError(str(error), remedy=error.remedy, field=field) from None


LOGIN = "login"
"""Name of the callback of all steps."""
ASK, SENT, CHECK = "form", "sent", "check"
"""The steps, as the argument ``step`` of the callback: the page has the form, is the response to it, or lies behind it."""
_FORM = "form:has(input[type=password])"


class LoginStep:
    """Logs in: fetches the form, sends it, and checks the page behind it.

    It is also a hook: a redirect in response to the form is passed to its callback, which reads its cookies.
    The page with the form and the page behind it may be start pages as well. Therefore their requests have fingerprints
    of their own: a start page is fetched again, with the cookies.
    """

    def __init__(self, login: Login, compile_context: CompileContext) -> None:
        need("form2request", "recipes", "forms")
        self._login = login
        self._form = login.form or _FORM
        self._check = Finder(login.check, compile_context.at("check", reads_json=False))
        if login.form is not None:
            Finder(login.form, compile_context.at("form", reads_json=False))
        url = self._url = normalize(login.url)
        self.host = "" if url is None else host_of(url)
        if not is_open(login.url) and (url is None or not url.startswith(("http://", "https://"))):
            compile_context.problem(
                f"not an absolute http(s) URL: {login.url!r}", "write the whole URL", "url"
            )

    def after_request(self, response: Response) -> HookAction | None:
        """Pass a redirect in response to the form to the callback."""
        request = response.request
        if request is not None and request.cb_kwargs.get("step") == SENT and response.status in REDIRECTS:
            return HookAction.IGNORE
        return None

    def is_own(self, url: str) -> bool:
        """Return whether a URL gets the cookies of the login: it is on its host, and not http after a login by https."""
        target = normalize(url)
        return target is not None and self._url is not None and may_carry_cookies(self._url, target)

    def first(self) -> Request:
        """Return the request for the form."""
        return Request(
            self._login.url, LOGIN, cb_kwargs={"step": ASK}, meta={"login": ASK}, fingerprint_keys=("login",)
        )

    def fill_in(self, response: Response) -> Request:
        """Return the request that sends the form."""
        login = self._login
        return submit(
            response, self._form, login.fields, login.submit,
            callback=LOGIN, cb_kwargs={"step": SENT}, cookies=_cookies(response),
        )  # fmt: skip

    def next_page(self, response: Response) -> Iterator[Request]:
        """Yield the request for the page behind the form, if the response redirects to it."""
        if response.status not in REDIRECTS:
            return
        yield response.follow(
            url_in_header(response.header("location")),
            LOGIN,
            cb_kwargs={"step": CHECK},
            cookies=_cookies(response),
            meta={"login": CHECK},
            fingerprint_keys=("login",),
        )

    def cookies(self, response: Response) -> dict[str, str]:
        """Return the cookies of the login.

        Raises :class:`~skitter.frontends.recipe.page_context.PageError` if the login failed.
        """
        if not self._check.find(PageContext(response, "login", {}).root):
            raise PageError(
                f"the login at {self._login.url} failed: {response.url} does not contain {self._check.source!r}",
                remedy="check login.fields and login.check",
                field="login.check",
            )
        return _cookies(response)


def _cookies(response: Response) -> dict[str, str]:
    """Return the cookies of the request, changed by the response."""
    cookies = {} if response.request is None else dict(response.request.cookies)
    now = time.time()
    for line in response.headers.getall("set-cookie", []):
        found = parse_set_cookie(line, now)
        if found is None or not found.name:
            continue
        if found.expires is not None and found.expires <= now:
            cookies.pop(found.name, None)
        else:
            cookies[found.name] = received_text(found.value, "replace")
    return cookies
