"""Errors a user of skitter can meet; each says what is wrong and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SkitterError(Exception):
    """Base of every error that skitter raises on purpose.

    ``remedy`` is one sentence that tells the reader what to do; the command line prints it after the message.
    ``field`` names the setting, option, argument or record field at fault, if there is one. Programs and tests
    match errors by class and field; the message may change at any time.
    """

    def __init__(self, message: str, *, remedy: str = "", field: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy
        self.field = field


class UsageError(SkitterError):
    """The caller asked for something that cannot be done as asked."""


class RequestError(UsageError):
    """A request that cannot be built: bad URL, unknown field value, unserialisable meta."""


class MissingFingerprintKey(RequestError):
    """A request names an extra fingerprint key that its ``meta`` does not hold."""


class UndecodableRecord(SkitterError):
    """A stored request that this version cannot read; the request goes to the dead letters."""


class SettingsError(UsageError):
    """An unknown setting, or a value outside the allowed range."""


class SpiderError(UsageError):
    """A spider that cannot be found, imported or built."""


class NoSeeds(SpiderError):
    """A spider that has nothing to start from. No error for a job that gets its seeds from outside."""


class RetryRequest(SkitterError):
    """Raised by a callback that wants its page again: the attempt counts and the back-off applies."""


class DeferRequest(SkitterError):
    """Raised by a ``before_request`` hook that will not have the request fetched now: no attempt counts.

    ``seconds``: for how long. ``slot``: nothing else of its slot either (nothing that may be fetched waits there), so
    that the request keeps its place and the others are not taken one by one only to be put back.
    """

    def __init__(self, message: str, seconds: float, *, slot: bool = False) -> None:
        super().__init__(message)
        self.seconds = seconds
        self.slot = slot


class FrontierError(SkitterError):
    """The frontier cannot do its work (disk full, file of another format, owner gone)."""


class SeedKeyError(FrontierError, UsageError):
    """A key that was named as one of seeds and holds something else."""


class StoreError(SkitterError):
    """An output that cannot be opened or written."""


class CrawlFailed(SkitterError):
    """A hook, the seeds or a store ended the crawl. Everything committed is kept; a rerun resumes.

    ``is_usage``: it is a mistake of the caller that showed only on the way, such as a seed that is no URL.
    """

    def __init__(self, message: str, *, remedy: str = "", is_usage: bool = False) -> None:
        super().__init__(message, remedy=remedy)
        self.is_usage = is_usage


def is_usage(error: BaseException) -> bool:
    """Tell whether an error is a mistake of the caller, shown at once or on the way."""
    return isinstance(error, UsageError) or (isinstance(error, CrawlFailed) and error.is_usage)


def did_you_mean(wrong: object, known: Iterable[str]) -> str:
    """Return a remedy for an unknown word: the closest known one, or all of them."""
    names = list(known)
    near = difflib.get_close_matches(str(wrong), names, n=1)
    return f"did you mean {near[0]}?" if near else f"one of: {', '.join(names)}"
