"""Fetches, stores and evaluates robots.txt files according to RFC 9309."""

from __future__ import annotations

import time
from enum import StrEnum

import msgspec

from skitter.errors import FetchError
from skitter.fetch.contract import UNCONDITIONAL, Fetcher, ForbiddenAddress, SendPermit
from skitter.fetch.robots_rules import RobotsPolicy
from skitter.request import Request
from skitter.response import Response
from skitter.web.headers import REDIRECTS, THROTTLED, parse_retry_after, url_in_header
from skitter.web.urls import normalize

MAX_REDIRECTS = 5
"""Maximum number of redirects to follow, including redirects to other hosts (RFC 9309, 2.3.1.2)."""

MAX_PARSED = 500 * 1024
"""Number of bytes of a robots.txt that are read. The rest is ignored (RFC 9309, 2.5)."""

RECORD_VERSION = 1


class RobotsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How long robots.txt files are kept, and how long an origin waits while its robots.txt is unavailable."""

    ttl: float = 86_400.0
    """Time in seconds for which a robots.txt is kept; at most a day (RFC 9309, 2.4)."""
    first_deferral: float = 10.0
    """Seconds to wait after the first failure. Doubles with each further failure."""
    longest_deferral: float = 3_600.0
    """Maximum wait in seconds."""
    max_failures: int = 5
    """Number of failures in a row after which the waiting requests fail. With the other defaults, this takes five minutes.
    The RFC permits unrestricted crawling after 30 days; skitter never does it."""
    retry_after_cap: float = 900.0
    """Longest ``Retry-After`` in seconds for which requests wait. If a server asks for more, they fail."""
    max_cached: int = 10_000
    """Maximum number of parsed files that one process keeps."""


class RobotsState(StrEnum):
    """Result of an attempt to fetch a robots.txt."""

    RULES = "rules"
    """The host has a robots.txt (2xx), or an earlier one is kept while the host does not respond."""
    UNAVAILABLE = "unavailable"
    """The host has no robots.txt (4xx, or an endless redirect): everything is allowed (RFC 9309, 2.3.1.3)."""
    UNREACHABLE = "unreachable"
    """A server error, or 429: nothing is allowed for now (RFC 9309, 2.3.1.4)."""


class RobotsRecord(msgspec.Struct, frozen=True, array_like=True):
    """The robots.txt of one origin, small enough to share with all workers."""

    state: RobotsState
    fetched_at: float
    """Unix time."""
    ttl: float
    """Seconds for which the record is valid. For ``UNREACHABLE``: seconds to wait."""
    body: bytes = b""
    failures: int = 0
    """Number of failed attempts in a row."""
    error: str = ""
    """Error of the last failed attempt, starting with its kind."""
    version: int = RECORD_VERSION
    throttled: bool = False
    """Whether the server asked for fewer requests (429 or 503). It concerns the whole host."""

    def holds(self, now: float) -> bool:
        """Return whether the record is still valid at a Unix time."""
        # A record from the future means that the clock was set back. It must not stay valid without limit.
        return -self.ttl < now - self.fetched_at < self.ttl


encode_record = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(RobotsRecord).decode


def decode_record(data: bytes | None) -> RobotsRecord | None:
    """Return a shared record. ``None`` for a missing record, or one that this version cannot read."""
    if data is None:
        return None
    try:
        record = _decode(data)
    except msgspec.MsgspecError:
        return None
    return record if record.version == RECORD_VERSION else None


class Deferred(msgspec.Struct, frozen=True):
    """The robots.txt is unavailable for now: nothing of this origin may be fetched."""

    seconds: float
    """Seconds to wait, from now."""
    exhausted: bool
    """Whether it failed too often, so that the waiting requests fail."""
    error: str
    throttled: bool = False
    """Whether the server asked for fewer requests (429 or 503)."""


async def fetch_robots(
    fetcher: Fetcher,
    origin: str,
    settings: RobotsSettings,
    previous: RobotsRecord | None = None,
    *,
    permit: SendPermit = UNCONDITIONAL,
    timeout: float | None = None,
) -> RobotsRecord:
    """Fetch the robots.txt of an origin, and return the result as a record.

    ``previous``
        The last record of this origin, expired or not. It contains the number of failures in a row. Its rules stay in
        force while the host does not respond (RFC 9309, 2.4).
    ``permit``
        The permit of the first request. Redirects need no further permit.
    ``timeout``
        Time limit of the first request in seconds. ``None``: as for any request.

    Raises :class:`~skitter.errors.FetchError` if the origin does not respond and ``previous`` has no rules, or if
    the address is forbidden.
    """
    url = f"{origin}/robots.txt"
    has_responded = False
    try:
        for _ in range(MAX_REDIRECTS + 1):
            response = await fetcher.fetch(
                Request(url, timeout=timeout, max_body=MAX_PARSED, truncate_body=True), permit=permit
            )
            permit, timeout, has_responded = UNCONDITIONAL, None, True
            target = redirect_target(response)
            if target is None:
                return _judge(response, settings, previous)
            url = target
    except ForbiddenAddress:
        raise  # waiting would not help
    except FetchError as error:
        has_rules = previous is not None and previous.state is RobotsState.RULES
        if error.free or not (has_responded or has_rules):
            raise
        return _unreachable(f"{error.kind}: {error}", settings, previous)
    return RobotsRecord(RobotsState.UNAVAILABLE, time.time(), settings.ttl)


def redirect_target(response: Response) -> str | None:
    """Return the absolute URL to which a response redirects; ``None`` if it does not."""
    location = response.headers.get("Location")
    if response.status not in REDIRECTS or not location:
        return None
    target = normalize(url_in_header(location), response.url)
    return target if target is not None and target.startswith(("http://", "https://")) else None


def _judge(response: Response, settings: RobotsSettings, previous: RobotsRecord | None) -> RobotsRecord:
    status, now = response.status, time.time()
    if 200 <= status < 300:
        return RobotsRecord(RobotsState.RULES, now, settings.ttl, response.body[:MAX_PARSED])
    if 300 <= status < 500 and status != 429:
        return RobotsRecord(RobotsState.UNAVAILABLE, now, settings.ttl)
    wish = parse_retry_after(response.headers.get("Retry-After"), response.headers.get("Date")) or 0.0
    record = _unreachable(f"robots.txt returned {status}", settings, previous, wish)
    return msgspec.structs.replace(record, throttled=status in THROTTLED)


def _unreachable(
    error: str, settings: RobotsSettings, previous: RobotsRecord | None, wish: float = 0.0
) -> RobotsRecord:
    failures = (previous.failures if previous else 0) + 1
    if wish > settings.retry_after_cap:
        failures = max(failures, settings.max_failures)
        error = f"{error} and asks to wait for {wish:.0f} s, which is longer than retry_after_cap"
    # The exponent is bounded because 2.0 to a high power overflows.
    pause = min(settings.first_deferral * 2.0 ** min(failures - 1, 64), settings.longest_deferral)
    pause = max(pause, wish)
    if previous is not None and previous.state is RobotsState.RULES:
        return RobotsRecord(RobotsState.RULES, time.time(), pause, previous.body, failures, error)
    return RobotsRecord(RobotsState.UNREACHABLE, time.time(), pause, b"", failures, error)


def parse_robots(
    record: RobotsRecord, token: str, settings: RobotsSettings, now: float
) -> RobotsPolicy | Deferred:
    """Return the policy of a record for the crawler with this product token, at a Unix time."""
    if record.state is RobotsState.UNREACHABLE:
        seconds = max(0.0, record.fetched_at + record.ttl - now)
        return Deferred(seconds, record.failures >= settings.max_failures, record.error, record.throttled)
    return RobotsPolicy(record.body if record.state is RobotsState.RULES else b"", token)
