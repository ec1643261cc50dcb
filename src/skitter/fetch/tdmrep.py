"""TdmFiles: the tdmrep.json of each origin (TDM Reservation Protocol), cached in this process and shared with the other workers."""

from __future__ import annotations

import asyncio
import time
from typing import Any, NamedTuple

import msgspec

from skitter._utils.concurrency import SingleFlight
from skitter._utils.notes import Notes
from skitter.errors import FetchError
from skitter.fetch.contract import UNCONDITIONAL, Fetcher, SendPermit
from skitter.fetch.origin_cache import OriginCache
from skitter.fetch.robots import MAX_REDIRECTS, redirect_target
from skitter.fetch.robots_rules import PathPattern, comparable_path
from skitter.request import Request
from skitter.web.urls import normalize, origin_of

PATH = "/.well-known/tdmrep.json"
SITE_FILES = ("/robots.txt", PATH)
"""Suffixes of the URLs of files about a site. They are fetched by HTTP, and have their own lifetimes."""
_MAX_BODY = 500 * 1024
_RETRY_AFTER = 600.0
"""Seconds for which an origin counts as one without a file after an error."""
_VERSION = 1


class TdmRule(NamedTuple):
    """One rule of the file."""

    pattern: PathPattern
    reserves: bool
    policy: str | None
    """Absolute URL."""


def parse_tdmrep(body: bytes, url: str) -> list[TdmRule]:
    """Return the rules of a file in their order. Anything that is not a rule is skipped. ``url``: the URL of the file."""
    try:
        entries = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    rules = []
    for entry in entries if isinstance(entries, list) else ():
        rule = _rule(entry, url) if isinstance(entry, dict) else None
        if rule is not None:
            rules.append(rule)
    return rules


def _rule(entry: dict[str, Any], url: str) -> TdmRule | None:
    location, reservation, policy = map(entry.get, ("location", "tdm-reservation", "tdm-policy"))
    if not isinstance(location, str) or not location or str(reservation) not in {"0", "1"}:
        return None
    if not location.startswith(("/", "*")):
        location = f"/{location}"
    target = normalize(policy.strip(), url) if isinstance(policy, str) and policy.strip() else None
    return TdmRule(PathPattern(location), str(reservation) == "1", target)


class TdmRecord(msgspec.Struct, frozen=True, array_like=True):
    """The file of one origin, as workers share it. An empty ``body`` stands for an origin without a file."""

    version: int
    fetched_at: float
    """Unix time."""
    ttl: float
    """Seconds for which the record is valid."""
    body: bytes

    def holds(self, now: float) -> bool:
        """Return whether the record is valid at a Unix time."""
        return -self.ttl < now - self.fetched_at < self.ttl


class TdmFiles:
    """Returns what the tdmrep.json of an origin says about a URL.

    A file is fetched once for all waiting requests of this process, and offered to the other workers through the shared
    ``notes``. An origin whose file is missing, broken or not delivered counts as one without rules.

    ``ttl``: time in seconds for which a file is kept.
    """

    def __init__(self, fetcher: Fetcher, ttl: float, notes: Notes | None = None) -> None:
        self._fetcher = fetcher
        self._ttl = ttl
        self._notes = notes
        self._known = OriginCache[tuple[TdmRecord, list[TdmRule]]]()
        self._fetches = SingleFlight[None]()

    def knows(self, url: str) -> bool:
        """Return whether the file of the origin of a URL was read, or is known to be missing."""
        cached = self._known.get(origin_of(url))
        return cached is not None and cached[0].holds(time.time())

    def find(self, url: str) -> TdmRule | None:
        """Return the rule for a URL, from the file as last read.

        TDMRep: "The most specific match is the first in sequence", so the length of a location and its reservation do not
        matter.
        """
        cached = self._known.get(origin_of(url))
        if cached is None or not cached[1]:
            return None
        path = comparable_path(url)
        return next((rule for rule in cached[1] if rule.pattern.matches(path)), None)

    async def read(self, url: str, permit: SendPermit = UNCONDITIONAL, timeout: float | None = None) -> None:
        """Read the file of the origin of a URL, within ``timeout`` seconds.

        Raises a free :class:`~skitter.errors.FetchError` if the request could not be sent now: the permit has expired, or a
        proxy failed.
        """
        origin = origin_of(url)
        await self._fetches.join(origin, lambda: self._read(origin, permit, timeout))

    async def close(self) -> None:
        """Cancel all running fetches."""
        await self._fetches.close()

    async def _read(self, origin: str, permit: SendPermit, timeout: float | None) -> None:
        key, url = f"tdmrep:{origin}", origin + PATH
        record = _decode(await self._notes.get(key)) if self._notes is not None else None
        if record is None or not record.holds(time.time()):
            try:
                async with asyncio.timeout(timeout):
                    body = await self._fetch(url, permit)
            except (FetchError, TimeoutError) as error:
                if isinstance(error, FetchError) and error.free:  # the error says nothing about the origin
                    raise
                body = None
            ttl = min(_RETRY_AFTER, self._ttl) if body is None else self._ttl
            record = TdmRecord(_VERSION, time.time(), ttl, body or b"")
            if self._notes is not None:
                await self._notes.put(key, msgspec.msgpack.encode(record), ttl)
        self._known.put(origin, (record, parse_tdmrep(record.body, url)), len(record.body))

    async def _fetch(self, url: str, permit: SendPermit) -> bytes | None:
        """Return the body of the file, empty if there is none; ``None`` if the server currently cannot tell."""
        for _ in range(MAX_REDIRECTS + 1):
            request = Request(url, max_body=_MAX_BODY, truncate_body=True)
            response = await self._fetcher.fetch(request, permit=permit)
            target = redirect_target(response)
            if target is None:
                if response.status >= 500 or response.status == 429:
                    return None
                return response.body if 200 <= response.status < 300 else b""
            url, permit = target, UNCONDITIONAL
        return b""


def _decode(note: bytes | None) -> TdmRecord | None:
    try:
        record = None if note is None else msgspec.msgpack.decode(note, type=TdmRecord)
    except msgspec.MsgspecError:
        return None
    return record if record is not None and record.version == _VERSION else None
