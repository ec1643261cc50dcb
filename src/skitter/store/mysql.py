"""A driver that stores items as rows in MySQL or MariaDB, under their ids. Needs the extra ``mysql``.

The statements contain the values as literals, so that a batch is one statement for all rows with the same fields.
The session has the modes ``STRICT_ALL_TABLES`` (no value is changed silently), ``ANSI_QUOTES`` and
``NO_BACKSLASH_ESCAPES`` (names and texts are quoted as in standard SQL).
"""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import math
import os
import ssl
import unicodedata
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

import aiomysql
import msgspec
import xxhash
from pymysql import err
from pymysql.constants import CLIENT

from skitter._utils.backoff import Unavailable
from skitter.errors import StoreError
from skitter.item import encode_item, item_fields, without_surrogates
from skitter.secrets import output_variable
from skitter.store.contract import OutputAddress, StoreContext
from skitter.store.database import BufferOptions, Encoded, PageItems, put_or_bisect, read_options
from skitter.store.sql import (
    ID_COLUMN,
    KEPT,
    ColumnRules,
    ItemRefusedError,
    RowShape,
    TableColumns,
    column_for,
    encodable,
    kind_of,
    quoted,
)

_CONNECT_SECONDS = 10.0
_COMMAND_SECONDS = 60.0
_LOCK_SECONDS = 30
_ATTEMPTS = 5
"""Maximum number of attempts of a write while other workers change the table or the same rows."""
_LARGEST_STATEMENT = 4 << 20
_SESSION = (
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,ANSI_QUOTES,NO_BACKSLASH_ESCAPES,NO_ENGINE_SUBSTITUTION'",
    f"SET SESSION lock_wait_timeout = {_LOCK_SECONDS}, innodb_lock_wait_timeout = {_LOCK_SECONDS}",
    # With the default, REPEATABLE READ, workers that write neighboring ids block each other.
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
)

# Error numbers of the servers: https://mariadb.com/kb/en/mariadb-error-code-reference/
_DUPLICATE = 1062
_NO_DATABASE = 1049
_COLUMN_EXISTS = 1060
_LOGIN = {1045, 1698, 1251}
_PRIVILEGE = {1044, 1142, 1143, 1227, 1370, 1410}
_CONFLICT = {
    1020,  # another session changed the record
    1054,  # unknown column
    _COLUMN_EXISTS,
    1213,  # deadlock
    1412,  # definition of the table has changed
    1615,  # prepared statement needs to be prepared again
}
_AWAY = {
    1021, 1114,  # disk full, table full
    1040, 1203, 1226,  # too many connections
    1047,  # node of a cluster is not ready
    1053, 1077, 1152, 1158, 1159, 1160, 1161, 1927, 4031,  # shutdown, connection lost or killed
    1205,  # lock wait timeout
    1290, 1836,  # read-only during a failover
    1317, 1969, 3024,  # statement interrupted, or took too long
}  # fmt: skip
_OF_ITEMS = {
    139, 1117, 1118,  # row too large, too many columns
    1048, 1364,  # null in a column that must not be null
    1153,  # larger than max_allowed_packet
    1264, 1265, 1292, 1366, 1367, 1406, 1411, 1441, 3140,  # value does not fit its column
    1452,  # foreign key
    1644, 3819, 4025,  # SIGNAL of a trigger, violated CHECK
}  # fmt: skip


# --- the URL -----------------------------------------------------------------------------------------------

_DEFAULT_PORT = 3306


class MySqlOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options of a ``mysql://`` URL. Options for TLS have the same names as in PostgreSQL's client."""

    table: str = "items"
    layout: Literal["columns", "json"] = "columns"
    sslmode: Literal["", "disable", "require", "verify-ca", "verify-full"] = ""
    sslrootcert: str = ""
    sslcert: str = ""
    sslkey: str = ""
    unix_socket: str = ""

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the TLS settings of the client. This blocks: it reads certificates. Raises ``OSError``."""
        has_files = self.sslrootcert or self.sslcert or self.sslkey
        mode = self.sslmode or ("verify-full" if has_files else "disable")
        if mode == "disable":
            return None
        context = ssl.create_default_context(cafile=self.sslrootcert or None)
        context.check_hostname = mode == "verify-full"
        if mode == "require":
            context.verify_mode = ssl.CERT_NONE
        if self.sslcert:
            context.load_cert_chain(self.sslcert, self.sslkey or None)
        return context


def _client_arguments(rest: str, display_name: str, password: str) -> dict[str, Any]:
    """Return the host, port, user, password and database of a URL. ``password`` completes a URL without one."""
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


# --- columns ------------------------------------------------------------------------------------------------

_MAX_NAME = 64
_DECIMAL = decimal.Context(prec=65, traps=[decimal.Inexact, decimal.InvalidOperation])
_SMALLEST = decimal.Decimal("1e-30")
_LARGEST = decimal.Decimal(10) ** 35
_FIRST_YEAR = 1000
"""Earlier dates are outside the documented range of the servers."""

BOOLEAN, BIGINT, DOUBLE, DECIMAL = "tinyint(1)", "bigint", "double", "decimal(65,30)"
TEXT, BYTES, JSON = "longtext", "longblob", "json"
LOCAL, UTC, DATE = "datetime(6)", "datetime(6) COMMENT 'UTC'", "date"
"""Neither server has a type for times with a time zone, and MariaDB stores JSON as plain text, so comments mark such columns."""
_TYPE_FOR = {
    "bool": BOOLEAN,
    "int": BIGINT,
    "long": BIGINT,
    "huge": DECIMAL,
    "float": DOUBLE,
    "fraction": DOUBLE,
    "decimal": DECIMAL,
    "text": TEXT,
    "bytes": BYTES,
    "moment": UTC,
    "local": LOCAL,
    "date": DATE,
    "json": f"{JSON} COMMENT 'JSON'",
}
RULES = ColumnRules(
    type_for=_TYPE_FOR,
    takes={
        BOOLEAN: frozenset({"bool"}),
        BIGINT: frozenset({"bool", "int", "long"}),
        DOUBLE: frozenset({"bool", "int", "float", "fraction"}),
        DECIMAL: frozenset({"bool", "int", "long", "huge", "float", "decimal"}),
        UTC: frozenset({"moment"}),
        LOCAL: frozenset({"local"}),
        DATE: frozenset({"date"}),
        _TYPE_FOR["json"]: frozenset({"json"}),
        TEXT: frozenset(_TYPE_FOR) - {"bytes"},
        BYTES: frozenset(_TYPE_FOR),
    },
    wider=(BIGINT, DOUBLE, DECIMAL, TEXT, BYTES),
    max_columns=1017,  # limit of InnoDB
    layout="json",
)


def type_of(shown: str, comment: str) -> str:
    """Return the type of a column in the form of :data:`RULES`, from the output of ``SHOW FULL COLUMNS``."""
    shown = BIGINT if shown.startswith("bigint(") and "unsigned" not in shown else shown
    if comment == "UTC" and shown == LOCAL:
        return UTC
    return _TYPE_FOR["json"] if comment == "JSON" and shown in {TEXT, JSON} else shown


def literal(value: Any) -> tuple[str, str]:
    """Return the kind of a value that is not null, and the value in SQL (with the mode ``NO_BACKSLASH_ESCAPES``).

    The literal is valid for each type to which the column of such a value may be widened.
    """
    kind = kind_of(value)
    if kind in ("int", "long", "bool"):
        return kind, str(int(value))
    if kind == "float":
        return "float" if _is_exact(decimal.Decimal(repr(value))) else "fraction", repr(value)
    if kind == "bytes":
        return kind, f"X'{value.hex()}'"
    if kind in ("huge", "decimal"):
        number = decimal.Decimal(value)
        return (kind, f"{number:f}") if _is_exact(number) else ("text", quoted_text(str(value)))
    if kind == "json":
        text = encode_item({"": value})[4:-1].decode()
    elif kind == "text":
        text = value
    elif value.year < _FIRST_YEAR:
        kind, text = "text", value.isoformat()
    elif kind == "date":
        text = value.isoformat()
    else:
        moment = value.astimezone(dt.UTC).replace(tzinfo=None) if kind == "moment" else value
        text = moment.isoformat(" ", "microseconds")
    return kind, quoted_text(text)


def _is_exact(number: decimal.Decimal) -> bool:
    """Return whether a column of type ``decimal(65,30)`` stores a number without a change of its value."""
    if not number.is_finite() or abs(number) >= _LARGEST:
        return False
    try:
        return _DECIMAL.quantize(number, _SMALLEST) == number
    except decimal.DecimalException:
        return False


def quoted_text(text: str) -> str:
    """Return a text as a literal for a session with the mode ``NO_BACKSLASH_ESCAPES``."""
    return "'" + encodable(text).replace("'", "''") + "'"


def legal_name(field: str) -> str:
    """Return the name of a field, or a name with a hash if a column cannot have this name."""
    name = str(without_surrogates(field))
    legal = "".join("\ufffd" if char == "\0" or char > "\uffff" else char for char in name).rstrip(" ")
    if legal == name and name and len(name) <= _MAX_NAME:
        return name
    return f"{legal[: _MAX_NAME - 9]}_{xxhash.xxh32_hexdigest(name.encode())}"


def folded(name: str) -> str:
    """Fold case and accents, as the servers do when they compare the names of columns."""
    plain = "".join(char for char in unicodedata.normalize("NFKD", name) if not unicodedata.combining(char))
    return plain.casefold()


# --- the driver ---------------------------------------------------------------------------------------------


class _ConflictError(Exception):
    """Another session changed the table or the same rows. The transaction may succeed if it is repeated."""


class MySqlDriver:
    """Uses one connection, which is opened again when it breaks. Each batch is one transaction. Implements :class:`Driver`.

    The layout ``columns`` has a column for each field, which is added when the field first appears and widened when a
    value does not fit (see :data:`RULES`). The layout ``json`` stores the whole item in the column
    ``item``.
    """

    def __init__(self, address: OutputAddress, options: Mapping[str, str], _buffer: BufferOptions) -> None:
        """Read the URL. Raises :class:`~skitter.errors.StoreError` for an invalid URL."""
        server = f"mysql://{address.rest.rpartition('@')[2]}"
        self._options = read_options(server, options, MySqlOptions)
        table = self._options.table
        if not table or len(table) > 64 or table != table.rstrip(" ") or any(c in "\0/\\." for c in table):
            raise StoreError(
                f"invalid name of a table: {table!r}",
                remedy="use 1 to 64 characters, such as ?table=NAME",
                field="table",
            )
        self.name = f"{server}?table={table}"
        self._client = _client_arguments(address.rest, self.name, address.password("mysql"))
        if self._options.unix_socket:
            self._client["unix_socket"] = self._options.unix_socket
        self._relation = quoted(table)
        self._layout = self._options.layout
        self._columns = TableColumns(RULES)
        self._folded: dict[str, str] = {}
        self._connection: aiomysql.Connection | None = None
        self._largest_packet = 0

    async def open(self, context: StoreContext) -> None:  # noqa: ARG002 - the server decides on durability
        """Connect, and create the table if it does not exist."""
        async with self._connected():
            if not await self._rows(f"SHOW TABLES WHERE {self._is_table()}"):
                item = ", item json NOT NULL" if self._layout == "json" else ""
                await self._run(
                    f"CREATE TABLE IF NOT EXISTS {self._relation} ({ID_COLUMN} varchar(255) CHARACTER SET utf8mb4"
                    f" COLLATE utf8mb4_bin PRIMARY KEY{item}) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
                )

    async def check(self, job: str) -> None:
        """Test whether skitter created the table and may write to it, by deleting rows that do not exist."""
        async with self._connected():
            await self._check_table()
            async with self._transaction():
                await self._delete_surplus([PageItems(f"{job}:check:", [])])

    async def clear(self, job: str) -> None:
        async with self._connected():
            await self._run(
                f"DELETE FROM {self._relation} WHERE {ID_COLUMN} > {quoted_text(f'{job}:')}"  # noqa: S608 - quoted
                f" AND {ID_COLUMN} < {quoted_text(f'{job};')}"
                # The pattern excludes jobs whose name starts with this job's name and a colon.
                f" AND substr({ID_COLUMN}, {len(job) + 2}) REGEXP '^[0-9a-f]{{32}}:[0-9]+$'"
            )

    async def close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            try:
                async with asyncio.timeout(5):
                    await connection.ensure_closed()
            except (OSError, TimeoutError, err.MySQLError):
                connection.close()

    # --- items -----------------------------------------------------------------------------------------

    def encode(self, item: Any) -> Encoded:
        """Return the item's values as literals, and the names and kinds of its fields. Null values are left out."""
        if self._layout == "json":
            return Encoded(quoted_text(encode_item(item).decode()).encode(), (("item",), ("json",)))
        names, kinds, literals = [], [], []
        for field, value in item_fields(item, keep=KEPT).items():
            if value is not None and not (value.__class__ is float and not math.isfinite(value)):
                kind, text = literal(value)
                names.append(legal_name(field))
                kinds.append(kind)
                literals.append(text)
        return Encoded(",".join(literals).encode(), (tuple(names), tuple(kinds)))

    async def put(self, pages: Sequence[PageItems]) -> list[str]:
        async with self._connected():
            return await put_or_bisect(self._put, pages, (ItemRefusedError,))

    async def _put(self, pages: Sequence[PageItems]) -> None:
        """Write all pages. Try again if other workers change the columns or write the same pages at the same time."""
        present: set[str] = set()
        problem: BaseException = Unavailable()
        for _ in range(_ATTEMPTS):
            try:
                with _sorted_errors():
                    await self._fit({item.shape for page in pages for item in page.items})
                    async with self._transaction():
                        await self._write(pages, present)
                        await self._delete_surplus(pages)
            except _ConflictError as error:
                self._columns.forget()
                problem = error
            except err.IntegrityError as error:
                found = await self._present(pages) if error.args[0] == _DUPLICATE else present
                if found == present:  # violates a constraint that the user has defined
                    raise ItemRefusedError(_text(error)) from error
                present, problem = found, error
            else:
                return
        raise Unavailable(f"other workers keep changing the table: {problem}")

    async def _present(self, pages: Sequence[PageItems]) -> set[str]:
        """Return which of the rows exist, because their pages were written before."""
        names = [f"{page.prefix}{number}" for page in pages for number in range(len(page.items))]
        listed = ", ".join(map(quoted_text, names))
        return {
            row[0]
            for row in await self._rows(
                f"SELECT {ID_COLUMN} FROM {self._relation} WHERE {ID_COLUMN} IN ({listed})"  # noqa: S608 - quoted
            )
        }

    async def _write(self, pages: Sequence[PageItems], present: set[str]) -> None:
        """Insert the rows, and replace the rows that are ``present``.

        Only a row whose id exists is replaced: ``ON DUPLICATE KEY`` would also replace a row that has the same value in
        another unique index, which may belong to another page.
        """
        groups: dict[tuple[tuple[str, ...], bool], list[bytes]] = {}
        for page in pages:
            for number, item in enumerate(page.items):
                name = f"{page.prefix}{number}"
                row = b",".join(filter(None, (quoted_text(name).encode(), item.data)))
                if len(row) + 4096 > self._largest_packet:
                    raise ItemRefusedError(
                        f"an item has {len(row):,} bytes, and max_allowed_packet of the server is {self._largest_packet:,}"
                    )
                groups.setdefault((self._columns_of(item.shape), name in present), []).append(row)
        for (columns, replace), rows in groups.items():
            listed = ", ".join([ID_COLUMN, *map(quoted, columns)])
            head = f"INSERT INTO {self._relation} ({listed}) VALUES "  # noqa: S608 - quoted
            tail = self._replacement(columns) if replace else ""
            for chunk in self._chunks(rows):
                await self._run(head.encode() + b"(" + b"),(".join(chunk) + b")" + tail.encode())

    def _chunks(self, rows: list[bytes]) -> Iterator[list[bytes]]:
        """Split rows into statements that the server accepts."""
        limit = min(_LARGEST_STATEMENT, self._largest_packet // 2)
        chunk: list[bytes] = []
        size = 0
        for row in rows:
            if chunk and size + len(row) > limit:
                yield chunk
                chunk, size = [], 0
            chunk.append(row)
            size += len(row) + 3
        yield chunk

    def _columns_of(self, shape: RowShape) -> tuple[str, ...]:
        return tuple([column_for(name, self._folded, folded, _MAX_NAME) for name in shape[0]])

    def _replacement(self, columns: Sequence[str]) -> str:
        """Return the clause that sets exactly these columns of an existing row."""
        known = self._columns.types if self._layout == "columns" else {"item": ""}
        values = [
            f"{quoted(name)} = {f'VALUES({quoted(name)})' if name in columns else 'NULL'}" for name in known
        ]
        return f" ON DUPLICATE KEY UPDATE {', '.join(values) or f'{ID_COLUMN} = {ID_COLUMN}'}"

    async def _delete_surplus(self, pages: Sequence[PageItems]) -> None:
        """Delete the items that a page had at an earlier visit and no longer has.

        This follows the insertion, which locks the first row of each page, so writers of the same page take turns.
        """
        ranges = " OR ".join(
            [
                f"({ID_COLUMN} > {quoted_text(page.prefix)} AND {ID_COLUMN} < {quoted_text(page.prefix[:-1] + ';')}"
                f" AND CAST(substr({ID_COLUMN}, {len(page.prefix) + 1}) AS UNSIGNED) >= {len(page.items)})"
                for page in pages
            ]
        )
        await self._run(f"DELETE FROM {self._relation} WHERE {ranges}")  # noqa: S608 - quoted

    # --- the table -------------------------------------------------------------------------------------

    def _is_table(self) -> str:
        return f"{quoted('Tables_in_' + self._client['db'])} = {quoted_text(self._options.table)}"

    async def _check_table(self) -> None:
        rows = await self._shown_columns()
        keys = [(row[0], row[1].partition("(")[0], row[2] or "") for row in rows if row[4] == "PRI"]
        items = {row[0]: row[1] for row in rows}
        proper_key = len(keys) == 1 and keys[0][0] == ID_COLUMN and keys[0][1] in {"varchar", "char"}
        proper_item = self._layout == "columns" or items.get("item") in {"json", "longtext"}
        if not proper_key or not proper_item:
            raise StoreError(
                f"{self.name}: the table was not created by skitter with this layout",
                remedy="name another table with ?table=NAME; it is created if it does not exist",
                field="table",
            )
        if not keys[0][2].endswith("_bin"):
            raise StoreError(
                f"{self.name}: the column {ID_COLUMN} has the collation {keys[0][2]}, which does not distinguish all ids",
                remedy=f"declare it as {ID_COLUMN} varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
                field="table",
            )

    async def _shown_columns(self) -> Sequence[Sequence[Any]]:
        """Return for each column: name, type, collation, null, key, default, extra, privileges, comment."""
        return await self._rows(f"SHOW FULL COLUMNS FROM {self._relation}")

    async def _learn(self) -> None:
        """Read the columns that items may fill, and the columns that the database fills itself."""
        types, filled = {}, []
        for row in await self._shown_columns():
            if row[5] is not None or row[6]:
                filled.append(row[0])
            elif row[0] != ID_COLUMN:
                types[row[0]] = type_of(row[1].lower(), row[8])
        self._columns.learn(types, filled)
        self._folded = {folded(name): name for name in (*types, *filled)}

    async def _fit(self, shapes: Iterable[RowShape]) -> None:
        """Add and widen columns as these shapes require."""
        if self._layout == "json":
            self._folded = {}
            return
        if not self._columns.types:
            await self._learn()
        if not self._misfits(shapes):
            return
        # Changing a table ends the transaction, so workers take turns with a separate lock.
        digest = xxhash.xxh3_64_hexdigest(f"{self._client['db']}\0{self._options.table}".encode())
        lock = quoted_text(f"skitter-{digest}")
        [[locked]] = await self._rows(f"SELECT GET_LOCK({lock}, {_LOCK_SECONDS})")
        if locked != 1:
            raise Unavailable("another session is changing the table")
        try:
            await self._learn()
            changes = [
                f"{'MODIFY' if column in self._columns.types else 'ADD'} COLUMN {quoted(column)} {wanted}"
                for column, wanted in self._misfits(shapes).items()
            ]
            if changes:
                await self._run(f"ALTER TABLE {self._relation} {', '.join(changes)}")
                await self._learn()
        finally:
            await self._rows(f"SELECT RELEASE_LOCK({lock})")

    def _misfits(self, shapes: Iterable[RowShape]) -> dict[str, str]:
        # Two new fields of one batch may differ only in case: the second field must know the column of the first.
        names = dict(self._folded)
        renamed = []
        for fields, kinds in shapes:
            columns = []
            for field in fields:
                column = column_for(field, names, folded, _MAX_NAME)
                names.setdefault(folded(column), column)
                columns.append(column)
            renamed.append((tuple(columns), kinds))
        return self._columns.misfits(renamed)

    # --- the connection --------------------------------------------------------------------------------

    async def _connect(self) -> None:
        if self._connection is not None and not self._connection.closed:
            return
        arguments = dict(self._client)
        arguments["password"] = arguments["password"] or os.environ.get("MYSQL_PWD", "")
        context = await asyncio.to_thread(self._ssl_context)
        async with asyncio.timeout(_CONNECT_SECONDS):
            self._connection = _TlsConnection(**arguments, charset="utf8mb4", autocommit=True, ssl=context)
            await self._connection._connect()  # noqa: SLF001 - what aiomysql.connect() does
            for statement in _SESSION:
                await self._run(statement)
        [[self._largest_packet]] = await self._rows("SELECT @@max_allowed_packet")
        self._columns.forget()

    def _ssl_context(self) -> ssl.SSLContext | None:
        try:
            return self._options.ssl_context()
        except OSError as error:
            raise StoreError(
                f"{self.name}: cannot read the certificates: {error}",
                remedy="correct sslrootcert, sslcert and sslkey",
                field="sslrootcert",
            ) from error

    async def _run(self, statement: str | bytes) -> None:
        assert self._connection is not None
        async with asyncio.timeout(_COMMAND_SECONDS):
            # The cursor's method would fetch the warnings of a statement, and pass them to Python's warnings.
            await self._connection.query(statement)

    async def _rows(self, statement: str) -> Sequence[Sequence[Any]]:
        assert self._connection is not None
        async with asyncio.timeout(_COMMAND_SECONDS), self._connection.cursor() as cursor:
            await cursor.execute(statement)
            rows: Sequence[Sequence[Any]] = await cursor.fetchall()
            return rows

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[None]:
        await self._run("START TRANSACTION")
        try:
            yield
        except (err.MySQLError, ItemRefusedError):
            if self._connection is not None and not self._connection.closed:
                await self._run("ROLLBACK")
            raise
        await self._run("COMMIT")

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[None]:
        """Connect if necessary. Translate errors, and discard a connection that failed."""
        try:
            await self._connect()
            yield
        except (OSError, err.MySQLError) as error:
            problem = _translated(self.name, error)
            if isinstance(problem, Unavailable) and self._connection is not None:
                # The connection may seem open, but still contain the reply to an earlier statement.
                self._connection.close()
                self._connection = None
            raise problem from error


class _TlsConnection(aiomysql.Connection):  # type: ignore[misc]
    """A connection that never logs in without TLS if TLS is requested. The client itself would do so silently."""

    async def _request_authentication(self) -> None:
        if self._ssl_context is not None and not self.server_capabilities & CLIENT.SSL:
            raise _NoTlsError("the server does not offer TLS")
        await super()._request_authentication()


class _NoTlsError(OSError):
    """The server does not offer TLS. The client wraps this error in its own error."""


@contextmanager
def _sorted_errors() -> Iterator[None]:
    """Distinguish errors that items cause from errors that may not recur when the transaction is repeated."""
    try:
        yield
    except err.MySQLError as error:
        code = _code(error)
        if code in _CONFLICT:
            raise _ConflictError(_text(error)) from error
        if code in _OF_ITEMS or (isinstance(error, err.DataError) and code != _DUPLICATE):
            raise ItemRefusedError(_text(error)) from error
        raise


def _code(error: BaseException) -> int:
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def _text(error: Exception) -> str:
    return " ".join(str(error.args[-1] if error.args else error).split()) or type(error).__name__


def _translated(name: str, error: Exception) -> Exception:
    code, text = _code(error), _text(error)
    if isinstance(error, OSError) or code == 0 or 2000 <= code < 3000 or code in _AWAY:
        cause = error.__cause__
        if not isinstance(cause, (_NoTlsError, ssl.SSLCertVerificationError)):
            return Unavailable(f"{text}: {cause}" if isinstance(cause, OSError) else text)
        text = cause.verify_message if isinstance(cause, ssl.SSLCertVerificationError) else str(cause)
        remedy = (
            "configure TLS on the server, name its authority with ?sslrootcert=FILE, or use another sslmode"
        )
        return StoreError(f"{name}: {text}", remedy=remedy, field="sslmode")
    remedy = "fix the cause, then run the same command again: nothing that was committed is lost"
    if code in _LOGIN:
        text = f"refuses the user or the password: {text}"
        remedy = f"set {output_variable('mysql')} or MYSQL_PWD, or {URL_REMEDY}"
    elif code == _NO_DATABASE:
        remedy = "create the database, or name another one"
    elif code in _PRIVILEGE:
        remedy = "grant the user SELECT, INSERT, UPDATE, DELETE, CREATE and ALTER on the database"
    return StoreError(f"{name}: {text}", remedy=remedy)
