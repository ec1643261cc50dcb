"""The table that a MySQL or MariaDB URL names."""

from __future__ import annotations

import ssl
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

import msgspec

from skitter.errors import StoreError

_DEFAULT_PORT = 3306
_SSL_MODES = ("disable", "require", "verify-ca", "verify-full")
_CLIENT_OPTIONS = ("sslmode", "sslrootcert", "sslcert", "sslkey", "unix_socket")


class MySqlLocation(msgspec.Struct, frozen=True):
    """A table of a database."""

    client: dict[str, Any]
    """Arguments for the client: host, port, user, password, database."""
    tls: dict[str, str]
    """The options whose names begin with ``ssl``, as PostgreSQL's client names them."""
    name: str
    """The name for messages."""
    table: str
    layout: Literal["columns", "json"]

    @classmethod
    def parse(cls, rest: str, options: dict[str, str], password: str = "") -> MySqlLocation:
        """Parse a URL. ``password`` completes a URL without one. Raises :class:`~skitter.errors.StoreError`."""
        table = options.pop("table", "items")
        layout = options.pop("layout", "columns")
        display_name = f"mysql://{rest.rpartition('@')[2]}?table={table}"
        if not table or len(table) > 64 or table != table.rstrip(" ") or any(c in "\0/\\." for c in table):
            raise StoreError(
                f"invalid name of a table: {table!r}",
                remedy="use 1 to 64 characters, such as ?table=NAME",
                field="table",
            )
        if layout not in ("columns", "json"):
            raise StoreError(
                f"output {display_name!r}: invalid layout {layout!r}",
                remedy="use layout=columns or layout=json",
                field="layout",
            )
        for option in options:
            if option not in _CLIENT_OPTIONS:
                raise StoreError(
                    f"unknown option {option!r} of output {display_name!r}",
                    remedy="remove it, or use one of the options table, layout, buffer, flush, outage_timeout, "
                    + ", ".join(_CLIENT_OPTIONS),
                    field=option,
                )
        client = _client_arguments(rest, display_name, password)
        if socket := options.pop("unix_socket", ""):
            client["unix_socket"] = socket
        if options.get("sslmode", "disable") not in _SSL_MODES:
            raise StoreError(
                f"output {display_name!r}: invalid sslmode {options['sslmode']!r}",
                remedy=f"use one of {', '.join(_SSL_MODES)}",
                field="sslmode",
            )
        return cls(client, options, display_name, table, "json" if layout == "json" else "columns")

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the TLS settings of the client. This blocks: it reads certificates. Raises ``OSError``."""
        mode = self.tls.get("sslmode", "verify-full" if self.tls else "disable")
        if mode == "disable":
            return None
        context = ssl.create_default_context(cafile=self.tls.get("sslrootcert"))
        context.check_hostname = mode == "verify-full"
        if mode == "require":
            context.verify_mode = ssl.CERT_NONE
        if certificate := self.tls.get("sslcert"):
            context.load_cert_chain(certificate, self.tls.get("sslkey"))
        return context


def _client_arguments(rest: str, display_name: str, password: str) -> dict[str, Any]:
    try:
        url = urlsplit(f"mysql://{rest}")
        port = url.port or _DEFAULT_PORT
    except ValueError as error:
        raise StoreError(f"output {display_name!r}: {error}", remedy=URL_REMEDY, field="output") from None
    database = unquote(url.path.removeprefix("/"))
    if not database or "/" in database:
        raise StoreError(
            f"output {display_name!r} does not name a database", remedy=URL_REMEDY, field="output"
        )
    return {
        "host": url.hostname or "localhost",
        "port": port,
        "user": unquote(url.username or "") or None,
        "password": unquote(url.password) if url.password is not None else password,
        "db": database,
    }


URL_REMEDY = "write mysql://[USER:PASSWORD@]HOST[:PORT]/DATABASE?table=NAME"
