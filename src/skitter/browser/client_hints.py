"""What a page can see of the browser besides ``User-Agent``: client hints, ``navigator.platform`` and languages."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

_BRAND = re.compile(r'"((?:[^"\\]|\\.)*)";\s*v="([^"]*)"')
_CHROMIUM = re.compile(r"\b(?:Chrome|Chromium|CriOS)/(\d+)")
_SYSTEMS = (
    ("Android", "Android", "Linux armv81"), ("iPhone", "iOS", "iPhone"), ("iPad", "iOS", "iPad"),
    ("CrOS", "Chrome OS", "Linux x86_64"), ("Mac OS X", "macOS", "MacIntel"), ("Windows", "Windows", "Win32"),
    ("Linux", "Linux", "Linux x86_64"),
)  # fmt: skip
"""Word in a user agent, value of ``Sec-CH-UA-Platform``, value of ``navigator.platform``. The first matching row applies."""
_OWN_SYSTEM = {"darwin": "macOS", "linux": "Linux"}


def user_agent_override(user_agent: str, headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of ``Emulation.setUserAgentOverride`` with which a page sees the same values as its server.

    ``headers``: the headers of the request, which may contain ``Sec-CH-UA`` headers and ``Accept-Language``. Values that
    they lack are derived from the user agent, or else from the real browser and system. Playwright would claim Windows for
    a user agent that names no system.
    """
    given = {name.lower(): value for name, value in headers.items()}
    system = next((found for found in _SYSTEMS if found[0] in user_agent), None)
    platform = system[1] if system else _OWN_SYSTEM.get(sys.platform, "")
    metadata: dict[str, Any] = {
        "platform": given.get("sec-ch-ua-platform", "").strip('"') or platform,
        "platformVersion": given.get("sec-ch-ua-platform-version", "").strip('"'),
        "architecture": given.get("sec-ch-ua-arch", "").strip('"') or "x86",
        "model": given.get("sec-ch-ua-model", "").strip('"'),
        "mobile": given.get("sec-ch-ua-mobile", "?1" if " Mobile" in user_agent else "?0") == "?1",
    }
    for field, name in (("brands", "sec-ch-ua"), ("fullVersionList", "sec-ch-ua-full-version-list")):
        if found := _BRAND.findall(given.get(name, "")):
            metadata[field] = [{"brand": brand, "version": version} for brand, version in found]
    chromium = _CHROMIUM.search(user_agent)
    if chromium and "brands" not in metadata:
        metadata["brands"] = [
            {"brand": "Chromium", "version": chromium[1]},
            {"brand": "Not:A-Brand", "version": "8"},
        ]
    override: dict[str, Any] = {"userAgent": user_agent, "userAgentMetadata": metadata}
    if system:
        override["platform"] = system[2]
    if "accept-language" in given:
        override["acceptLanguage"] = given["accept-language"]
    return override
