"""Resolver: looks up host names for libcurl, so that names without an answer do not delay the others.

libcurl resolves names in a pool of 20 threads, so twenty names with silent name servers would delay all others. c-ares
asks for any number of names at a time, and reports how long an answer is valid.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING

from skitter.fetch.contract import UnresolvedHost
from skitter.settings import Settings

if TYPE_CHECKING:
    import aiodns

_TRIES = 3
"""Number of times that each name server is asked."""
_FRESHNESS_MARGIN = 0.5
"""Time in seconds by which a name is looked up before its answer expires."""
_MIN_TTL = 1.0
_MAX_KNOWN = 50_000
"""Number of origins whose addresses libcurl keeps."""
_SYSTEM_SUFFIXES = (".local", ".localhost")
"""Names that only the system resolves (RFC 6762, RFC 6761)."""
_PORTS = {"http": "80", "https": "443"}


class Resolver:
    """Looks up names with c-ares.

    ``servers``: the name servers to ask; empty: those of the system.
    ``max_ttl``: maximum time in seconds for which an answer is used.
    ``timeout``: time limit of a lookup in seconds.
    """

    def __init__(self, servers: Sequence[str], max_ttl: float, timeout: float) -> None:
        self._dns: aiodns.DNSResolver | None = None
        self._servers = list(servers) or None
        self._all_names = bool(servers)
        self._max_ttl = max_ttl
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._valid_until: dict[str, float] = {}
        """Event loop time until which libcurl knows the addresses of an origin. The oldest come first."""
        self._last: tuple[str, list[str]] = "", []
        """The last origin and its addresses."""
        self._found: dict[str, tuple[list[str], float]] = {}
        """Addresses of names, and the event loop time until which they are valid, for those who do not use libcurl."""

    def knows(self, origin: str) -> bool:
        """Return whether libcurl has valid addresses of an origin."""
        return self._valid_until.get(origin, 0.0) > self._loop.time()

    async def look_up(self, origin: str) -> list[str]:
        """Return the value of ``CURLOPT_RESOLVE`` for an origin.

        libcurl keeps addresses until this method removes them (see :mod:`~skitter.fetch.transfer`). The value therefore
        also names an origin to forget, if there are many, or the origin itself, if the system has to resolve it again.

        Raises :class:`~skitter.fetch.contract.UnresolvedHost`.
        """
        name, port = _name_and_port(origin)
        addresses, ttl = await self._addresses(name) if self._is_ours(name) else ([], self._max_ttl)
        lines = [f"+{name}:{port}:{','.join(addresses)}" if addresses else f"-{name}:{port}"]
        self._valid_until.pop(origin, None)
        if len(self._valid_until) >= _MAX_KNOWN:
            forgotten = next(iter(self._valid_until))
            del self._valid_until[forgotten]
            lines.append("-{}:{}".format(*_name_and_port(forgotten)))
        self._valid_until[origin] = self._loop.time() + ttl
        self._last = origin, addresses
        return lines

    def is_public(self, origin: str) -> bool:
        """Return whether an origin that was just looked up has an address on the public internet."""
        last, addresses = self._last
        return last == origin and any(ip_address(found.strip("[]")).is_global for found in addresses)

    async def addresses_of(self, name: str) -> list[str]:
        """Return the addresses of a name; empty if the system has to resolve it.

        Raises :class:`~skitter.fetch.contract.UnresolvedHost`.
        """
        if not self._is_ours(name):
            return []
        found, until = self._found.get(name, ([], 0.0))
        if until <= self._loop.time():
            found, ttl = await self._addresses(name)
            if len(self._found) >= _MAX_KNOWN:
                self._found.clear()
            self._found[name] = found, self._loop.time() + ttl
        return [address.strip("[]") for address in found]

    def _is_ours(self, name: str) -> bool:
        plain = name.rstrip(".")
        last = plain.rpartition(".")[2]
        if not last or last[0].isdigit() or name[0] == "[" or "%" in name or plain == "localhost":
            return False  # an address, in whatever spelling (WHATWG URL, "ends in a number")
        return self._all_names or (last != plain and not plain.endswith(_SYSTEM_SUFFIXES))

    async def _addresses(self, name: str) -> tuple[list[str], float]:
        """Return the addresses of a name, and the seconds for which they are valid."""
        import aiodns  # noqa: PLC0415 - takes 10 ms, and crawls of addresses do not need it

        if self._dns is None:
            self._dns = aiodns.DNSResolver(
                nameservers=self._servers, timeout=self._timeout / (_TRIES + 1), tries=_TRIES
            )
        try:
            async with asyncio.timeout(self._timeout):
                result = await self._dns.getaddrinfo(name)
        except TimeoutError:
            raise UnresolvedHost(
                f"could not resolve {name}: the name servers did not answer",
                remedy="check the network of this machine",
            ) from None
        except aiodns.error.DNSError as error:
            code, message = error.args[0], error.args[1]
            if code == aiodns.error.ARES_ECONNREFUSED and not self._all_names:
                return [], self._max_ttl  # the system may know another way
            failure = UnresolvedHost(
                f"could not resolve {name}: {message}", remedy="check the name of the host"
            )
            # Name servers cache the answer that a name does not exist (RFC 2308, 5), so a retry would get it again.
            failure.retryable = code != aiodns.error.ARES_ENOTFOUND
            raise failure from None
        found = dict.fromkeys(_text(node.addr[0]) for node in result.nodes)
        ttl = min((node.ttl for node in result.nodes), default=0)
        return list(found), max(_MIN_TTL, min(ttl, self._max_ttl) - _FRESHNESS_MARGIN)

    async def close(self) -> None:
        """Cancel all lookups."""
        if self._dns is not None:
            await self._dns.close()


def make_resolver(settings: Settings) -> Resolver | None:
    """Return the resolver of a job; ``None`` if names are not to be cached, so that libcurl resolves each connection."""
    if not settings.dns_cache_ttl:
        return None
    return Resolver(settings.dns_servers, settings.dns_cache_ttl, settings.connect_timeout)


def _name_and_port(origin: str) -> tuple[str, str]:
    scheme, _, rest = origin.partition("://")
    name, colon, port = rest.rpartition(":")
    return (name, port) if colon and port.isdigit() else (rest, _PORTS.get(scheme, ""))


def _text(address: bytes | str) -> str:
    text = address.decode() if isinstance(address, bytes) else address
    return f"[{text}]" if ":" in text else text
