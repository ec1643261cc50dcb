"""AddressGuard: decides which addresses a crawl may connect to, so that a page cannot lead it into a private network.

The fetcher asks the guard for each address right before it connects. A name that resolves to another address at the next
lookup is therefore checked again. ``docs/design/security.md`` describes which networks are open.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import time
from collections.abc import Iterable
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import msgspec

from skitter._utils.notes import NOTE_TTL, OPENED_NETWORKS, Notes
from skitter.errors import SettingsError
from skitter.fetch.contract import ForbiddenAddress
from skitter.web.urls import host_of, normalize

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(ip_network(text) for text in texts)


# The tables are our own, because ``ipaddress.is_global`` differs between versions of Python: the registries of special
# addresses (https://www.iana.org/assignments/iana-ipv4-special-registry, ...ipv6-special-registry) and multicast.
_NOT_GLOBAL_IPV4 = _networks(
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
    "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
    "224.0.0.0/4", "240.0.0.0/4", "168.63.129.16/32",
)  # fmt: skip
"""The last one is a metadata server with an address that looks like any other."""
_UNICAST_IPV6 = IPv6Network("2000::/3")
"""All addresses outside of it are special: loopback, unique local, link-local, site-local, multicast, IPv4 in IPv6 ..."""
_NOT_GLOBAL_IPV6 = _networks("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
"""Protocol assignments with Teredo, documentation, 6to4, documentation. Teredo and 6to4 can lead to any IPv4 address."""
_NAT64 = IPv6Network("64:ff9b::/96")
"""In a network with IPv6 only, all hosts with IPv4 have an address in it (RFC 6052, 2.1)."""
_METADATA = frozenset(
    map(
        ip_address,
        (
            "169.254.169.254", "169.254.170.2", "169.254.170.23", "fd00:ec2::254", "fd00:ec2::23",
            "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd20:ce::254",
        ),
    )
)  # fmt: skip
"""Servers with the credentials of a cloud machine. A seed opens one only if it is that exact IP address."""
_LOOPBACK = _networks("127.0.0.0/8", "::1/128")
_OPENED_WHOLE = _networks("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "198.18.0.0/15")
_UNIQUE_LOCAL = IPv6Network("fc00::/7")
_SITE_BITS = 48
"""Length of the prefix of one site's unique local addresses (RFC 4193, 3.1)."""


@cache  # a table of all octets at import would take 25 ms
def _special_of_octet(octet: int) -> tuple[Network, ...]:
    """Return the special networks among the IPv4 addresses that start with an octet: for most addresses none."""
    return tuple(network for network in _NOT_GLOBAL_IPV4 if network.overlaps(IPv4Network((octet << 24, 8))))


_PLAIN_NAME = re.compile(r"(?:[a-z0-9_-]+\.)*[a-z][a-z0-9-]*").fullmatch
"""Matches most hosts: a host whose last label starts with a letter is not an IPv4 address (WHATWG URL, 3.5)."""
_MAX_REMEMBERED = 10_000
_MAX_RESOLVED = 16
"""Maximum number of host names of seeds to resolve. A long list of seeds comes from other data, not from a user's intent."""
_RESOLVE_TIMEOUT = 3.0
_RESOLVE_BUDGET = 6.0
"""Seconds that all lookups of seeds together may delay a run, if no name server answers."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[str]).decode


class AddressGuard:
    """Decides which addresses a crawl may connect to: global ones, and those in opened networks.

    ``allowed_networks``
        Networks that are open, as CIDR text. Raises :class:`~skitter.errors.SettingsError` for invalid text.
    ``seeds_open``
        Whether :meth:`open_for_seeds` opens the networks of seeds.
    ``looks_up_seeds``
        Whether the guard looks up the names of seeds. Behind a proxy, only the proxy should look up names.
    ``notes``
        Where the workers of a job share the networks that its seeds have opened.
    """

    def __init__(
        self,
        allowed_networks: Iterable[str] = (),
        *,
        seeds_open: bool = True,
        looks_up_seeds: bool = True,
        notes: Notes | None = None,
    ) -> None:
        self._allowed = tuple(_read_network(text) for text in allowed_networks)
        self._opened: set[Network] = set()
        self._seeds_open = seeds_open
        self._lookups_left = _MAX_RESOLVED if looks_up_seeds else 0
        self._lookup_seconds_left = _RESOLVE_BUDGET
        self._notes = notes
        self._known: dict[str, bool] = {}
        self._seed_hosts: set[str] = set()
        """Hosts of seeds whose networks are open already."""
        self._opening = asyncio.Lock()
        """Held while networks are opened, so that a call for the same hosts waits for it."""
        self._listed_proxies: set[str] = set()

    # --- decisions -------------------------------------------------------------------------------------

    def allows(self, ip: str) -> bool:
        """Return whether a connection to an IP address is allowed. ``ip`` may contain a zone (``fe80::1%eth0``)."""
        is_allowed = self._known.get(ip)
        if is_allowed is None:
            if len(self._known) >= _MAX_REMEMBERED:
                self._known.clear()
            is_allowed = self._known[ip] = self._decide(ip)
        return is_allowed

    def check_url(self, url: str) -> None:
        """Check the host of a URL without looking it up: an IP address in any spelling, and ``localhost``.

        This does not replace the check at connect time. It is the only possible check behind a proxy, which looks up
        names itself.

        Raises :class:`~skitter.fetch.contract.ForbiddenAddress`.
        """
        ip = literal_address(url)
        if ip is not None and not self.allows(ip):
            raise forbidden(ip)

    def trusts_proxy(self, proxy: str) -> bool:
        """Return whether a connection to a proxy needs no check, because a user named the proxy. ``False`` for no proxy."""
        return proxy != "" and proxy not in self._listed_proxies

    def check_proxies(self, proxies: Iterable[str]) -> None:
        """Check the addresses of these proxies like those of pages: their list comes from a server."""
        self._listed_proxies.update(proxies)

    def _decide(self, ip: str) -> bool:
        with contextlib.suppress(OSError):  # not IPv4
            if not _special_of_octet(socket.inet_pton(socket.AF_INET, ip)[0]):
                return True  # the usual case: no address object is needed
        try:
            address = ip_address(ip.partition("%")[0])
        except ValueError:
            return False
        address = _unwrapped(address)
        if _is_global(address):
            return True
        if any(address in network for network in self._allowed):
            return True
        if address in _METADATA:
            return ip_network(address) in self._opened
        return any(address in network for network in self._opened)

    # --- opening networks ------------------------------------------------------------------------------

    async def open_for_seeds(self, urls: Iterable[str]) -> None:
        """Open the networks of seeds, and share them with the other workers of the job. Call it before adding the seeds.

        The networks of literal addresses are opened. Of the other hosts, the first 16 are looked up, once each and in
        about six seconds altogether: if no address of a name is global, the networks of its addresses are opened.
        """
        if not self._seeds_open:
            return
        hosts = {host_of(url): url for url in urls}
        if hosts.keys() <= self._seed_hosts:
            return
        async with self._opening:
            new = [url for host, url in hosts.items() if host not in self._seed_hosts]
            literals = [(url, literal_address(url)) for url in new]
            names = [url for url, ip in literals if ip is None][: self._lookups_left]
            self._lookups_left -= len(names)
            found = {network for _, ip in literals if ip is not None for network in networks_of(ip)}
            found |= await self._look_up(names)
            if found - self._opened:
                self._open(found)
                await self._share()
            if len(self._seed_hosts) > _MAX_REMEMBERED:
                self._seed_hosts.clear()
            self._seed_hosts.update(hosts)

    async def _look_up(self, urls: Iterable[str]) -> set[Network]:
        """Return the networks that seeds with host names open, within the time for lookups."""
        seconds = min(_RESOLVE_TIMEOUT, self._lookup_seconds_left)
        if seconds <= 0:
            return set()
        began = time.monotonic()
        found = await asyncio.gather(*(_networks_of_name(url, seconds) for url in urls))
        self._lookup_seconds_left -= time.monotonic() - began
        return set().union(*found)

    async def allows_by_now(self, ip: str) -> bool:
        """Return whether a refused address is allowed after all, because a seed on another worker has opened its network."""
        await self.learn()
        return self.allows(ip)

    async def check_url_by_now(self, url: str) -> None:
        """Check a URL like :meth:`check_url`, and ask once whether another worker has opened the network in the meantime."""
        try:
            self.check_url(url)
        except ForbiddenAddress:
            await self.learn()
            self.check_url(url)

    async def learn(self) -> None:
        """Read the networks that seeds have opened on other workers."""
        shared = (
            await self._notes.get(OPENED_NETWORKS) if self._notes is not None and self._seeds_open else None
        )
        if shared is not None:
            self._open({ip_network(text) for text in _decode(shared)} - self._opened)

    async def _share(self) -> None:
        if self._notes is None:
            return
        while True:
            old = await self._notes.get(OPENED_NETWORKS)
            networks = self._opened.union(() if old is None else map(ip_network, _decode(old)))
            new = _encode(sorted(map(str, networks)))
            if new == old or await self._notes.compare_and_swap(OPENED_NETWORKS, old, new, NOTE_TTL):
                return

    async def restore(self) -> None:
        """Share the known networks again, because the frontier may have lost its latest changes."""
        if self._opened:
            await self._share()

    def _open(self, networks: set[Network]) -> None:
        if networks:
            self._opened |= networks
            self._known.clear()


def forbidden(ip: str) -> ForbiddenAddress:
    """Return the error for an address that the guard does not allow."""
    return ForbiddenAddress(
        f"{ip} is not a public address",
        remedy="add its network to allow_networks if the crawl may reach it",
        field="allow_networks",
    )


def literal_address(url: str) -> str | None:
    """Return the IP address in a URL in any spelling; ``127.0.0.1`` for ``localhost``; ``None`` for a host name.

    ``localhost`` and the names below it are loopback wherever they are looked up (RFC 6761, 6.3).
    """
    host = _name_of(url)
    if _PLAIN_NAME(host) is not None and not host.endswith("localhost"):
        return None
    host = _name_of(normalize(url) or "")  # reads numbers as browsers do: decimal, octal, hexadecimal, short
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return "127.0.0.1"
    try:
        return str(ip_address(name.strip("[]")))
    except ValueError:
        return None


def networks_of(ip: str) -> set[Network]:
    """Return the networks that a seed with this address opens; none for a global address.

    The whole loopback, private or shared network (RFC 1918, RFC 6598); the site of a unique local address (RFC 4193);
    otherwise the address alone.
    """
    address = _unwrapped(ip_address(ip.partition("%")[0]))
    if _is_global(address):
        return set()
    if address in _METADATA:
        return {ip_network(address)}
    if any(address in network for network in _LOOPBACK):
        return set(_LOOPBACK)
    if address in _UNIQUE_LOCAL:
        return {ip_network(f"{address}/{_SITE_BITS}", strict=False)}
    return {next((network for network in _OPENED_WHOLE if address in network), ip_network(address))}


async def _networks_of_name(url: str, seconds: float) -> set[Network]:
    """Return the networks that a seed with a host name opens, if the name is resolved within some seconds."""
    try:
        async with asyncio.timeout(seconds):
            answers = await asyncio.get_running_loop().getaddrinfo(
                _name_of(url), None, type=socket.SOCK_STREAM
            )
    except (OSError, UnicodeError, TimeoutError):
        return set()  # fetching the seed reports the error
    networks = [networks_of(str(answer[4][0])) for answer in answers]
    return set().union(*networks) if all(networks) else set()


def _name_of(url: str) -> str:
    host = host_of(url)
    return host.partition("]")[0] + "]" if host[:1] == "[" else host.partition(":")[0]


def _unwrapped(address: Address) -> Address:
    """Return the IPv4 address within an IPv6 address, if packets go there."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _is_global(address: Address) -> bool:
    """Return whether an address is on the public internet and is not a metadata server."""
    if isinstance(address, IPv4Address):
        special = _special_of_octet(int(address) >> 24)
        return not any(address in network for network in special)
    return address in _UNICAST_IPV6 and not any(address in network for network in _NOT_GLOBAL_IPV6)


def _read_network(text: str) -> Network:
    try:
        return ip_network(text.strip(), strict=False)
    except ValueError as error:
        raise SettingsError(
            f"invalid network in allow_networks: {text!r:.80}",
            remedy="write an address or a network, such as 10.0.0.0/8 or fd12:3456:789a::/48",
            field="allow_networks",
        ) from error
