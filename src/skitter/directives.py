"""Page directives: rules of a page for programs that index, follow or mine it.

They come from ``X-Robots-Tag`` headers, ``<meta name=robots>``, ``<link>`` elements, the TDM Reservation Protocol and,
during a crawl, the ``Content-Signal`` lines of robots.txt and the tdmrep.json of the site.
``docs/guides/page-directives.md`` names the settings that obey them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from skitter.web.headers import parse_date

_FLAGS = {"noindex", "nofollow", "noarchive", "nosnippet", "noimageindex", "noai", "noimageai"}
# These patterns are compiled on first use.
_UNAVAILABLE = r"(?i)unavailable_after\s*:\s*((?:[a-z]{3,9},\s*)?[^,]+)"
_LINK_VALUES = r'<([^<>]*+)>((?:\s*+;(?:"[^"]*+"|[^;,"])*+)*+)'
_PARAMETERS = r';((?:"[^"]*+"|[^;,"])*+)'
_VALUED = {"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"}
_AGENT = r"(?s)\s*([A-Za-z_-]+)\s*:\s*(.*)"
_ZONES = {"EST": "-0500", "EDT": "-0400", "CST": "-0600", "CDT": "-0500", "MST": "-0700", "MDT": "-0600",
          "PST": "-0800", "PDT": "-0700"}  # fmt: skip


class Directives(msgspec.Struct, frozen=True, omit_defaults=True):
    """The directives of one page. A flag is set if at least one source sets it."""

    noindex: bool = False
    """The page must not be in an index. ``none`` means ``noindex, nofollow``."""
    nofollow: bool = False
    """The links of the page must not be followed."""
    noarchive: bool = False
    nosnippet: bool = False
    noimageindex: bool = False
    noai: bool = False
    """The page must not be used to train models."""
    noimageai: bool = False
    """The images of the page must not be used to train models."""
    unavailable_after: float | None = None
    """Unix time after which the page must not be in an index."""
    canonical: str | None = None
    """Absolute URL of the preferred copy of the page (RFC 6596): from the ``Link`` header, or else from the page."""
    alternates: dict[str, str] = {}
    """Absolute URLs of translations by language tag (``hreflang``)."""
    tdm_reservation: bool | None = None
    """Whether the rights of text and data mining are reserved (TDMRep). ``None``: not stated."""
    tdm_policy: str | None = None
    """URL of the policy for the reserved rights."""
    content_signals: dict[str, bool] = {}
    """Uses that the robots.txt of the host allows (``True``) or forbids: ``search``, ``ai-input``, ``ai-train``. Only the settings
    know them; :meth:`Response.directives <skitter.Response.directives>` does not read robots.txt.
    """

    def is_indexable(self, now: float | None = None) -> bool:
        """Return whether the page may be in an index at a Unix time; default: now."""
        if self.noindex:
            return False
        return self.unavailable_after is None or self.unavailable_after > (
            time.time() if now is None else now
        )

    def over(self, site: Directives) -> Directives:
        """Return these directives, combined with the directives of the site.

        Values of the page supersede those of tdmrep.json (TDMRep, "Processing priority").
        """
        reservation = site.tdm_reservation if self.tdm_reservation is None else self.tdm_reservation
        return msgspec.structs.replace(
            self,
            content_signals=self.content_signals | site.content_signals,
            tdm_reservation=reservation,
            tdm_policy=(self.tdm_policy or site.tdm_policy) if reservation else None,
        )

    @property
    def reserves_mining(self) -> bool:
        """Whether the page reserves text and data mining, or forbids training models with it."""
        return self.noai or self.tdm_reservation is True or self.content_signals.get("ai-train") is False

    def to_dict(self) -> dict[str, Any]:
        """Return the directives that are set, as plain data."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


class RobotsDirectives:
    """Collects rules for all crawlers, and for one crawler by its product token."""

    def __init__(self, token: str) -> None:
        self._token = token.lower()
        self.flags: dict[str, bool] = {}
        self.unavailable_after: float | None = None

    def read_header(self, value: str) -> None:
        """Read an ``X-Robots-Tag`` value, which is for all crawlers or, after ``NAME:``, for one crawler."""
        found = re.match(_AGENT, value)
        if found is not None and found[1].lower() not in _VALUED:
            if found[1].lower() != self._token:
                return
            value = found[2]
        self.read(value)

    def read_meta(self, name: str, value: str) -> None:
        """Read the content of a ``<meta>`` element whose name is ``robots`` or the name of a crawler."""
        if name.strip().lower() in {"robots", self._token}:
            self.read(value)

    def read(self, value: str) -> None:
        """Read rules separated by commas."""
        for found in re.finditer(_UNAVAILABLE, value):
            at = _time_of(found[1].strip())
            if at is not None:
                self.unavailable_after = min(at, self.unavailable_after or at)
        for word in re.sub(_UNAVAILABLE, "", value).lower().split(","):
            name = word.strip()
            if name == "none":
                self.flags |= {"noindex": True, "nofollow": True}
            elif name in _FLAGS:
                self.flags[name] = True


def _time_of(text: str) -> float | None:
    """Return the Unix time of a date in the formats of RFC 822, RFC 850 and ISO 8601; ``None`` if it is invalid."""
    head, _, zone = text.rpartition(" ")
    text = f"{head} {_ZONES[zone.upper()]}" if zone.upper() in _ZONES else text
    for parse in (datetime.fromisoformat, parse_date):
        try:
            moment = parse(text)
            return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            continue
    return None


def tdm_of(values: Mapping[str, str]) -> tuple[bool | None, str | None]:
    """Return the TDMRep reservation and policy, from headers or ``<meta>`` elements by their lower-case names."""
    reservation = {"1": True, "0": False}.get(values.get("tdm-reservation", "").strip())
    return reservation, values.get("tdm-policy", "").strip() or None if reservation else None


def linked_canonical(values: Iterable[str]) -> str | None:
    """Return the target with ``rel=canonical`` in ``Link`` headers (RFC 8288)."""
    for value in values:
        for target, parameters in re.findall(_LINK_VALUES, value):
            if "canonical" in _relations(parameters):
                return str(target)
    return None


def _relations(parameters: str) -> list[str]:
    """Return the relations of a link, from its first ``rel`` parameter (RFC 8288, 3.3)."""
    for parameter in re.findall(_PARAMETERS, parameters):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "rel":
            return str(value).strip().strip('"').lower().split()
    return []
