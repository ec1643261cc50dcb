"""A driver that stores items as rows in PostgreSQL, under their ids. Needs the extra ``postgresql``.

A batch of items is sent as one JSON text, from which the server builds the rows (``json_populate_recordset``). So values
need no conversion here, and a user's own table with other types also works.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Literal
from urllib.parse import urlencode

import asyncpg
import msgspec
import xxhash

from skitter._utils.backoff import Unavailable
from skitter._utils.visible import one_line
from skitter.errors import StoreError
from skitter.item import encode_item, item_fields, map_texts, without_surrogates
from skitter.secrets import output_variable
from skitter.store.contract import OutputAddress, StoreContext
from skitter.store.database import BufferOptions, Encoded, PageItems, put_or_bisect, take_options
from skitter.store.sql import (
    ID_COLUMN,
    KEPT,
    ColumnRules,
    ItemRefusedError,
    RowShape,
    TableColumns,
    kind_of,
    quoted,
)

_CONNECT_SECONDS = 10.0
_COMMAND_SECONDS = 60.0
_LOCK_SECONDS = 30
_SCHEMA_ATTEMPTS = 5
"""Maximum number of attempts of a write while other workers change the table."""
_SCHEMA_CHANGED = (
    asyncpg.UndefinedColumnError,
    asyncpg.DuplicateColumnError,
    asyncpg.InvalidCachedStatementError,
    asyncpg.OutdatedSchemaCacheError,
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
)
_UNAVAILABLE = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the server closed the connection between two statements
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.LockNotAvailableError,
)
# Errors caused by the values of an item, or by the user's own constraints and triggers.
_ITEM_ERRORS = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.RaiseError,
    asyncpg.ProgramLimitExceededError,
    ItemRefusedError,
)
_RETRY_REMEDY = "fix the cause, then run the same command again: nothing that was committed is lost"


class TableOptions(msgspec.Struct, frozen=True):
    """The options of a ``postgresql://`` URL that do not concern the client."""

    table: str = "items"
    schema: str = ""
    layout: Literal["columns", "jsonb"] = "columns"


_MAX_NAME_BYTES = 63
_SYSTEM_COLUMNS = frozenset({"cmax", "cmin", "ctid", "tableoid", "xmax", "xmin"})
"""Columns that every table has already (section 5.6 of PostgreSQL's manual)."""
_TYPE_FOR = {
    "bool": "boolean",
    "int": "bigint",
    "long": "bigint",
    "huge": "numeric",
    "float": "double precision",
    "decimal": "numeric",
    "text": "text",
    "bytes": "bytea",
    "moment": "timestamp with time zone",
    "local": "timestamp without time zone",
    "date": "date",
    "json": "jsonb",
}
RULES = ColumnRules(
    type_for=_TYPE_FOR,
    takes={
        "boolean": frozenset({"bool"}),
        "bigint": frozenset({"int", "long"}),
        "double precision": frozenset({"float", "int"}),
        "numeric": frozenset({"int", "long", "huge", "float", "decimal"}),
        "bytea": frozenset({"bytes"}),
        "timestamp with time zone": frozenset({"moment"}),
        "timestamp without time zone": frozenset({"local"}),
        "date": frozenset({"date"}),
        "text": frozenset(_TYPE_FOR) - {"json"},
        "jsonb": frozenset(_TYPE_FOR),
    },
    wider=("numeric", "text", "jsonb"),
    max_columns=1600,  # appendix K of PostgreSQL's manual
    layout="jsonb",
)


def column_of(field: str) -> str:
    """Return the column of a field: its own name, or a name with a hash if PostgreSQL does not allow it."""
    name = without_surrogates(field)
    is_taken = name == ID_COLUMN or name in _SYSTEM_COLUMNS
    if "\0" not in name and name and not is_taken and len(name.encode()) <= _MAX_NAME_BYTES:
        return str(name)
    short = name.replace("\0", "\ufffd").encode()[: _MAX_NAME_BYTES - 9].decode(errors="ignore")
    return f"{short}_{xxhash.xxh32_hexdigest(name.encode())}"


class PostgresDriver:
    """Uses one connection, which is opened again when it breaks. Each batch is one transaction. Implements :class:`Driver`.

    The layout ``columns`` has a column for each field, which is added when the field first appears and widened when a
    value does not fit (see :data:`RULES`). The layout ``jsonb`` stores the whole item in the
    column ``item``.
    """

    def __init__(self, address: OutputAddress, options: Mapping[str, str], _buffer: BufferOptions) -> None:
        """Read the URL. Unknown options are passed to the client. Raises :class:`~skitter.errors.StoreError`."""
        access, _, server = address.rest.rpartition("@")
        others = dict(options)
        own = take_options(f"postgresql://{server}", others, TableOptions)
        for name in (own.table, own.schema):
            if "\0" in name or len(name.encode()) > _MAX_NAME_BYTES or not own.table:
                raise StoreError(
                    f"invalid name of a table or schema: {name!r}",
                    remedy="use 1 to 63 bytes, such as ?table=NAME",
                    field="table" if name == own.table else "schema",
                )
        self.name = f"postgresql://{server}?table={own.table}"
        self._relation = f"{quoted(own.schema)}.{quoted(own.table)}" if own.schema else quoted(own.table)
        self._layout = own.layout
        self._dsn = f"postgresql://{address.rest}" + (f"?{urlencode(others)}" if others else "")
        has_password = ":" in access or "password" in others
        self._password = "" if has_password else address.password("postgresql")
        """Password from outside the URL; empty if the URL contains one, or if the client finds one itself."""
        self._columns = TableColumns(RULES)
        self._connection: asyncpg.Connection[Any] | None = None

    async def open(self, context: StoreContext) -> None:  # noqa: ARG002 - the server decides on durability
        """Connect, and create the table if it does not exist."""
        async with self._connected() as connection:
            await self._make_table(connection)

    async def check(self, job: str) -> None:
        """Test whether skitter created the table and may write to it, by deleting rows that do not exist."""
        async with self._connected() as connection:
            await self._check_table(connection)
            await self._put_rows(connection, [PageItems(f"{job}:check:", [])])

    async def clear(self, job: str) -> None:
        async with self._connected() as connection:
            await connection.execute(
                f"DELETE FROM {self._relation} WHERE {ID_COLUMN} > $1 AND {ID_COLUMN} < $2"  # noqa: S608 - quoted
                # The pattern excludes jobs whose name starts with this job's name and a colon.
                f" AND substr({ID_COLUMN}, length($1) + 1) ~ '^[0-9a-f]{{32}}:[0-9]+$'",
                f"{job}:",
                f"{job};",
            )

    async def close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            try:
                await connection.close(timeout=5)
            except _UNAVAILABLE:
                connection.terminate()

    # --- items -----------------------------------------------------------------------------------------

    def encode(self, item: Any) -> Encoded:
        """Return the item as JSON with columns as keys, and the kinds of its values."""
        if self._layout == "jsonb":
            return Encoded(_without_nul(encode_item(item)))
        fields = item_fields(item, keep=KEPT)
        row = {column_of(name): value for name, value in fields.items()}
        shape = (tuple(row), tuple(map(kind_of, row.values())))
        if "bytes" in shape[1]:
            row = {k: "\\x" + v.hex() if isinstance(v, bytes) else v for k, v in row.items()}
        return Encoded(_without_nul(encode_item(row)), shape)

    async def put(self, pages: Sequence[PageItems]) -> list[str]:
        async with self._connected() as connection:
            return await put_or_bisect(
                lambda part: self._put_with_retries(connection, part), pages, _ITEM_ERRORS
            )

    async def _put_with_retries(
        self, connection: asyncpg.Connection[Any], pages: Sequence[PageItems]
    ) -> None:
        """Write all pages. Try again if other workers add or widen columns at the same time."""
        for _ in range(_SCHEMA_ATTEMPTS):
            try:
                await self._fit(connection, {item.shape for page in pages for item in page.items})
                await self._put_rows(connection, pages)
            except _SCHEMA_CHANGED:
                self._columns.forget()
                await connection.reload_schema_state()
            else:
                return
        raise Unavailable("other workers keep changing the table")

    async def _put_rows(self, connection: asyncpg.Connection[Any], pages: Sequence[PageItems]) -> None:
        rows = [
            (f"{page.prefix}{number}", item.data) for page in pages for number, item in enumerate(page.items)
        ]
        async with connection.transaction():
            # Without statistics, the planner may prefer a sequential scan of the whole table.
            await connection.execute("SET LOCAL enable_seqscan = off")
            await connection.execute(
                f"DELETE FROM {self._relation} USING unnest($1::text[], $2::int[]) AS page(prefix, kept)"  # noqa: S608 - quoted
                f" WHERE {ID_COLUMN} > prefix AND {ID_COLUMN} < left(prefix, -1) || ';'"
                f" AND substr({ID_COLUMN}, length(prefix) + 1)::int >= kept",
                [page.prefix for page in pages],
                [len(page.items) for page in pages],
            )
            if rows:
                await connection.execute(*self._insert(rows))

    def _insert(self, rows: list[tuple[str, bytes]]) -> tuple[Any, ...]:
        """Return the INSERT statement and its arguments."""
        if self._layout == "jsonb":
            statement = (
                f"INSERT INTO {self._relation} ({ID_COLUMN}, item)"  # noqa: S608 - quoted
                " SELECT id, item::jsonb FROM unnest($1::text[], $2::text[]) AS new(id, item)"
                f" ON CONFLICT ({ID_COLUMN}) DO UPDATE SET item = EXCLUDED.item"
            )
            return statement, [name for name, _ in rows], [data.decode() for _, data in rows]
        names = [quoted(column) for column in self._columns.types]
        changes = ", ".join(f"{name} = EXCLUDED.{name}" for name in names)
        listed = ", ".join([ID_COLUMN, *names])
        records = b",".join([_with_id(name, data) for name, data in rows])
        statement = (
            f"INSERT INTO {self._relation} ({listed})"  # noqa: S608 - quoted
            f" SELECT {listed} FROM json_populate_recordset(NULL::{self._relation}, $1::json)"
            f" ON CONFLICT ({ID_COLUMN}) DO {f'UPDATE SET {changes}' if names else 'NOTHING'}"
        )
        return statement, f"[{records.decode()}]"

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[asyncpg.Connection[Any]]:
        """Yield a connection. Translate errors, and discard a connection that failed."""
        with _translated_errors(self.name):
            try:
                yield await self._connect()
            except _UNAVAILABLE:
                if self._connection is not None:
                    # The connection may seem open, but still contain the reply to an earlier statement.
                    self._connection.terminate()
                    self._connection = None
                raise

    # --- the table -------------------------------------------------------------------------------------

    async def _connect(self) -> asyncpg.Connection[Any]:
        if self._connection is None or self._connection.is_closed():
            self._connection = await asyncpg.connect(
                self._dsn, password=self._password or None,
                timeout=_CONNECT_SECONDS, command_timeout=_COMMAND_SECONDS,
            )  # fmt: skip
            await self._connection.execute(f"SET lock_timeout = '{_LOCK_SECONDS}s'")
            self._columns.forget()
        return self._connection

    async def _make_table(self, connection: asyncpg.Connection[Any]) -> None:
        item = ", item jsonb NOT NULL" if self._layout == "jsonb" else ""
        if await connection.fetchval("SELECT to_regclass($1)", self._relation) is not None:
            return
        with suppress(asyncpg.UniqueViolationError):  # another worker created it at the same time
            await connection.execute(
                f'CREATE TABLE IF NOT EXISTS {self._relation} ({ID_COLUMN} text COLLATE "C" PRIMARY KEY{item})'
            )

    async def _check_table(self, connection: asyncpg.Connection[Any]) -> None:
        keys = await connection.fetch(
            "SELECT attname, format_type(atttypid, NULL) AS type FROM pg_index JOIN pg_attribute"
            " ON attrelid = indrelid AND attnum = ANY(indkey) WHERE indrelid = $1::text::regclass AND indisprimary",
            self._relation,
        )
        types, _ = await self._types(connection)
        jsonb = types.get("item") == "jsonb"
        if [tuple(key) for key in keys] != [(ID_COLUMN, "text")] or (self._layout == "jsonb" and not jsonb):
            raise StoreError(
                f"{self.name}: the table was not created by skitter with this layout",
                remedy="name another table with ?table=NAME; it is created if it does not exist",
                field="table",
            )

    async def _types(self, connection: asyncpg.Connection[Any]) -> tuple[dict[str, str], list[str]]:
        """Return the types of the columns that items may fill, and the columns that the database fills itself."""
        rows = await connection.fetch(
            "SELECT attname, format_type(atttypid, NULL) AS type, atthasdef OR attidentity <> '' AS filled"
            " FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped"
            " AND attname <> $2 ORDER BY attnum",
            self._relation,
            ID_COLUMN,
        )
        types = {row["attname"]: row["type"] for row in rows if not row["filled"]}
        return types, [row["attname"] for row in rows if row["filled"]]

    async def _fit(self, connection: asyncpg.Connection[Any], shapes: set[RowShape]) -> None:
        """Add and widen columns as these shapes require."""
        if self._layout == "jsonb":
            return
        if not self._columns.types:
            self._columns.learn(*await self._types(connection))
        if not self._columns.misfits(shapes):
            return
        async with connection.transaction():
            await connection.execute(f"LOCK TABLE {self._relation} IN ACCESS EXCLUSIVE MODE")
            before, filled = await self._types(connection)
            self._columns.learn(before, filled)
            for column, wanted in self._columns.misfits(shapes).items():
                await connection.execute(self._change(column, before.get(column), wanted))
            found = await self._types(connection)
        self._columns.learn(*found)

    def _change(self, column: str, present: str | None, wanted: str) -> str:
        name = quoted(column)
        alter = f"ALTER TABLE {self._relation}"
        if present is None:
            return f"{alter} ADD COLUMN {name} {wanted}"
        converted = {"jsonb": f"to_jsonb({name})", "text": f"to_json({name}) #>> '{{}}'"}.get(
            wanted, f"{name}::{wanted}"
        )
        return f"{alter} ALTER COLUMN {name} TYPE {wanted} USING {converted}"


def _with_id(name: str, data: bytes) -> bytes:
    start = b'{"_id":' + msgspec.json.encode(name)
    return start + data[1:] if data == b"{}" else start + b"," + data[1:]


def _without_nul(data: bytes) -> bytes:
    """Replace NUL characters, which PostgreSQL cannot store, with U+FFFD."""
    if b"\\u0000" not in data:
        return data
    return msgspec.json.encode(
        map_texts(msgspec.json.decode(data), lambda text: text.replace("\0", "\ufffd"))
    )


@contextmanager
def _translated_errors(name: str) -> Iterator[None]:
    try:
        yield
    except asyncpg.InvalidAuthorizationSpecificationError as error:
        raise StoreError(
            f"{name} refuses the user or the password: {error}",
            remedy=f"set {output_variable('postgresql')} or PGPASSWORD, or write postgresql://USER:PASSWORD@HOST/DATABASE",
        ) from error
    except asyncpg.InvalidCatalogNameError as error:
        raise StoreError(f"{name}: {error}", remedy="create the database, or name another one") from error
    except asyncpg.InsufficientPrivilegeError as error:
        raise StoreError(
            f"{name}: {error}", remedy="grant the user the required privileges on the schema and the table"
        ) from error
    except (ValueError, asyncpg.ClientConfigurationError) as error:
        raise StoreError(
            f"output {name}: {error}",
            remedy="write postgresql://[USER:PASSWORD@]HOST[:PORT]/DATABASE?table=NAME",
        ) from error
    except _UNAVAILABLE as error:
        raise Unavailable(one_line(error)) from error
    except asyncpg.PostgresError as error:
        raise StoreError(f"{name}: {one_line(error)}", remedy=_RETRY_REMEDY) from error
