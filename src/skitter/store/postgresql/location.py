"""The table that a PostgreSQL URL names."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlencode

import msgspec

from skitter.errors import StoreError
from skitter.store.columns import quoted

TableLayout = Literal["columns", "jsonb"]


class PostgresLocation(msgspec.Struct, frozen=True):
    """A table of a database."""

    dsn: str
    """Connection URL for the client, with user and password."""
    password: str
    """Password from outside the URL; empty if the URL contains one, or if the client finds one itself."""
    name: str
    """The name for messages."""
    schema: str
    table: str
    layout: TableLayout

    @classmethod
    def parse(cls, rest: str, options: dict[str, str], password: str = "") -> PostgresLocation:
        """Parse a URL. The remaining ``options`` are passed to the client. ``password`` completes a URL without one.

        Raises :class:`~skitter.errors.StoreError`.
        """
        table, schema = options.pop("table", "items"), options.pop("schema", "")
        layout = options.pop("layout", "columns")
        access, _, server = rest.rpartition("@")
        display_name = f"postgresql://{server}?table={table}"
        for name in filter(None, (table, schema)) if table else [table]:
            if not name or "\0" in name or len(name.encode()) > 63:
                raise StoreError(
                    f"invalid name of a table or schema: {name!r}",
                    remedy="use 1 to 63 bytes, such as ?table=NAME",
                    field="table" if name == table else "schema",
                )
        if layout not in ("columns", "jsonb"):
            raise StoreError(
                f"output {display_name!r}: invalid layout {layout!r}",
                remedy="use layout=columns or layout=jsonb",
                field="layout",
            )
        dsn = f"postgresql://{rest}" + (f"?{urlencode(options)}" if options else "")
        separate_password = "" if ":" in access or "password" in options else password
        return cls(
            dsn, separate_password, display_name, schema, table, "jsonb" if layout == "jsonb" else "columns"
        )

    @property
    def relation(self) -> str:
        """The qualified name of the table in SQL."""
        return f"{quoted(self.schema)}.{quoted(self.table)}" if self.schema else quoted(self.table)
