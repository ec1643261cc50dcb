"""Certificates: which hosts need a valid one, and the client certificate of the job."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from skitter.errors import UsageError
from skitter.settings import Settings


def is_unverified(url: str, patterns: Sequence[str]) -> bool:
    """Return whether the certificate of a URL's host is not verified. Patterns are those of :mod:`fnmatch`."""
    host = urlsplit(url).hostname or ""
    return any(fnmatchcase(host, pattern.lower()) for pattern in patterns)


def check_certificate_files(settings: Settings) -> None:
    """Read the files of ``ca_file``, ``client_cert`` and ``client_key``, because libcurl reports a bad one at each request.

    Raises :class:`~skitter.errors.UsageError`. Blocks.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if settings.ca_file:
        try:
            context.load_verify_locations(settings.ca_file)
        except (OSError, ssl.SSLError) as error:
            _refuse("ca_file", settings.ca_file, error, "name a PEM file of certificates")
    if settings.client_key and not settings.client_cert:
        raise UsageError(
            "client_key is set without client_cert", remedy="set client_cert as well", field="client_key"
        )
    if settings.client_cert:
        try:
            # An encrypted key must not ask for its passphrase on the terminal.
            context.load_cert_chain(settings.client_cert, settings.client_key or None, password=lambda: "")
        except (OSError, ssl.SSLError) as error:
            remedy = "name PEM files of a certificate and its key, without a passphrase"
            _refuse("client_cert", settings.client_cert, error, remedy)


def _refuse(setting: str, path: str, error: Exception, remedy: str) -> None:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    raise UsageError(f"{setting} {path} cannot be used: {reason}", remedy=remedy, field=setting) from error
