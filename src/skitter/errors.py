"""The errors that skitter raises, each with a message and a remedy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skitter.response import Response


class SkitterError(Exception):
    """Base of all errors that skitter raises deliberately.

    ``remedy`` is one imperative sentence. The command line prints it after the message, and a traceback shows it as a note. ``field`` names the invalid
    setting, option, argument or record field, if there is one. Programs and tests match errors by class and field; the
    message may change at any time.
    """

    def __init__(self, message: str, *, remedy: str = "", field: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy
        self.field = field
        if remedy:
            self.add_note(remedy)


class UsageError(SkitterError):
    """An invalid call, option or argument."""


class RequestError(UsageError):
    """An invalid request, for example with an invalid URL, an unknown field value, or ``meta`` that cannot be stored."""


class QueryError(UsageError, ValueError):
    """An invalid CSS, XPath or JMESPath query, or a query that the kind of page does not support."""


class FormError(RequestError):
    """A form that a page does not contain or that cannot be sent."""


class MissingFingerprintKey(RequestError):
    """A request whose ``meta`` lacks one of its fingerprint keys."""


class UndecodableRecord(SkitterError):
    """A stored request that this version cannot read. The request becomes a dead letter."""


class SettingsError(UsageError):
    """An unknown setting, or a value outside the allowed range."""


class SpiderError(UsageError):
    """A spider that cannot be found, imported or built."""


class NoSeeds(SpiderError):
    """A spider without start requests. This is an error only for a job without seeds from outside."""


class PageTooComplex(SkitterError):
    """A page that would take too much memory or time to parse. The request becomes a dead letter."""


class RetryRequest(SkitterError):
    """Raised by a callback, a hook or an errback to fetch the page again. The attempt counts, and the backoff applies.

    ``blocked``: the site has blocked the identity of the request, as a page with a captcha shows. Its session is retired, its
    proxy is not used for ``proxy_cooldown`` seconds, and the next attempt has others. Without the settings ``sessions`` and
    ``proxies``, this has no effect.
    """

    def __init__(self, message: str, *, blocked: bool = False, remedy: str = "", field: str = "") -> None:
        super().__init__(message, remedy=remedy, field=field)
        self.blocked = blocked


class DeferRequest(SkitterError):
    """Raised by a ``before_request`` hook to fetch the request later. The attempt does not count.

    ``seconds``: the delay. ``slot``: pause the whole slot. The request then keeps its place, and the other requests of the
    slot are not leased and returned one by one. Set it only if no request of the slot may be fetched.
    """

    def __init__(self, message: str, seconds: float, *, slot: bool = False) -> None:
        super().__init__(message)
        self.seconds = seconds
        self.slot = slot


class FetchError(SkitterError):
    """A request without a usable response. ``kind`` names the cause, such as ``timeout``, for counters and retry rules."""

    kind = "fetch"
    retryable = True
    """Whether the same request may succeed later."""
    free = False
    """Whether the attempt does not count, because it failed before it reached the server."""
    unreachable = False
    """Whether no connection to the origin could be opened, so that its other requests would fail too. A fetcher sets it."""
    module = ""
    """Id of the downloader, if there are several."""


class StatusError(Exception):
    """The server responded with an error status.

    ``status``, ``response``: the status, and the response with its body.
    """

    def __init__(self, status: int, response: Response) -> None:
        super().__init__(f"the server responded with {status}")
        self.status = status
        self.response = response


class RedirectError(Exception):
    """A redirect that cannot be followed. The message starts with its kind."""


class FrontierError(SkitterError):
    """A frontier that cannot work, for example with a full disk, a file of another format, or an owner that has ended."""


class SeedKeyError(FrontierError, UsageError):
    """A seed key that contains a value other than seeds."""


class StoreError(SkitterError):
    """An output that cannot be opened or written."""


class CrawlFailed(SkitterError):
    """The crawl was ended by a hook, its seeds or a store. Committed data is kept, and the next run resumes.

    ``is_usage``: whether the cause is a user error that appeared only during the run, such as a seed with an invalid URL.
    """

    def __init__(self, message: str, *, remedy: str = "", is_usage: bool = False) -> None:
        super().__init__(message, remedy=remedy)
        self.is_usage = is_usage


def is_usage(error: BaseException) -> bool:
    """Return whether an error is a user error, reported at once or during the run."""
    return isinstance(error, UsageError) or (isinstance(error, CrawlFailed) and error.is_usage)


def did_you_mean(wrong: object, known: Iterable[str]) -> str:
    """Return a remedy for an unknown word: the closest known word, or all known words."""
    names = list(known)
    near = close_names(str(wrong), names)
    return f"did you mean {near[0]}?" if near else f"one of: {', '.join(names)}"


def with_article(noun: str) -> str:
    """Return a noun, such as the name of a class, with its indefinite article: ``an object``, ``a lock``."""
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural, for messages: ``1 request``, ``2,000 requests``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def close_names(wrong: str, known: Iterable[str], *, most: int = 1, cutoff: float = 0.6) -> Sequence[str]:
    """Return the known names that are most similar to a wrong one; see :func:`difflib.get_close_matches`."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for errors

    return get_close_matches(wrong, list(known), most, cutoff)
