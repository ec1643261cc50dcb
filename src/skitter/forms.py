"""Forms: requests that send a form of a page like a browser, and the bodies of such requests."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec
import xxhash
from cssselect import SelectorError

from skitter.errors import FormError, RequestError
from skitter.html.selector import parsel_selector
from skitter.plugins import need
from skitter.request import URLENCODED, Request
from skitter.web.encoding import codec_of
from skitter.web.headers import with_defaults
from skitter.web.urls import normalize

if TYPE_CHECKING:
    from skitter.response import Response

_MULTIPART = "multipart/form-data"
_CONTROLS = "*[self::input or self::select or self::textarea or self::button]"
_UNSENT = (
    f"descendant::{_CONTROLS}[@disabled]"
    f"|descendant::fieldset[@disabled]/descendant::{_CONTROLS}[not(ancestor::legend/parent::fieldset[@disabled])]"
    f"|descendant::datalist/descendant::{_CONTROLS}"
    "|descendant::input[translate(@type, 'BUTON', 'buton') = 'button']"
    "|descendant::select[descendant::option[@selected and (@disabled or parent::optgroup[@disabled])]][not(@multiple)]"
    "|descendant::option[@disabled]|descendant::optgroup[@disabled]"
)
"""Parts of a form that browsers do not send (WHATWG HTML, 4.10.22.4)."""


class FormFile(msgspec.Struct, frozen=True):
    """A file in a form: its name, its content and its media type (RFC 7578)."""

    name: str
    content: bytes
    content_type: str = "application/octet-stream"


Pairs = list[tuple[str, str | FormFile]]


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
    # lxml's tree keeps fields inside a form that an HTML5 parser moves out of it, as in <table><form><tr>.
    page = parsel_selector(text=response.text, type="html", base_url=response.base_url)
    form = _form_in(page, css, response)
    unsent = _names(form.root)
    _take_fields(page.root, form.root)
    _warn_of_unknown({**unsent, **_names(form.root)}, fields)
    action = (form.root.get("action") or "").strip()
    form.root.set("action", response.encode_query(action) or response.url)  # if empty, not the base URL
    button = _clicked_button(form, click, css, response)
    files = {
        name: list(_listed(value))
        for name, value in fields.items()
        if any(isinstance(part, FormFile) for part in _listed(value))
    }
    texts = {name: _texts(name, value) for name, value in fields.items() if name not in files}
    try:
        sent = form2request.form2request(
            form, {**texts, **dict.fromkeys(files)}, click=button, method="POST", enctype=URLENCODED
        )
    except (ValueError, NotImplementedError) as error:
        raise _unsendable(response, css, str(error)) from None
    pairs: Pairs = list(parse_qsl(sent.body.decode(), keep_blank_values=True))
    pairs = _with_image_button(pairs, button)
    pairs += [(name, file) for name, several in files.items() for file in several]
    method, enctype = _method_and_enctype(form.root, button)
    if method not in {"get", "post"}:
        raise _unsendable(response, css, f"its method is {method!r}")
    if files and (method == "get" or enctype != _MULTIPART):
        _warn_of_unsent(files)
    codec = _codec(form.root, response)
    url = normalize(sent.url) or sent.url
    if method == "get":
        url = urlsplit(url)._replace(query=_urlencoded(pairs, codec), fragment="").geturl()
        return Request(url, method="GET", **request_fields)
    body, content_type = _body(pairs, enctype, codec, _file_fields(form.root))
    headers = with_defaults({"Content-Type": content_type}, request_fields.pop("headers", {}))
    return Request(url, method="POST", headers=headers, body=body, **request_fields)


_SUBMIT = (
    "descendant::input[translate(@type, 'SUBMITAGE', 'submitage') = 'submit' or"
    " translate(@type, 'SUBMITAGE', 'submitage') = 'image']"
    "|descendant::button[not(@type) or translate(@type, 'SUBMIT', 'submit') = 'submit']"
)


def _form_in(page: Any, css: str, response: Response) -> Any:
    """Return the first form that a query selects. Raises :class:`~skitter.errors.FormError` if there is none."""
    found = _matches(page, css, "css")
    form = next((node for node in found if getattr(node.root, "tag", None) == "form"), None)
    if form is None:
        raise FormError(f"{response.url} has no form {css!r}", remedy="select a <form> element", field="form")
    return form


def _clicked_button(form: Any, click: str | bool, css: str, response: Response) -> Any:
    """Return the button that sends a form; ``False`` if no button is clicked.

    ``click``: a query for the button, or whether to click the first button, if the form has one.
    """
    if isinstance(click, str):
        buttons = _matches(form, click, "click")
        if not buttons:
            raise FormError(
                f"the form {css!r} of {response.url} has no button {click!r}",
                remedy="correct the query of the button",
                field="click",
            )
        return buttons[0].root
    button = next(iter(form.xpath(_SUBMIT)), None) if click else None
    return False if button is None else button.root


def _matches(page: Any, css: str, field: str) -> Any:
    try:
        return page.css(css)
    except (SelectorError, ValueError) as error:
        raise FormError(
            f"invalid CSS query {css!r}: {error}", remedy=f"correct {field}", field=field
        ) from None


def _unsendable(response: Response, css: str, reason: str) -> FormError:
    return FormError(
        f"cannot send the form {css!r} of {response.url}: {reason}",
        remedy="build the request yourself: Request(url, method=..., body=...)",
        field="form",
    )


def _take_fields(page: Any, form: Any) -> None:
    """Add fields outside the form that refer to it, and remove fields that it does not send."""
    name = form.get("id")
    for control in page.xpath(f"//{_CONTROLS}[@form]"):
        if name and control.get("form") == name:
            form.append(control)
        elif form in control.iterancestors():
            _remove(control)
    for part in form.xpath(_UNSENT):
        _remove(part)
    for area in form.iter("textarea"):
        area.text = (area.text or "").removeprefix("\n")  # as HTML parsers do
    for button in form.xpath(_SUBMIT):
        if button.get("value") is None:
            button.set("value", "")


def _names(form: Any) -> dict[str, None]:
    found = (control.get("name") for control in form.xpath(f"descendant::{_CONTROLS}"))
    return {name: None for name in found if name}


def _warn_of_unknown(known: Mapping[str, None], fields: Mapping[str, Any]) -> None:
    """Warn about values for fields that a form does not have, once for each line of a spider that sends them."""
    for name, value in fields.items():
        if name not in known and value is not None:
            warnings.warn(
                f"the form has no field {name!r}, which is sent anyway; its fields are {', '.join(known)}",
                stacklevel=4,
            )


def _warn_of_unsent(files: Mapping[str, Any]) -> None:
    """Warn about files whose content a form does not send, once for each line of a spider that sends them."""
    warnings.warn(
        f"the form is not multipart/form-data, so it sends only the name of the file {', '.join(map(repr, files))};"
        " to upload the content, send the body of skitter.forms.encode_multipart(...) with Request(url, method='POST', ...)",
        stacklevel=4,
    )


def _remove(element: Any) -> None:
    if element.getparent() is not None:
        element.drop_tree()


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else [value]


def _texts(name: str, value: Any) -> str | list[str] | None:
    if any(isinstance(part, (bytes, bytearray)) for part in _listed(value)):
        raise FormError(
            f"the form field {name!r} is bytes",
            remedy="pass text, which is encoded as the form requires, or a FormFile",
            field=name,
        )
    if isinstance(value, (list, tuple)):
        return [str(part) for part in value if part is not None]
    return None if value is None else str(value)


def _with_image_button(pairs: Pairs, button: Any) -> Pairs:
    """Replace the value of a clicked image by the coordinates of the click."""
    if button is False or (button.get("type") or "").lower() != "image":
        return pairs
    name = button.get("name")
    prefix = f"{name}." if name else ""
    return [pair for pair in pairs if pair[0] != name] + [(f"{prefix}x", "0"), (f"{prefix}y", "0")]


def _method_and_enctype(form: Any, button: Any) -> tuple[str, str]:
    """Return the method and the encoding type in lower case. Attributes of the button take precedence."""

    def value(name: str) -> str:
        override = None if button is False else button.get(f"form{name}")
        return (override or form.get(name) or "").strip().lower()

    return value("method") or "get", value("enctype")


def _codec(form: Any, response: Response) -> str:
    """Return the codec of the fields, from ``accept-charset`` or the page. UTF-16 and UTF-32 are replaced by UTF-8."""
    labels = (form.get("accept-charset") or "").replace(",", " ").split()
    codec = next(filter(None, map(codec_of, labels)), response.encoding)
    return "utf-8" if codec.startswith(("utf-16", "utf-32")) else codec


def _file_fields(form: Any) -> set[str]:
    return {field.get("name") for field in form.iter("input") if (field.get("type") or "").lower() == "file"}


def _line_ends(text: str) -> str:
    return re.sub(r"\r\n|\r|\n", "\r\n", text)


def _urlencoded(pairs: Pairs, codec: str) -> str:
    plain = [
        (name, _line_ends(value.name if isinstance(value, FormFile) else value)) for name, value in pairs
    ]
    return urlencode(plain, encoding=codec, errors="xmlcharrefreplace")


def _body(pairs: Pairs, enctype: str, codec: str, file_fields: set[str]) -> tuple[bytes, str]:
    """Return the body and its ``Content-Type``."""
    if enctype == _MULTIPART:
        parts = [(name, _part(value, codec, is_file=name in file_fields)) for name, value in pairs]
        return encode_multipart(parts)
    if enctype == "text/plain":
        lines = [
            f"{name}={value.name if isinstance(value, FormFile) else value}\r\n" for name, value in pairs
        ]
        return "".join(lines).encode(codec, "xmlcharrefreplace"), "text/plain"
    return _urlencoded(pairs, codec).encode(), URLENCODED


def _part(value: str | FormFile, codec: str, *, is_file: bool) -> bytes | FormFile:
    if isinstance(value, FormFile):
        return value
    if is_file and not value:
        return FormFile("", b"")  # what browsers send for a field without a file
    return _line_ends(value).encode(codec, "xmlcharrefreplace")


def encode_multipart(
    parts: Mapping[str, str | bytes | FormFile] | Sequence[tuple[str, str | bytes | FormFile]],
) -> tuple[bytes, str]:
    """Return parts as ``multipart/form-data`` (RFC 7578), and the value of its ``Content-Type``.

    The boundary is derived from the content, so equal forms are equal requests. Raises
    :class:`~skitter.errors.RequestError` for a content type with a line break.
    """
    pieces = [_piece(name, value) for name, value in (parts.items() if isinstance(parts, Mapping) else parts)]
    boundary = f"skitter-{xxhash.xxh3_128_hexdigest(b'|'.join(pieces))}"
    mark = f"--{boundary}\r\n".encode()
    body = b"".join(mark + piece + b"\r\n" for piece in pieces) + f"--{boundary}--\r\n".encode()
    return body, f"multipart/form-data; boundary={boundary}"


def _piece(name: str, value: str | bytes | FormFile) -> bytes:
    head = f'Content-Disposition: form-data; name="{_quoted(name)}"'
    if isinstance(value, FormFile):
        if _find_line_break(value.content_type):
            raise RequestError(
                f"invalid content type {value.content_type!r}: it contains a line break",
                remedy="remove the line break",
                field="content_type",
            )
        head += f'; filename="{_quoted(value.name)}"\r\nContent-Type: {value.content_type}'
    content = value.content if isinstance(value, FormFile) else value
    return f"{head}\r\n\r\n".encode() + (content.encode() if isinstance(content, str) else content)


_find_line_break = re.compile(r"[\r\n]").search


def _quoted(text: str) -> str:
    """Escape quotes and line breaks in a name, as browsers do (HTML standard, multipart/form-data encoding)."""
    return text.replace("\n", "%0A").replace("\r", "%0D").replace('"', "%22")
