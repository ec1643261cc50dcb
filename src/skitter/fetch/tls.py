"""TLS: which hosts need a valid certificate, who is trusted, client certificates, and the sessions of hosts."""

from __future__ import annotations

import itertools
import ssl
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from urllib.parse import urlsplit

import pycurl

from skitter.errors import UsageError
from skitter.settings import Settings
from skitter.web.urls import ascii_domain

_HOSTS_PER_CACHE = 20
"""Origins per cache. libcurl keeps the sessions of 25 hosts in a cache. The rest is room for hosts with several client
certificates."""
_MAX_CACHES = 500
"""Number of caches: for 10,000 hosts, at a few kilobytes each."""


@cache
def public_authorities() -> str:
    """Return the file with the certificates of the authorities that browsers trust."""
    import certifi  # noqa: PLC0415 - a crawl of http URLs does not need it

    return certifi.where()


class TlsSessions:
    """TLS sessions of hosts, so that the next connection to a host resumes its session (RFC 8446, section 2.2).

    libcurl has one cache for all hosts of a multi handle, with room for 25 hosts. This class gives each group of hosts its
    own cache.
    """

    def __init__(self) -> None:
        self._caches: dict[str, pycurl.CurlShare] = {}
        """The cache of each origin, oldest first. Several origins share a cache."""
        self._newest: pycurl.CurlShare
        """The cache of the next new origin. It is created with the first one."""

    def cache_for(self, origin: str) -> pycurl.CurlShare:
        """Return the cache of an origin, to be used as ``CURLOPT_SHARE``."""
        cache = self._caches.get(origin)
        if cache is None:
            if len(self._caches) % _HOSTS_PER_CACHE == 0:
                self._start_cache()
            cache = self._caches[origin] = self._newest
        return cache

    def _start_cache(self) -> None:
        if len(self._caches) >= _MAX_CACHES * _HOSTS_PER_CACHE:
            for origin in list(itertools.islice(self._caches, _HOSTS_PER_CACHE)):
                del self._caches[origin]
        self._newest = pycurl.CurlShare()
        self._newest.setopt(pycurl.SH_SHARE, pycurl.LOCK_DATA_SSL_SESSION)


def is_unverified(url: str, patterns: Sequence[str]) -> bool:
    """Return whether the certificate of a URL's host is not verified. Patterns have the syntax of :mod:`fnmatch`."""
    host = urlsplit(url).hostname or ""
    return any(_matches(host, pattern) for pattern in patterns)


def file_for(url: str, files: Mapping[str, str]) -> str:
    """Return the file of the first pattern that matches the host of a URL; empty if there is none."""
    host = urlsplit(url).hostname or ""
    return next((file for pattern, file in files.items() if _matches(host, pattern)), "")


def _matches(host: str, pattern: str) -> bool:
    return fnmatchcase(host, ascii_domain(pattern.lower()))


def check_certificate_files(settings: Settings) -> None:
    """Read the files of certificates that the settings name, because libcurl reports a bad one at each request.

    Raises :class:`~skitter.errors.UsageError`. Blocks.
    """
    for name, path in (
        ("ca_file", settings.ca_file),
        *(("ca_files", path) for path in settings.ca_files.values()),
    ):
        if path or name == "ca_files":
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
            except (OSError, ssl.SSLError) as error:
                _refuse(name, path, error, "name a PEM file of certificates")
    if settings.client_key and not settings.client_cert:
        raise UsageError(
            "client_key is set without client_cert", remedy="set client_cert as well", field="client_key"
        )
    if settings.client_cert:
        _check_pair("client_cert", settings.client_cert, settings.client_key or None)
    for path in settings.client_certs.values():
        _check_pair("client_certs", path, None)


def _check_pair(setting: str, cert: str, key: str | None) -> None:
    try:
        # An encrypted key must not ask for its passphrase on the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(cert, key, password=lambda: "")
    except (OSError, ssl.SSLError) as error:
        _refuse(setting, cert, error, "name PEM files of a certificate and its key, without a passphrase")


def _refuse(setting: str, path: str, error: Exception, remedy: str) -> None:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    raise UsageError(f"{setting} {path} cannot be used: {reason}", remedy=remedy, field=setting) from error
