"""Forms: requests that send a form of a page as a browser does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cssselect import SelectorError

from skitter.errors import FormError
from skitter.html.selector import parsel_selector
from skitter.plugins import need
from skitter.request import Request
from skitter.web.urls import normalize

if TYPE_CHECKING:
    from skitter.response import Response


def form_request(
    response: Response,
    fields: Mapping[str, Any],
    css: str,
    click: str | bool,
    **request_fields: Any,
) -> Request:
    """Return the request that sends a form; see :meth:`Response.form <skitter.Response.form>`.

    Raises :class:`~skitter.errors.FormError`.
    """
    form2request = need("form2request", "forms", "forms")
    # The tree of lxml keeps fields inside a form that HTML5 takes out of it, as in <table><form><tr>.
    page = parsel_selector(text=response.text, type="html", base_url=response.base_url)
    try:
        found = page.css(css)
    except (SelectorError, ValueError) as error:
        raise FormError(f"invalid CSS query {css!r}: {error}", remedy="correct css", field="css") from None
    form = next((one for one in found if getattr(one.root, "tag", None) == "form"), None)
    if form is None:
        raise FormError(f"{response.url} has no form {css!r}", remedy="select a <form> element", field="form")
    button: Any = None if click is True else False
    if isinstance(click, str):
        buttons = form.css(click)
        if not buttons:
            raise FormError(
                f"the form {css!r} of {response.url} has no button {click!r}",
                remedy="correct the query of the button",
                field="click",
            )
        button = buttons[0]
    texts = {
        name: list(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
        for name, value in fields.items()
    }
    try:
        sent = form2request.form2request(form, texts, click=button)
    except (ValueError, NotImplementedError) as error:
        raise FormError(
            f"cannot send the form {css!r} of {response.url}: {error}",
            remedy="build the request yourself: Request(url, method=..., body=...)",
            field="form",
        ) from None
    headers = {**request_fields.pop("headers", {}), **dict(sent.headers)}
    url = normalize(sent.url) or sent.url
    return Request(url, method=sent.method, headers=headers, body=sent.body, **request_fields)
