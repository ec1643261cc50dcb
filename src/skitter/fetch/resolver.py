"""Resolver: looks up host names for libcurl, so that names without an answer do not delay the others.

libcurl resolves names in a pool of 20 threads, so twenty names with silent name servers would delay all others. c-ares
asks for any number of names at a time, and reports how long an answer is valid.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING

from skitter._utils.concurrency import cancel_and_wait
from skitter.fetch.contract import UnresolvedHost
from skitter.settings import Settings

if TYPE_CHECKING:
    import aiodns

_TRIES = 3
"""Number of times that each name server is asked."""
_FRESHNESS_MARGIN = 0.5
"""Time in seconds before the end of its TTL from which on an answer is not used."""
_MIN_TTL = 1.0
_FRESH_SHARE = 0.75
"""Share of the TTL after which a name that is still needed is looked up again, while fetches use the old answer."""
_MAX_KNOWN = 50_000
"""Number of names whose answers are cached, and number of origins whose addresses libcurl keeps."""
_SYSTEM_SUFFIXES = (".local", ".localhost")
"""Names that only the system resolves (RFC 6762, RFC 6761)."""
_PORTS = {"http": "80", "https": "443"}


class _Answer:
    """The addresses of a name, separated by commas; empty if the system has to resolve it."""

    __slots__ = ("addresses", "fresh_until", "valid_until")

    def __init__(self, addresses: str, valid_until: float) -> None:
        self.addresses = addresses
        self.valid_until = valid_until
        """Event loop time until which the answer may be used."""
        self.fresh_until = valid_until
        """Event loop time from which on the next use of the answer looks up the name again."""


class Resolver:
    """Looks up names with c-ares.

    ``servers``: the name servers to ask; empty: those of the system.
    ``max_ttl``: maximum time in seconds for which an answer is used.
    ``timeout``: time limit of a lookup in seconds.
    """

    def __init__(self, servers: Sequence[str], max_ttl: float, timeout: float) -> None:
        self._channel: aiodns.DNSResolver | None = None
        self._answered: set[str] = set()
        """The names that the channel has found."""
        self._servers = list(servers) or None
        self._all_names = bool(servers)
        self._max_ttl = max_ttl
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._answers: dict[str, _Answer] = {}
        """The answers by name. The oldest come first."""
        self._told: dict[str, _Answer] = {}
        """The answers that libcurl has, by origin. The oldest come first."""
        self._lookups: dict[str, asyncio.Task[_Answer]] = {}
        """The running lookups by name."""

    def is_fresh(self, origin: str) -> bool:
        """Return whether libcurl has addresses of an origin that need not be looked up again yet."""
        answer = self._told.get(origin)
        return answer is not None and answer.fresh_until > self._loop.time()

    async def look_up(self, origin: str) -> list[str]:
        """Return the value of ``CURLOPT_RESOLVE`` for an origin; empty if libcurl has the addresses.

        libcurl keeps addresses until this method removes them (see :mod:`~skitter.fetch.transfer`). The value therefore
        also names an origin to forget, if there are many, or the origin itself, if the system has to resolve it again.

        Raises :class:`~skitter.fetch.contract.UnresolvedHost`.
        """
        name, port = _name_and_port(origin)
        told = self._told.get(origin)
        answer = await self._answer(name)
        if answer is told:
            return []
        lines = [f"+{name}:{port}:{answer.addresses}" if answer.addresses else f"-{name}:{port}"]
        self._told.pop(origin, None)
        if len(self._told) >= _MAX_KNOWN:
            forgotten = next(iter(self._told))
            del self._told[forgotten]
            lines.append("-{}:{}".format(*_name_and_port(forgotten)))
        self._told[origin] = answer
        return lines

    def is_public(self, origin: str) -> bool:
        """Return whether an origin that was looked up has an address on the public internet."""
        answer = self._told.get(origin)
        return answer is not None and any(ip_address(found).is_global for found in _plain(answer.addresses))

    async def addresses_of(self, name: str) -> list[str]:
        """Return the addresses of a name; empty if the system has to resolve it.

        Raises :class:`~skitter.fetch.contract.UnresolvedHost`.
        """
        return _plain((await self._answer(name)).addresses)

    async def _answer(self, name: str) -> _Answer:
        """Return the valid answer for a name. Waits for a lookup only if there is none."""
        answer = self._answers.get(name)
        now = self._loop.time()
        if answer is not None and answer.fresh_until > now:
            return answer
        if not self._is_ours(name):
            return self._store(name, [], self._max_ttl)
        lookup = self._lookups.get(name) or self._start_lookup(name)
        if answer is not None and answer.valid_until > now:
            return answer
        # Other fetches may wait for the lookup, so a cancelled fetch does not cancel it.
        return await asyncio.shield(lookup)

    def _start_lookup(self, name: str) -> asyncio.Task[_Answer]:
        lookup = self._lookups[name] = self._loop.create_task(self._ask(name))

        def forget(done: asyncio.Task[_Answer]) -> None:
            self._lookups.pop(name, None)
            if not done.cancelled():
                done.exception()  # otherwise asyncio would log it, if no fetch is waiting

        lookup.add_done_callback(forget)
        return lookup

    async def _ask(self, name: str) -> _Answer:
        try:
            addresses, ttl = await self._addresses(name)
        except UnresolvedHost:
            old = self._answers.get(name)
            if old is None or old.valid_until <= self._loop.time():
                raise
            old.fresh_until = old.valid_until  # until then, the name servers are not asked again
            return old
        return self._store(name, addresses, ttl)

    def _store(self, name: str, addresses: list[str], ttl: float) -> _Answer:
        now = self._loop.time()
        answer = _Answer(",".join(addresses), now + ttl)
        if addresses:
            answer.fresh_until = now + _FRESH_SHARE * ttl
        self._answers.pop(name, None)
        if len(self._answers) >= _MAX_KNOWN:
            del self._answers[next(iter(self._answers))]
        self._answers[name] = answer
        return answer

    def _is_ours(self, name: str) -> bool:
        plain = name.rstrip(".")
        last = plain.rpartition(".")[2]
        if not last or last[0].isdigit() or name[0] == "[" or "%" in name or plain == "localhost":
            return False  # an address, in whatever spelling (WHATWG URL, "ends in a number")
        return self._all_names or (last != plain and not plain.endswith(_SYSTEM_SUFFIXES))

    async def _addresses(self, name: str) -> tuple[list[str], float]:
        """Return the addresses of a name, and the seconds for which they are valid."""
        import aiodns  # noqa: PLC0415 - takes 10 ms, and crawls of addresses do not need it

        if self._channel is None or name in self._answered:
            # A channel caches an answer for its whole TTL. The old channel is closed after its last lookup.
            self._channel = aiodns.DNSResolver(
                nameservers=self._servers, timeout=self._timeout / (_TRIES + 1), tries=_TRIES
            )
            self._answered = set()
        channel, answered = self._channel, self._answered
        try:
            async with asyncio.timeout(self._timeout):
                result = await channel.getaddrinfo(name)
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
        answered.add(name)
        found = dict.fromkeys(_text(node.addr[0]) for node in result.nodes)
        ttl = min((node.ttl for node in result.nodes), default=0)
        return list(found), max(_MIN_TTL, min(ttl, self._max_ttl) - _FRESHNESS_MARGIN)

    async def close(self) -> None:
        """Cancel all lookups."""
        await cancel_and_wait(self._lookups.values())
        if self._channel is not None:
            await self._channel.close()


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


def _plain(addresses: str) -> list[str]:
    """Return a list of addresses, without the brackets of IPv6."""
    return [address.strip("[]") for address in addresses.split(",")] if addresses else []
