"""PostgresDriver: items as rows of PostgreSQL, under their ids.

The items of a batch travel as one JSON text, and the server makes rows of it (``json_populate_recordset``): no
conversion of single values here, and a table of the user's own with other types works too.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import asyncpg
import msgspec

from skitter._utils.backoff import Unavailable
from skitter.errors import StoreError
from skitter.item import encode_item, item_fields
from skitter.secrets import output_variable
from skitter.store.columns import ID_COLUMN, FieldLimitError, quoted
from skitter.store.contract import StoreContext
from skitter.store.database import Encoded, PageItems
from skitter.store.postgresql.columns import PostgresColumns, RowShape, column_of, kind_of
from skitter.store.postgresql.location import PostgresLocation

_KEPT = (bytes, dt.datetime, dt.date, decimal.Decimal)
_CONNECT_SECONDS = 10.0
_COMMAND_SECONDS = 60.0
_LOCK_SECONDS = 30
_CHANGES = 5
"""How often the table may change under one write before it is begun anew."""
_SCHEMA_CHANGED = (
    asyncpg.UndefinedColumnError,
    asyncpg.DuplicateColumnError,
    asyncpg.InvalidCachedStatementError,
    asyncpg.OutdatedSchemaCacheError,
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
)
_AWAY = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a connection whose server said goodbye between two statements
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.LockNotAvailableError,
)
# What the values of an item, or the user's own constraints and triggers, can cause.
_ITEM_ERRORS = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.RaiseError,
    asyncpg.ProgramLimitExceededError,
    FieldLimitError,
)
_AGAIN = "see to the cause, then run the same command again: nothing that was committed is lost"


class PostgresDriver:
    """One connection, made again when it breaks. Each batch is one transaction.

    Layout ``columns``: a column for each field, added when the field is first seen and widened when a value does
    not fit (see :mod:`skitter.store.postgresql.columns`). Layout ``jsonb``: the whole item in the column ``item``.
    """

    def __init__(self, place: PostgresLocation) -> None:
        self.name = place.name
        self._place = place
        self._columns = PostgresColumns()
        self._connection: asyncpg.Connection[Any] | None = None

    async def open(self, context: StoreContext) -> None:  # noqa: ARG002 - the server decides how durable
        """Connect, and make the table if it is missing."""
        with self._trusted():
            connection = await self._connected()
            await self._make_table(connection)

    async def check(self, job: str) -> None:
        """Find out whether the table is one of ours that may be written: remove what is not there."""
        with self._trusted():
            connection = await self._connected()
            await self._check_table(connection)
            await self._put_rows(connection, [PageItems(f"{job}:check:", [])])

    async def clear(self, job: str) -> None:
        """Delete the rows of a job."""
        with self._trusted():
            connection = await self._connected()
            await connection.execute(
                f"DELETE FROM {self._place.relation} WHERE {ID_COLUMN} > $1 AND {ID_COLUMN} < $2"  # noqa: S608 - quoted
                # Not those of a job whose name begins with this one's and a colon.
                f" AND substr({ID_COLUMN}, length($1) + 1) ~ '^[0-9a-f]{{32}}:[0-9]+$'",
                f"{job}:",
                f"{job};",
            )

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            try:
                await connection.close(timeout=5)
            except _AWAY:
                connection.terminate()

    # --- items -----------------------------------------------------------------------------------------

    def encode(self, item: Any) -> Encoded:
        """Return the item as JSON with its columns as names, and their kinds."""
        if self._place.layout == "jsonb":
            return Encoded(_without_nul(encode_item(item)))
        fields = item_fields(item, keep=_KEPT)
        row = {column_of(name): value for name, value in fields.items()}
        shape = (tuple(row), tuple(map(kind_of, row.values())))
        if "bytes" in shape[1]:
            row = {k: "\\x" + v.hex() if isinstance(v, bytes) else v for k, v in row.items()}
        return Encoded(_without_nul(encode_item(row)), shape)

    async def put(self, pages: Sequence[PageItems]) -> list[str]:
        """Write the rows in one transaction; see :meth:`skitter.store.database.Driver.put`."""
        with self._trusted():
            connection = await self._connected()
            return await self._put_or_halve(connection, pages)

    async def _put_or_halve(
        self, connection: asyncpg.Connection[Any], pages: Sequence[PageItems]
    ) -> list[str]:
        """Write all pages, or find by halves those that cannot be written."""
        try:
            await self._put_as_it_changes(connection, pages)
        except _ITEM_ERRORS as error:
            if len(pages) == 1:
                return [" ".join(str(error).split())[:500]]
            half = len(pages) // 2
            first = await self._put_or_halve(connection, pages[:half])
            return first + await self._put_or_halve(connection, pages[half:])
        return [""] * len(pages)

    async def _put_as_it_changes(
        self, connection: asyncpg.Connection[Any], pages: Sequence[PageItems]
    ) -> None:
        """Write all pages, although other workers add columns to the table or widen them."""
        for _ in range(_CHANGES):
            try:
                await self._fit(connection, {item.shape for page in pages for item in page.items})
                await self._put_rows(connection, pages)
            except _SCHEMA_CHANGED:
                self._columns.forget()
                await connection.reload_schema_state()
            else:
                return
        raise Unavailable("the table is being changed all the time")

    async def _put_rows(self, connection: asyncpg.Connection[Any], pages: Sequence[PageItems]) -> None:
        rows = [
            (f"{page.prefix}{number}", item.data) for page in pages for number, item in enumerate(page.items)
        ]
        async with connection.transaction():
            # Without statistics the planner may prefer to read the whole table.
            await connection.execute("SET LOCAL enable_seqscan = off")
            await connection.execute(
                f"DELETE FROM {self._place.relation} USING unnest($1::text[], $2::int[]) AS page(prefix, kept)"  # noqa: S608 - quoted
                f" WHERE {ID_COLUMN} > prefix AND {ID_COLUMN} < left(prefix, -1) || ';'"
                f" AND substr({ID_COLUMN}, length(prefix) + 1)::int >= kept",
                [page.prefix for page in pages],
                [len(page.items) for page in pages],
            )
            if rows:
                await connection.execute(*self._insert(rows))

    def _insert(self, rows: list[tuple[str, bytes]]) -> tuple[Any, ...]:
        """Return the statement and its arguments."""
        relation = self._place.relation
        if self._place.layout == "jsonb":
            statement = (
                f"INSERT INTO {relation} ({ID_COLUMN}, item)"  # noqa: S608 - quoted
                " SELECT id, item::jsonb FROM unnest($1::text[], $2::text[]) AS one(id, item)"
                f" ON CONFLICT ({ID_COLUMN}) DO UPDATE SET item = EXCLUDED.item"
            )
            return statement, [name for name, _ in rows], [data.decode() for _, data in rows]
        names = [quoted(column) for column in self._columns.types]
        changes = ", ".join(f"{name} = EXCLUDED.{name}" for name in names)
        listed = ", ".join([ID_COLUMN, *names])
        records = b",".join([_with_id(name, data) for name, data in rows])
        statement = (
            f"INSERT INTO {relation} ({listed})"  # noqa: S608 - quoted
            f" SELECT {listed} FROM json_populate_recordset(NULL::{relation}, $1::json)"
            f" ON CONFLICT ({ID_COLUMN}) DO {f'UPDATE SET {changes}' if names else 'NOTHING'}"
        )
        return statement, f"[{records.decode()}]"

    @contextmanager
    def _trusted(self) -> Iterator[None]:
        """Explain what goes wrong, and take no answer any more from a connection that failed."""
        with _explained(self._place):
            try:
                yield
            except _AWAY:
                if self._connection is not None:
                    # It may seem open, and hold the answer to an earlier statement.
                    self._connection.terminate()
                    self._connection = None
                raise

    # --- the table -------------------------------------------------------------------------------------

    async def _connected(self) -> asyncpg.Connection[Any]:
        if self._connection is None or self._connection.is_closed():
            self._connection = await asyncpg.connect(
                self._place.dsn, password=self._place.password or None,
                timeout=_CONNECT_SECONDS, command_timeout=_COMMAND_SECONDS,
            )  # fmt: skip
            await self._connection.execute(f"SET lock_timeout = '{_LOCK_SECONDS}s'")
            self._columns.forget()
        return self._connection

    async def _make_table(self, connection: asyncpg.Connection[Any]) -> None:
        item = ", item jsonb NOT NULL" if self._place.layout == "jsonb" else ""
        if await connection.fetchval("SELECT to_regclass($1)", self._place.relation) is not None:
            return
        with suppress(asyncpg.UniqueViolationError):  # another worker made it at the same moment
            await connection.execute(
                f'CREATE TABLE IF NOT EXISTS {self._place.relation} ({ID_COLUMN} text COLLATE "C" PRIMARY KEY{item})'
            )

    async def _check_table(self, connection: asyncpg.Connection[Any]) -> None:
        keys = await connection.fetch(
            "SELECT attname, format_type(atttypid, NULL) AS type FROM pg_index JOIN pg_attribute"
            " ON attrelid = indrelid AND attnum = ANY(indkey) WHERE indrelid = $1::text::regclass AND indisprimary",
            self._place.relation,
        )
        types = await self._types(connection)
        jsonb = types.get("item") == "jsonb"
        if [tuple(key) for key in keys] != [(ID_COLUMN, "text")] or (
            self._place.layout == "jsonb" and not jsonb
        ):
            raise StoreError(
                f"{self.name}: the table was not made by skitter for this layout",
                remedy="name another table: ?table=NAME; it is made if it is missing",
            )

    async def _types(self, connection: asyncpg.Connection[Any]) -> dict[str, str]:
        """Return the columns that items may fill: not those that fill themselves."""
        rows = await connection.fetch(
            "SELECT attname, format_type(atttypid, NULL) AS type FROM pg_attribute"
            " WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped AND NOT atthasdef"
            " AND attidentity = '' AND attname <> $2 ORDER BY attnum",
            self._place.relation,
            ID_COLUMN,
        )
        return {row["attname"]: row["type"] for row in rows}

    async def _fit(self, connection: asyncpg.Connection[Any], shapes: set[RowShape]) -> None:
        """Add and widen columns as items of these shapes need it."""
        if self._place.layout == "jsonb":
            return
        if not self._columns.types:
            self._columns.learn(await self._types(connection))
        if not self._columns.misfits(shapes):
            return
        async with connection.transaction():
            await connection.execute(f"LOCK TABLE {self._place.relation} IN ACCESS EXCLUSIVE MODE")
            before = await self._types(connection)
            self._columns.learn(before)
            for column, wanted in self._columns.misfits(shapes).items():
                await connection.execute(self._change(column, before.get(column), wanted))
            types = await self._types(connection)
        self._columns.learn(types)

    def _change(self, column: str, present: str | None, wanted: str) -> str:
        name = quoted(column)
        alter = f"ALTER TABLE {self._place.relation}"
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
    """Replace NUL characters, which PostgreSQL cannot hold, by U+FFFD."""
    if b"\\u0000" not in data:
        return data
    return msgspec.json.encode(_mapped(msgspec.json.decode(data), lambda text: text.replace("\0", "\ufffd")))


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(key): _mapped(inner, change) for key, inner in value.items()}
    return [_mapped(inner, change) for inner in value] if isinstance(value, list) else value


@contextmanager
def _explained(place: PostgresLocation) -> Iterator[None]:
    name = place.name
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
            f"{name}: {error}", remedy="grant the user what it needs on the schema and the table"
        ) from error
    except (ValueError, asyncpg.ClientConfigurationError) as error:
        raise StoreError(
            f"output {name}: {error}",
            remedy="write postgresql://[USER:PASSWORD@]HOST[:PORT]/DATABASE?table=NAME",
        ) from error
    except _AWAY as error:
        raise Unavailable(" ".join(str(error).split()) or type(error).__name__) from error
    except asyncpg.PostgresError as error:
        raise StoreError(f"{name}: {' '.join(str(error).split())}", remedy=_AGAIN) from error
