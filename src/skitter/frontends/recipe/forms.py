"""Forms: filled in and sent as a browser would, with their hidden fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skitter.frontends.recipe.context import PageError
from skitter.plugins import need
from skitter.request import Request
from skitter.response import Response
from skitter.web.urls import normalize


def submit(
    response: Response,
    query: str,
    values: Mapping[str, Any],
    button: str | bool,
    **request_fields: Any,
) -> Request:
    """Return the request that a form makes when it is sent with these values.

    ``query``: CSS that finds the form; ``button``: CSS of the one to press, within the form, false for none.
    Raises :class:`~skitter.frontends.recipe.context.PageError` if the page has no such form or button, or the form cannot be
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
