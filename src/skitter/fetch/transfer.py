"""Transfer: a curl handle with its buffers, prepared for one request after the other."""

from __future__ import annotations

import io
import re
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import pycurl

from skitter.fetch.address_guard import AddressGuard
from skitter.fetch.contract import Disconnected, FetchPhases, SendPermit, UnsendableRequest
from skitter.fetch.tls import file_for, is_unverified
from skitter.request import Request
from skitter.settings import Settings

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_UNSAFE_VALUE = re.compile(r"[\r\n\0]").search
_PROTOCOLS = {1: "http/1.0", 2: "http/1.1", 3: "h2", 30: "h3"}
# Their values follow from the body that is sent; another value would garble the connection.
_FRAMING = frozenset({"content-length", "transfer-encoding"})
# Curl makes the socket non-blocking anyway; this saves a system call where the kernel can do it at once.
_NONBLOCKING = socket.SOCK_NONBLOCK if sys.platform == "linux" else 0
_SUPPRESS_CONNECT_HEADERS = 265  # pycurl has no name for it
_WIRE_BUFFER = 128 * 1024
_ONE_READ = 0.005
"""Maximum seconds between the first and the last byte of a response that was read in one turn of the event loop."""
_MIN_LATENCY = 1e-6
"""Minimum latency in seconds, because 0 means that no latency was measured."""
_MAX_BLOCKS = 256
"""Maximum number of blocks of a body that are kept separately. A larger body is collected in one buffer, which takes less
memory."""
_TINY_BLOCKS = 65_536
"""Number of blocks after which a body is refused if their mean length is below the next limit. Each block costs half a
microsecond."""
_SHORTEST_BLOCK = 16
_ACCEPT_ENCODING = "zstd, gzip, br, deflate"
"""The codings that :func:`~skitter.fetch.decoding.decode_body` supports, in the order of preference."""
_DEFAULT_HEADERS = {
    "Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "Accept-Language": "en",
}


class Transfer:
    """One pooled curl handle. Between plain requests, only the URL is replaced."""

    def __init__(
        self,
        settings: Settings,
        base_headers: Mapping[str, bytes],
        guard: AddressGuard | None = None,
    ) -> None:
        self._settings = settings
        self._has_hosts = bool(settings.unverified_hosts or settings.ca_files or settings.client_certs)
        """Whether there are settings for single hosts."""
        self._cuts = settings.truncate_body
        self._guard = guard
        self._proxy = self._refused = ""
        self._dialled = False
        self._base_headers = base_headers
        self._ca_file = ""
        """Certificates of trusted authorities; empty before the first request over TLS."""
        self._lines: list[bytes] = []
        self._chunks: list[bytes] = []
        self._buffer: io.BytesIO | None = None
        self._blocks = 0
        self._extra = False
        self._unusual = False
        self._permit: SendPermit | None = None
        self._begun = 0.0
        self._connects = False
        self.is_challenged = False
        """Whether the first 401 may be a challenge that libcurl responds to."""
        self._room: int | None = None
        self.cuts = False
        """Whether a body that is too large is cut, instead of being an error."""
        self.is_cut = False
        """Whether the transfer was ended because enough of the body has arrived."""
        self.resolving = 0.0
        """Seconds that the name of the host took to resolve outside of curl."""
        self.unread = 0.0
        """Seconds for which the end of the response waited for the event loop, as far as known."""
        self.is_late = False
        """Whether the request was not sent because its permit had expired."""
        self.is_fragmented = False
        """Whether the transfer was ended because its body came in tiny chunks."""
        self.curl = pycurl.Curl()
        self._tls_sessions: pycurl.CurlShare | None = None
        self._closes = False
        self.fresh = False
        """Whether curl opens a new connection for the request."""
        self._configure()

    def _configure(self) -> None:
        curl, settings = self.curl, self._settings
        setopt = curl.setopt
        setopt(pycurl.HEADERFUNCTION, self._lines.append)
        setopt(pycurl.WRITEFUNCTION, self._store_block)
        setopt(pycurl.NOSIGNAL, 1)
        setopt(pycurl.PATH_AS_IS, 1)
        setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        setopt(pycurl.HTTP09_ALLOWED, 0)
        setopt(pycurl.BUFFERSIZE, _WIRE_BUFFER)
        setopt(pycurl.HTTPHEADER, list(self._base_headers.values()))
        setopt(pycurl.CONNECTTIMEOUT_MS, _milliseconds(settings.connect_timeout))
        setopt(pycurl.TIMEOUT_MS, _milliseconds(settings.timeout))
        setopt(pycurl.MAXFILESIZE_LARGE, settings.max_body)
        setopt(pycurl.DNS_CACHE_TIMEOUT, self._dns_timeout(""))
        setopt(pycurl.MAXAGE_CONN, int(settings.idle_timeout))
        setopt(
            pycurl.HTTP_VERSION,
            pycurl.CURL_HTTP_VERSION_2TLS if settings.http2 else pycurl.CURL_HTTP_VERSION_1_1,
        )
        if self._ca_file:
            setopt(pycurl.CAINFO, self._ca_file)
        if settings.client_cert:
            setopt(pycurl.SSLCERT, settings.client_cert)
            setopt(pycurl.SSLKEY, settings.client_key or settings.client_cert)
        if not settings.verify_tls:
            self._trust_any_certificate()
        if not settings.reuse_connections:
            # FORBID_REUSE alone would still let HTTP/2 requests share a busy connection.
            setopt(pycurl.FORBID_REUSE, 1)
            setopt(pycurl.FRESH_CONNECT, 1)
        # The fetcher selects the proxy, so curl must not read the environment.
        self._proxy = ""
        setopt(pycurl.PROXY, "")
        setopt(pycurl.NOPROXY, "")
        if self._guard is not None:
            setopt(pycurl.OPENSOCKETFUNCTION, self._open_socket)

    def _dns_timeout(self, proxy: str) -> int:
        """Return the time in seconds for which libcurl keeps addresses; -1: until the resolver removes them.

        That is the case for direct connections. Otherwise, at the end of each transfer, libcurl would search all its addresses
        for old ones: 8 % of the CPU time of a crawl with 2,500 hosts.
        """
        seconds = int(self._settings.dns_cache_ttl)
        return seconds if proxy or not self._settings.dns_cache_ttl else -1

    def prepare(
        self,
        request: Request,
        url: str,
        cookie: str | None,
        proxy: str = "",
        added: Mapping[str, str] | None = None,
    ) -> None:
        """Set the options that this request needs in addition to the handle's permanent options.

        ``proxy``: empty for a direct connection. ``added``: additional headers, which replace headers of the request.
        """
        setopt = self.curl.setopt
        setopt(pycurl.URL, url)
        if cookie is not None:
            self._extra = True
            setopt(pycurl.COOKIE, cookie.encode("utf-8", "surrogateescape"))
        if request.timeout is not None:
            self._extra = True
            setopt(pycurl.TIMEOUT_MS, _milliseconds(request.timeout))
        if self._cuts or request.truncate_body is not None or request.max_body is not None:
            self._limit_body(request)
        if added or request.headers or request.method != "GET" or request.body:
            self._prepare_message(request, added)
        if self._has_hosts:
            self._prepare_host(url)
        if proxy != self._proxy:
            self._proxy = proxy
            setopt(pycurl.PROXY, proxy)
            setopt(pycurl.DNS_CACHE_TIMEOUT, self._dns_timeout(proxy))
            # A resumed session would tell a host that requests through several proxies come from one client.
            setopt(pycurl.SSL_SESSIONID_CACHE, 0 if proxy else 1)

    def _open_socket(self, _purpose: int, address: Any) -> int:
        """Open a socket for an address that curl is about to connect to, unless the guard refuses the address."""
        family, kind, protocol, place = address
        guard = self._guard
        if guard is not None and not (guard.allows(place[0]) or guard.trusts_proxy(self._proxy)):
            self._refused = place[0]
            return int(pycurl.SOCKET_BAD)
        self._dialled = True
        # Return a file descriptor: given a socket object, pycurl would duplicate its socket and close the original.
        return socket.SocketType(family, kind | _NONBLOCKING, protocol).detach()

    @property
    def refused(self) -> str:
        """The address that the guard refused, if there was no other address to connect to."""
        return "" if self._dialled else self._refused

    def _prepare_host(self, url: str) -> None:
        """Set the certificates that the settings name for single hosts."""
        settings, setopt = self._settings, self.curl.setopt
        if is_unverified(url, settings.unverified_hosts):
            self._unusual = True
            self._trust_any_certificate()
        if ca_file := file_for(url, settings.ca_files):
            self._unusual = True
            setopt(pycurl.CAINFO, ca_file)
        if cert := file_for(url, settings.client_certs):
            self._unusual = True
            setopt(pycurl.SSLCERT, cert)
            setopt(pycurl.SSLKEY, cert)

    def _trust_any_certificate(self) -> None:
        self.curl.setopt(pycurl.SSL_VERIFYPEER, 0)
        self.curl.setopt(pycurl.SSL_VERIFYHOST, 0)

    def use_tls(self, ca_file: str, cache: pycurl.CurlShare) -> None:
        """Trust the authorities in a file, and resume TLS sessions from a cache, or store new ones in it.

        A reset does not change the cache of a handle.
        """
        if ca_file != self._ca_file:
            self._ca_file = ca_file
            self.curl.setopt(pycurl.CAINFO, ca_file)
        if cache is not self._tls_sessions:
            if self._tls_sessions is not None:
                self.curl.unsetopt(pycurl.SHARE)
            self._tls_sessions = cache
            self.curl.setopt(pycurl.SHARE, cache)

    def use_addresses(self, lines: list[str], seconds: float) -> None:
        """Give libcurl the addresses of a host, as lines of ``CURLOPT_RESOLVE``. ``seconds``: duration of the lookup."""
        self._extra, self.resolving = True, seconds
        self.curl.setopt(pycurl.RESOLVE, lines)

    def respond_to_challenges(self, credentials: str) -> None:
        """Log in by Digest (RFC 7616). libcurl first sends the request without credentials and a body."""
        self._unusual = self.is_challenged = True  # resetting the handle clears the challenge
        user, _, password = credentials.partition(":")
        self.curl.setopt(pycurl.HTTPAUTH, pycurl.HTTPAUTH_DIGEST)
        self.curl.setopt(pycurl.USERNAME, user.encode())
        self.curl.setopt(pycurl.PASSWORD, password.encode())

    def connect_afresh(self) -> None:
        """Open a new connection for this request."""
        self.fresh = self._unusual = True
        self.curl.setopt(pycurl.FRESH_CONNECT, 1)

    def close_connection(self) -> None:
        """Close the connection after the response."""
        self._closes = True
        self.curl.setopt(pycurl.FORBID_REUSE, 1)

    def check_before_sending(self, permit: SendPermit, resolving: float) -> None:
        """Check the permit right before the request is sent, and before a new connection is opened for it.

        ``resolving``: seconds that the lookup of the host name has taken, which are part of the time to connect.
        """
        self._permit, self._begun, self._connects = permit, time.monotonic() - resolving, False
        self.curl.setopt(pycurl.SOCKOPTFUNCTION, self._on_new_connection)
        self.curl.setopt(pycurl.PREREQFUNCTION, self._on_connected)

    def _on_new_connection(self, _fd: int, _purpose: int) -> int:
        self._connects = True
        return int(pycurl.SOCKOPT_ERROR if self._has_expired() else pycurl.SOCKOPT_OK)

    def _on_connected(self, *_where: object) -> int:
        if self._connects and self._permit is not None:
            self._permit.report_connecting(time.monotonic() - self._begun)
        return int(pycurl.PREREQFUNC_ABORT if self._has_expired() else pycurl.PREREQFUNC_OK)

    def _has_expired(self) -> bool:
        if self._permit is None or self._permit.may_send():
            return False
        # The next request to the host gets more time, also if a busy event loop has delayed this one.
        self._permit.report_connecting(time.monotonic() - self._begun)
        self.is_late = True
        return True

    def _limit_body(self, request: Request) -> None:
        """Set a limit of the body that differs from the setting, or that cuts the body."""
        self._unusual = True
        self.cuts = cuts_body(request, self._settings)
        limit, setopt = request.max_body or self._settings.max_body, self.curl.setopt
        if self.cuts:
            self._room = limit + limit // 64 + 1024  # an encoded body may be longer than the decoded one
            setopt(pycurl.MAXFILESIZE_LARGE, 0)
            setopt(pycurl.WRITEFUNCTION, self.take_block)
        else:
            setopt(pycurl.MAXFILESIZE_LARGE, limit)

    def _prepare_message(self, request: Request, added: Mapping[str, str] | None) -> None:
        """Set the headers, the method and the body of a request that is not a plain GET."""
        setopt, method = self.curl.setopt, request.method
        with_body = bool(request.body) or method not in ("GET", "HEAD")
        headers = {**request.headers, **added} if added else request.headers
        if headers or with_body:
            self._extra = True
            setopt(pycurl.HTTPHEADER, _header_lines(self._base_headers, headers, with_body=with_body))
        if method == "GET" and not with_body:
            return
        if not _TOKEN(method):
            raise UnsendableRequest(f"invalid HTTP method: {method!r}", remedy="use GET, POST, PUT ...")
        self._unusual = True
        if method == "HEAD":
            setopt(pycurl.NOBODY, 1)
            # The length that a response to HEAD states is not about to be sent.
            setopt(pycurl.MAXFILESIZE_LARGE, 0)
        if with_body:
            setopt(pycurl.POSTFIELDS, request.body)
            setopt(pycurl.CUSTOMREQUEST, method)

    def watch(self, on_line: Callable[[bytes], None], on_block: Callable[[bytes], int | None]) -> None:
        """Pass received data through two functions, which store it with :meth:`take_line` and ``take_block``.

        The data does not include the response of a proxy to CONNECT.
        """
        self._unusual = True
        self.curl.setopt(_SUPPRESS_CONNECT_HEADERS, 1)
        self.curl.setopt(pycurl.HEADERFUNCTION, on_line)
        self.curl.setopt(pycurl.WRITEFUNCTION, on_block)

    def take_line(self, line: bytes) -> None:
        """Store a line of the header."""
        self._lines.append(line)

    def take_block(self, block: bytes) -> int | None:
        """Store a part of the body. Return the result of curl's write function: 0 ends the transfer."""
        room = self._room
        if room is None:
            return self._store_block(block)
        self._room = max(0, room - len(block))
        if len(block) <= room:
            return self._store_block(block)
        self._store_block(block[:room])
        self.is_cut = True
        return 0

    def _store_block(self, block: bytes) -> int | None:
        self._chunks.append(block)
        return self._collect_blocks() if len(self._chunks) > _MAX_BLOCKS else None

    def _collect_blocks(self) -> int | None:
        if self._buffer is None:
            self._buffer = io.BytesIO()
        self._blocks += len(self._chunks)
        self._buffer.writelines(self._chunks)
        self._chunks.clear()
        tiny = self._buffer.tell() < self._blocks * _SHORTEST_BLOCK
        self.is_fragmented = tiny and self._blocks > _TINY_BLOCKS
        return 0 if self.is_fragmented else None

    def _body(self) -> bytes:
        chunks, buffer = self._chunks, self._buffer
        if buffer is None:
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)
        buffer.writelines(chunks)
        return buffer.getvalue()  # without a copy

    def raw_response(self) -> tuple[bytes, bytes]:
        """Return the final header block with its status line, and the body as it was transferred.

        Raises :class:`~skitter.fetch.contract.Disconnected` for an incomplete header block.
        """
        lines = self._lines
        if lines.count(b"\r\n") != 1 or lines[-1] != b"\r\n":
            lines = _final_block(lines)
        return b"".join(lines), self._body()

    @property
    def has_responded(self) -> bool:
        """Whether any part of the response has arrived."""
        return bool(self._lines)

    @property
    def protocol(self) -> str:
        """Protocol of the response, named as in ALPN: ``http/1.1``, ``h2`` ..."""
        return _PROTOCOLS.get(self.curl.getinfo(pycurl.INFO_HTTP_VERSION), "")

    @property
    def latency(self) -> float:
        """Seconds from sending the request to the first byte of the response, without the time to connect; never 0.

        A response that has waited for a busy event loop does not make its server slower.
        """
        getinfo = self.curl.getinfo
        sent, first_byte = getinfo(pycurl.PRETRANSFER_TIME), getinfo(pycurl.STARTTRANSFER_TIME)
        if self.unread and getinfo(pycurl.TOTAL_TIME) - first_byte < _ONE_READ:
            first_byte -= self.unread
        latency: float = first_byte - sent
        return max(_MIN_LATENCY, latency)

    def phases(self) -> FetchPhases:
        """Return the phases of the transfer that has ended."""
        info, before = self.curl.getinfo, self.resolving
        # curl reports times for a reused connection too, although it had no such phases.
        opened = info(pycurl.NUM_CONNECTS) > 0
        secured, first_byte = info(pycurl.APPCONNECT_TIME), info(pycurl.STARTTRANSFER_TIME)
        return FetchPhases(
            resolved=before + info(pycurl.NAMELOOKUP_TIME) if opened else before,
            connected=before + info(pycurl.CONNECT_TIME) if opened else 0.0,
            secured=before + secured if opened and secured else 0.0,
            answered=before + first_byte if first_byte else 0.0,
            ended=before + info(pycurl.TOTAL_TIME),
        )

    def trace(self) -> dict[str, Any]:
        """Return how long each step of the transfer took, in seconds; 0 for a step that was not needed."""
        phases = self.phases()
        return {
            "dns": phases.resolved,
            "connect": max(0.0, phases.connected - phases.resolved),
            "tls": max(0.0, phases.secured - phases.connected),
            "first_byte": self.latency,
            "total": phases.ended,
            "reused": not phases.connected,
        }

    def reset(self) -> None:
        """Prepare the handle for the next request."""
        self._lines.clear()
        self._chunks.clear()
        if self._buffer is not None:
            self._buffer, self._blocks = None, 0
        if self._extra:
            self._extra, self.resolving = False, 0.0
            self.curl.unsetopt(pycurl.COOKIE)
            self.curl.unsetopt(pycurl.RESOLVE)
            self.curl.setopt(pycurl.TIMEOUT_MS, _milliseconds(self._settings.timeout))
            self.curl.setopt(pycurl.HTTPHEADER, list(self._base_headers.values()))
        if self._closes:
            self._closes = False
            self.curl.setopt(pycurl.FORBID_REUSE, 0 if self._settings.reuse_connections else 1)
        if self._unusual:
            self._room = None
            self._unusual = self.fresh = self.is_challenged = self.cuts = self.is_cut = False
            self.curl.reset()
            self._configure()
        if self._permit is not None:
            self._permit, self.is_late = None, False
        if self._dialled or self._refused:
            self._dialled, self._refused = False, ""


def _milliseconds(seconds: float) -> int:
    # 0 would mean "no limit" to curl.
    return max(1, int(seconds * 1000))


def cuts_body(request: Request, settings: Settings) -> bool:
    """Return whether a body that is too large is cut, instead of being an error."""
    return settings.truncate_body if request.truncate_body is None else request.truncate_body


def base_headers(settings: Settings) -> dict[str, bytes]:
    """Return the header lines of every request in their order, by lower-case name.

    Raises :class:`~skitter.fetch.contract.UnsendableRequest` for an invalid name or value of a header.
    """
    return {name.lower(): _line(name, value) for name, value in default_headers(settings).items()}


def default_headers(settings: Settings) -> dict[str, str]:
    """Return the headers of every request, besides its own."""
    headers = {"User-Agent": settings.user_agent, **_DEFAULT_HEADERS, **settings.headers}
    if not any(name.lower() == "accept-encoding" for name in headers):
        headers["Accept-Encoding"] = _ACCEPT_ENCODING
    return headers


def _header_lines(base: Mapping[str, bytes], headers: Mapping[str, str], *, with_body: bool) -> list[bytes]:
    lines = dict(base)
    if with_body:
        # Curl adds these two headers by itself; a name without a value removes them.
        lines["expect"] = b"Expect:"
        lines["content-type"] = b"Content-Type:"
    for name, value in headers.items():
        key = name.lower()
        if key not in _FRAMING:
            lines[key] = _line(name, value)
    return list(lines.values())


def _line(name: str, value: str) -> bytes:
    if not _TOKEN(name) or _UNSAFE_VALUE(value):
        raise UnsendableRequest(
            f"invalid header {name!r}: {value!r}",
            remedy="use a valid header name and a value without line breaks",
        )
    # With a colon and no value, curl would leave the header out. With a semicolon, it sends an empty header.
    line = f"{name}: {value}" if value.strip() else f"{name};"
    return line.encode("utf-8", "surrogateescape")  # cookies may have bytes that are not UTF-8


_STATUS_LINE = re.compile(rb"HTTP/\d").match


def _final_block(lines: list[bytes]) -> list[bytes]:
    """Remove 1xx responses and the response of a proxy to CONNECT before the header block, and trailers after it (RFC 9110, 6.5.1).

    The same callback receives all of them. The final block is the last one that starts with a status line.
    """
    start = 0
    for index in range(1, len(lines)):
        if _is_blank(lines[index - 1]) and _STATUS_LINE(lines[index]):
            start = index
    for index in range(start, len(lines)):
        if _is_blank(lines[index]):
            return lines[start : index + 1]
    # Curl takes such a response for a complete one without a body.
    raise Disconnected("the connection closed within the header block")


def _is_blank(line: bytes) -> bool:
    return line in (b"\r\n", b"\n")
