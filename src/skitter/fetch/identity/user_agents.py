"""User agents: the headers of a browser, from a list of one's own or made up by the package ``browserforge``."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import xxhash

from skitter.errors import SettingsError
from skitter.fetch.identity.contract import SourceContext, SourceError, existing_file
from skitter.plugins import needing
from skitter.request import Request

_MADE = 200
"""Header sets made at the start, 0.2 ms each; requests draw from them."""

_TRIED = 10 * _MADE

_OURS = frozenset({"accept-encoding", "host", "connection", "content-length"})
"""Said by the fetcher itself."""

# The package gives the values of these headers in another order than their names.
_NAVIGATION = {
    "sec-fetch-site": "none",
    "sec-fetch-mode": "navigate",
    "sec-fetch-user": "?1",
    "sec-fetch-dest": "document",
}


class AgentList:
    """Draws from header sets given outright; a plain string is a ``User-Agent``.

    A request of a named session always gets the same set, as long as the list is the same. Raises
    :class:`~skitter.errors.SettingsError` for an empty list and for what is neither text nor a mapping.
    """

    def __init__(self, agents: Sequence[str | Mapping[str, str]]) -> None:
        self._sets = [_header_set(agent) for agent in agents]
        if not self._sets:
            raise SettingsError("the list of user agents is empty", remedy="give at least one")

    def headers(self, request: Request) -> Mapping[str, str]:
        """Return one of the sets."""
        if request.session:
            return self._sets[xxhash.xxh3_64_intdigest(request.session.encode()) % len(self._sets)]
        return random.choice(self._sets)


class AgentFile:
    """Draws from a file with one ``User-Agent`` a line."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._agents: AgentList

    async def open(self) -> None:
        """Read the file. Raises :class:`~skitter.fetch.identity.contract.SourceError`."""
        try:
            text = await asyncio.to_thread(self._path.read_text, "utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SourceError(
                f"the list of user agents {self._path} cannot be read: {error}", remedy="check the file"
            ) from error
        lines = [line.strip() for line in text.splitlines()]
        self._agents = AgentList([line for line in lines if line and not line.startswith("#")])

    def headers(self, request: Request) -> Mapping[str, str]:
        """Return one of the sets."""
        return self._agents.headers(request)


class RandomAgents:
    """Header sets as browsers send them, drawn by how common each is: ``User-Agent`` and all that goes with it.

    ``options``
        ``browser``, ``os``, ``device``, ``locale``: each a value of ``browserforge``, or several with ``+``
        between them, such as ``{"browser": "chrome+firefox", "os": "windows"}``. Default: desktop browsers.

    Raises, when made, :class:`~skitter.errors.SettingsError` for other options.
    """

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        given = dict(options or {})
        if unknown := set(given) - {"browser", "os", "device", "locale"}:
            raise SettingsError(
                f"random user agents have no option {min(unknown)!r}",
                remedy="their options are browser, os, device and locale",
            )
        self._options = {name: tuple(value.split("+")) for name, value in given.items()}
        self._options.setdefault("device", ("desktop",))
        self._agents: AgentList

    async def open(self) -> None:
        """Make the sets. Raises :class:`~skitter.fetch.identity.contract.SourceError` without ``browserforge``."""
        self._agents = await asyncio.to_thread(self._make)

    def _make(self) -> AgentList:
        with needing("agents", "random user agents", SourceError):
            from browserforge.headers import HeaderGenerator  # noqa: PLC0415 - an extra
        try:
            make: Any = HeaderGenerator
            generator = make(**self._options)
            made = (_cleaned(generator.generate()) for _ in range(_TRIED))
            return AgentList(list(islice((found for found in made if _fits_together(found)), _MADE)))
        except (ValueError, KeyError, TypeError) as error:
            raise SourceError(
                f"random user agents of {self._options} cannot be made: {error}",
                remedy="see the values that browserforge knows",
            ) from error

    def headers(self, request: Request) -> Mapping[str, str]:
        """Return one of the sets."""
        return self._agents.headers(request)


def _header_set(agent: str | Mapping[str, str]) -> dict[str, str]:
    if isinstance(agent, str) and agent.strip():
        return {"User-Agent": agent.strip()}
    if isinstance(agent, Mapping) and any(str(name).lower() == "user-agent" for name in agent):
        return {str(name): str(value) for name, value in agent.items()}
    raise SettingsError(
        f"{agent!r:.80} is no user agent", remedy="give texts, or mappings of headers with a User-Agent"
    )


def _cleaned(headers: Mapping[str, str]) -> dict[str, str]:
    return {
        name: _NAVIGATION.get(name.lower(), value)
        for name, value in headers.items()
        if name.lower() not in _OURS
    }


_PLATFORMS = {'"Windows"': "Windows", '"macOS"': "Mac OS X", '"Linux"': "Linux", '"Android"': "Android"}


def _fits_together(headers: Mapping[str, str]) -> bool:
    """Tell whether user agent and client hints name one browser: the data also holds robots that did not mind."""
    lower = {name.lower(): value for name, value in headers.items()}
    agent, brands = lower.get("user-agent", ""), lower.get("sec-ch-ua", "")
    if not agent.startswith("Mozilla/5.0 ") or "Headless" in agent + brands:
        return False
    version = re.search(r"Chrome/(\d+)", agent)
    if version is None:
        return not brands
    platform = _PLATFORMS.get(lower.get("sec-ch-ua-platform", ""))
    return platform is not None and platform in agent and f'v="{version[1]}"' in brands


def options_of(text: str) -> dict[str, str]:
    """Read ``name=value,name=value``. Raises :class:`~skitter.errors.SettingsError`."""
    options = {}
    for part in text.split(",") if text else ():
        name, equals, value = part.partition("=")
        if not (equals and name.strip() and value.strip()):
            raise SettingsError(f"option {part!r} has no value", remedy="write name=value,name=value")
        options[name.strip()] = value.strip()
    return options


def random_agents(context: SourceContext) -> RandomAgents:
    """Make the part ``random``."""
    return RandomAgents(options_of(context.rest))


def agents_of_file(context: SourceContext) -> AgentFile:
    """Make the part ``file:PATH``."""
    return AgentFile(existing_file(context.rest))
