"""PostgresLocation: which table of which server a URL means."""

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
    """For the client, with user and password."""
    password: str
    """The password that stands outside of the URL; empty: the URL has one, or the client looks for itself."""
    name: str
    """For people."""
    schema: str
    table: str
    layout: TableLayout

    @classmethod
    def parse(cls, rest: str, options: dict[str, str], password: str = "") -> PostgresLocation:
        """Read a URL; what is left in ``options`` is for the client, ``password`` is for a URL that has none.

        Raises :class:`~skitter.errors.StoreError`.
        """
        table, schema = options.pop("table", "items"), options.pop("schema", "")
        layout = options.pop("layout", "columns")
        access, _, server = rest.rpartition("@")
        place = f"postgresql://{server}?table={table}"
        for name in filter(None, (table, schema)) if table else [table]:
            if not name or "\0" in name or len(name.encode()) > 63:
                raise StoreError(
                    f"{name!r} cannot be the name of a table or schema",
                    remedy="give 1 to 63 bytes: ?table=NAME",
                )
        if layout not in ("columns", "jsonb"):
            raise StoreError(
                f"output {place!r}: layout {layout!r}", remedy="use layout=columns or layout=jsonb"
            )
        dsn = f"postgresql://{rest}" + (f"?{urlencode(options)}" if options else "")
        outside = "" if ":" in access or "password" in options else password
        return cls(dsn, outside, place, schema, table, "jsonb" if layout == "jsonb" else "columns")

    @property
    def relation(self) -> str:
        """The table as it stands in SQL."""
        return f"{quoted(self.schema)}.{quoted(self.table)}" if self.schema else quoted(self.table)
