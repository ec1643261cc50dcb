"""Errors of pages in a browser, and the classes of its network errors."""

from __future__ import annotations

import re

from skitter.errors import FetchError
from skitter.fetch.contract import (
    ConnectError,
    Disconnected,
    ProtocolError,
    ProxyError,
    TimedOut,
    TlsError,
    UndecodableBody,
    UnresolvedHost,
)


class BrowserGone(FetchError):
    """The browser or its driver has ended or hangs. The request is fetched again with a new browser."""

    kind = "browser"


class PageCrashed(FetchError):
    """The process of the page has ended."""

    kind = "crash"


class PageLimit(FetchError):
    """The page exceeds a limit: memory, bytes, requests, dialogs, pop-ups; or it opens an internal page of the browser."""

    kind = "page_limit"
    retryable = False


class ActionFailed(FetchError):
    """An action or a wait of the request has failed, for example because its element does not exist."""

    kind = "action"


_CLASSES: tuple[tuple[str, type[FetchError]], ...] = (
    (r"PROXY|TUNNEL|SOCKS", ProxyError),
    (r"CERT|SSL", TlsError),
    (r"NAME_NOT_RESOLVED|NAME_RESOLUTION", UnresolvedHost),
    (r"TIMED_OUT", TimedOut),
    (r"CONNECTION_(?:RESET|CLOSED|ABORTED)|EMPTY_RESPONSE|CONTENT_LENGTH|INCOMPLETE", Disconnected),
    (r"CONTENT_DECODING", UndecodableBody),
    (r"CONNECTION|ADDRESS|INTERNET", ConnectError),
    (r"INVALID|HTTP2|HEADERS|UNSAFE_PORT", ProtocolError),
)
_NET_ERROR = re.compile(r"net::ERR_([A-Z0-9_]+)")
_GONE = re.compile(
    r"(?:has been|been) closed|Connection closed|crashed|disconnected|Browser closed", re.IGNORECASE
)


def network_error(error: BaseException) -> FetchError:
    """Return the error of a page that did not load, from the text of a Playwright error."""
    text = first_line(error)
    found = _NET_ERROR.search(text)
    if found is None:
        kind: type[FetchError] = BrowserGone if is_gone(error) else FetchError
        return kind(text)
    kind = next((kind for pattern, kind in _CLASSES if re.search(pattern, found[1])), FetchError)
    return kind(f"the browser reports {found[0]}")


def is_gone(error: BaseException) -> bool:
    """Return whether an error says that the page, the browser or the driver has ended."""
    return bool(_GONE.search(str(error))) or isinstance(error, (ConnectionError, BrokenPipeError))


def first_line(error: BaseException) -> str:
    """Return the first line of an error. The other lines are the log of a call."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
