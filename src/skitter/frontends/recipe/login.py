"""Login: a form is sent before anything else, and its cookies go with every later request to that host.

They travel in the requests themselves, so that all workers have them, also after a restart; which is why they stand in
the frontier's file.
"""

from __future__ import annotations

from collections.abc import Iterator
from http.cookies import CookieError, SimpleCookie

from skitter.frontends.recipe.context import Context, PageError
from skitter.frontends.recipe.finder import Finder
from skitter.frontends.recipe.forms import submit
from skitter.frontends.recipe.model import Login
from skitter.frontends.recipe.variables import is_open
from skitter.frontends.recipe.workshop import Workshop
from skitter.plugins import need
from skitter.request import Request
from skitter.response import Response
from skitter.web.urls import host_of, normalize
from skitter.worker.hooks import HookAction
from skitter.worker.retry import REDIRECTS

ASK, SENT, CHECK = "login", "login_sent", "login_check"
"""Callbacks of the three steps."""
_FORM = "form:has(input[type=password])"


class LoginStep:
    """Logs in: fetch the form, send it, look at where it leads.

    It is a collection of hooks too: the redirect that answers the form has to come to its callback, for its cookies.
    """

    def __init__(self, login: Login, workshop: Workshop) -> None:
        need("form2request", "recipes", "forms")
        self._login = login
        self._form = login.form or _FORM
        self._check = Finder(login.check, workshop.at("check", reads_json=False))
        if login.form is not None:
            Finder(login.form, workshop.at("form", reads_json=False))
        url = normalize(login.url)
        self.host = "" if url is None else host_of(url)
        if not is_open(login.url) and (url is None or not url.startswith(("http://", "https://"))):
            workshop.problem(f"{login.url!r} is no absolute http(s) URL", "write the whole URL", "url")

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
        if not self._check.find(Context(response, "login", {}).root):
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
