"""What a browser does with a page: when the page is complete, and the actions on it, as plain data.

The data is stored with the request, so any worker can perform the actions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from skitter._utils.patterns import compile_pattern
from skitter.errors import RequestError

WaitUntil = Literal["commit", "domcontentloaded", "load", "networkidle"]
"""Event after which a page counts as loaded: the first byte, the parsed document, all its resources, or 0.5 s without
network traffic."""


class _Action(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="do"):
    """Base of the actions. ``do`` is their name in plain data: ``{"do": "click", "selector": "#more"}``."""


class Click(_Action, frozen=True, tag="click"):
    """Click an element, when it is visible and enabled. ``optional``: skip the action if there is no such element."""

    selector: str
    optional: bool = False


class Fill(_Action, frozen=True, tag="fill"):
    """Replace the text of an input field."""

    selector: str
    text: str


class Select(_Action, frozen=True, tag="select"):
    """Choose an option of a ``<select>`` by its value or label."""

    selector: str
    value: str


class Press(_Action, frozen=True, tag="press"):
    """Press a key, such as ``Enter`` or ``Control+A``, in an element or on the page."""

    key: str
    selector: str = ""


class Hover(_Action, frozen=True, tag="hover"):
    """Move the mouse over an element, for example to open a menu."""

    selector: str


class ScrollToEnd(_Action, frozen=True, tag="scroll_to_end"):
    """Scroll to the end of the page once."""


class InfiniteScroll(_Action, frozen=True, tag="infinite_scroll"):
    """Scroll to the end until the page stops growing for ``timeout`` seconds, ``limit`` times at most."""

    limit: int = 100
    timeout: float = 1.0


class LoadMore(_Action, frozen=True, tag="load_more"):
    """Click an element until it is gone, hidden or disabled, or the page stops growing for ``timeout`` seconds.

    ``limit``: maximum number of clicks.
    """

    selector: str
    limit: int = 100
    timeout: float = 1.0


class Wait(_Action, frozen=True, tag="wait"):
    """Wait for an element (``selector``), a JavaScript expression (``function``) or a time in seconds.

    ``state``: what to wait for: the element is in the document (``attached``), can be seen (``visible``), cannot be seen
    (``hidden``) or is gone (``detached``).
    ``timeout``: time limit in seconds. ``None``: the time limit of the page.
    """

    selector: str = ""
    state: Literal["attached", "visible", "hidden", "detached"] = "attached"
    function: str = ""
    seconds: float = 0.0
    network_idle: bool = False
    timeout: float | None = None


class Evaluate(_Action, frozen=True, tag="evaluate"):
    """Run JavaScript. Its result, which must be a JSON value, becomes ``response.captured[name]``."""

    script: str
    name: str = "result"


class Screenshot(_Action, frozen=True, tag="screenshot"):
    """Take a screenshot (PNG) of the page or of one element. It becomes ``response.captured[name]``.

    ``full_page``: the whole page, not only the visible part.
    """

    name: str = "screenshot"
    selector: str = ""
    full_page: bool = True


class Pdf(_Action, frozen=True, tag="pdf"):
    """Print the page as PDF. It becomes ``response.captured[name]``."""

    name: str = "pdf"


Action = (
    Click | Fill | Select | Press | Hover | ScrollToEnd | InfiniteScroll | LoadMore | Wait | Evaluate | Screenshot | Pdf
)  # fmt: skip


class Browsing(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a browser loads a page.

    ``wait_until``
        Event after which the page counts as loaded. Empty, the default: the setting ``wait_until``.
    ``wait_for``
        What to wait for after that: a CSS selector, or a :class:`Wait`.
    ``actions``
        What to do then, in order.
    ``init_script``
        JavaScript to run in each document of the page, before its own scripts.
    ``record``
        Regular expression. The responses to sub-requests with a matching URL become ``response.captured["responses"]``: a list of
        mappings with ``url``, ``status`` and ``body`` (bytes), in the order in which they arrive.
    ``keep_page``
        Keep the page open for the callback, as ``response.page``. The engine closes it when the callback has ended.
    """

    wait_until: WaitUntil | Literal[""] = ""
    wait_for: str | Wait = ""
    actions: tuple[Action, ...] = ()
    init_script: str = ""
    record: str = ""
    keep_page: bool = False

    def __post_init__(self) -> None:
        """Check the regular expression. Raises :class:`ValueError`, which msgspec reports as a validation error."""
        try:
            compile_pattern(self.record)
        except re.error as error:
            raise ValueError(f"invalid regular expression in record: {error}") from error

    @property
    def needs_browser(self) -> bool:
        """Whether the request needs a browser even if the page needs no JavaScript."""
        return bool(self.actions or self.init_script or self.record or self.keep_page)

    def over(self, general: Browsing) -> Browsing:
        """Return these options, with missing values taken from more general options."""
        names = self.__struct_fields__
        return Browsing(**{name: getattr(self, name) or getattr(general, name) for name in names})


PLAIN_BROWSING = Browsing()


def browsing_of(value: Browsing | Mapping[str, Any]) -> Browsing:
    """Return plain data as a :class:`Browsing`. An action may be plain data or an object.

    Raises :class:`~skitter.errors.RequestError` for unknown fields, actions and values.
    """
    if isinstance(value, Browsing) and all(isinstance(action, _Action) for action in value.actions):
        return msgspec.structs.replace(value, actions=tuple(value.actions))
    try:
        return msgspec.convert(msgspec.to_builtins(value), Browsing)
    except (msgspec.ValidationError, TypeError) as error:
        path = re.search(r"`\$?\.?([^`]*)`$", str(error))
        raise RequestError(
            f"invalid browsing options: {error}",
            remedy="see the classes of skitter.browsing",
            field=f"browsing.{path[1]}" if path else "browsing",
        ) from error


def remaining(browsing: Browsing, done: int) -> Browsing:
    """Return the options without the first ``done`` actions, for a page that an action has opened."""
    return msgspec.structs.replace(browsing, wait_for="", actions=browsing.actions[done:])
