"""A driver that stores items as documents in MongoDB, under their ids. Needs the extra ``mongodb``."""

from __future__ import annotations

import asyncio
import datetime as dt
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, unquote, urlencode

import msgspec
import xxhash
from bson import encode as bson_encode
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import AsyncMongoClient, DeleteOne, ReplaceOne
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import (
    BulkWriteError,
    ConfigurationError,
    ConnectionFailure,
    DuplicateKeyError,
    InvalidURI,
    NetworkTimeout,
    OperationFailure,
    PyMongoError,
    WriteConcernError,
    WriteError,
)
from pymongo.uri_parser import parse_uri

from skitter._utils.backoff import Unavailable
from skitter.errors import StoreError
from skitter.item import item_fields, item_kind, without_surrogates
from skitter.secrets import output_variable
from skitter.store.contract import OutputAddress, StoreContext
from skitter.store.database import BufferOptions, Encoded, PageItems

_REMEDY = "write mongodb://[USER:PASSWORD@]HOST[:PORT]/DATABASE/COLLECTION"
_INVALID_IN_DATABASE = re.compile(r'[/\\. "$*<>:|?\0]')
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_INVALID_IN_NAME = re.compile(r"[^\w.-]+")


class MongoLocation(msgspec.Struct, frozen=True):
    """A server, database and collection. The collection may be a template such as ``{type}`` or ``shop_{kind}``."""

    uri: str
    """Connection URL for the client, with user and password."""
    name: str
    """The name for messages."""
    database: str
    collection: str

    @classmethod
    def parse(cls, kind: str, rest: str, options: dict[str, str], password: str = "") -> MongoLocation:
        """Parse a URL. The remaining ``options`` are passed to the client. ``password`` completes a user without one.

        Raises :class:`~skitter.errors.StoreError` with a remedy.
        """
        hosts, _, path = rest.partition("/")
        database, _, collection = path.partition("/")
        database = unquote(database)
        collection = options.pop("collection", "") or unquote(collection)
        user, _, host = hosts.rpartition("@")
        name = f"{kind}://{host}/{database}/{collection}"
        if not host or not database or not collection:
            raise StoreError(
                f"output {name!r} lacks a host, database or collection", remedy=_REMEDY, field="output"
            )
        if _INVALID_IN_DATABASE.search(database) or len(database.encode()) > 63:
            raise StoreError(
                f"invalid name of a database: {database!r}",
                remedy="use letters, digits and underscores",
                field="database",
            )
        plain = _PLACEHOLDER.sub("x", collection)
        if "$" in plain or "\0" in plain or "{" in plain or plain.startswith((".", "system.")):
            raise StoreError(
                f"invalid name of a collection: {collection!r}",
                remedy="use letters, digits and underscores; {type}, {job} and {FIELD} are replaced by values of the item",
                field="collection",
            )
        if user and password and ":" not in user:
            hosts = f"{user}:{quote(password, safe='')}@{host}"
        uri = f"{kind}://{hosts}/{quote(database)}" + (f"?{urlencode(options)}" if options else "")
        return cls(uri, name, database, collection)

    @property
    def example(self) -> str:
        """An example of the collections that the template can name."""
        return _PLACEHOLDER.sub("item", self.collection)

    def fixed(self, job: str) -> str | None:
        """Return the collection of all items; ``None`` if it depends on the item."""
        name = self.collection.replace("{job}", _sanitized(job))
        return None if _PLACEHOLDER.search(name) else name

    def pattern(self, job: str) -> str:
        """Return a regular expression that matches all collections that the template can name."""
        pieces = _PLACEHOLDER.split(self.collection)
        for index in range(1, len(pieces), 2):
            pieces[index] = re.escape(_sanitized(job)) if pieces[index] == "job" else r"[\w.-]+"
        for index in range(0, len(pieces), 2):
            pieces[index] = re.escape(pieces[index])
        return f"^{''.join(pieces)}$"

    def collection_of(self, job: str, item: Any, fields: Mapping[str, Any]) -> str:
        """Return the collection of an item. Raises :class:`~skitter.errors.StoreError` if the item lacks the field."""

        def value(placeholder: re.Match[str]) -> str:
            name = placeholder[1]
            if name == "job":
                return _sanitized(job)
            if name in fields:
                return _sanitized(str(fields[name]))
            if name == "type":
                return _sanitized(item_kind(item) or "item")
            raise StoreError(
                f"the item has no field {name!r}, which selects its collection",
                remedy=f"add the field, or name another collection than {self.collection}",
                field=name,
            )

        return _PLACEHOLDER.sub(value, self.collection)


def _sanitized(text: str) -> str:
    return _INVALID_IN_NAME.sub("_", text)[:80] or "_"


# --- documents ----------------------------------------------------------------------------------------------

KEPT = (bytes, dt.datetime, uuid.UUID)
"""Types that BSON supports natively."""
_CODEC: CodecOptions[dict[str, Any]] = CodecOptions(uuid_representation=UuidRepresentation.STANDARD)


_ID_FIELD = f"_id_{xxhash.xxh32_intdigest(b'_id') & 0xFFFF:04x}"
"""The name under which a field ``_id`` of an item is stored, because MongoDB uses that name for the ids."""


def encoded(fields: Mapping[str, Any]) -> bytes:
    """Return the fields of an item as BSON, without an id. Values that BSON cannot represent become text."""
    if "_id" in fields:
        fields = {_ID_FIELD if name == "_id" else name: value for name, value in fields.items()}
    try:
        return bson_encode(fields, codec_options=_CODEC)
    except (OverflowError, UnicodeEncodeError):
        return bson_encode(_representable(without_surrogates(fields)), codec_options=_CODEC)


def document_of(prefix: str, number: int, data: bytes) -> RawBSONDocument:
    """Insert the id before the other fields. An element consists of type, name and value (see bsonspec.org)."""
    key = f"{prefix}{number}".encode() + b"\0"
    element = b"\x02_id\0" + len(key).to_bytes(4, "little") + key
    return RawBSONDocument((len(data) + len(element)).to_bytes(4, "little") + element + data[4:])


def _representable(value: Any) -> Any:
    """Convert integers of more than 64 bits, which BSON does not support, to text."""
    if isinstance(value, dict):
        return {key: _representable(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_representable(inner) for inner in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return str(value)
    return value


PageWork = list[tuple[int, str, list[bytes]]]
"""For each page: its position, the prefix of its ids, and its documents for one collection."""


class ConcurrentWrite(Exception):
    """Another worker has written the same page since it was read."""


class PageWriter:
    """Writes pages to a collection. ``plain``: each item is written with a separate request."""

    def __init__(self, collection: AsyncCollection[Any], *, plain: bool) -> None:
        self._collection = collection
        self._plain = plain

    async def write_pages(self, work: PageWork, refusals: list[str]) -> None:
        """Make the collection contain exactly these documents of these pages.

        If the server rejects a document, the reason is stored in ``refusals`` at the page's position, and the page is
        skipped. Raises :class:`ConcurrentWrite` if another worker writes the same pages.

        Documents are inserted in order and removed from the end, so if any document of a page exists, the first one exists.
        Later documents may be missing: another worker may have removed documents between two inserts of this one.
        """
        while not await self._write_once(work, refusals):
            work = [entry for entry in work if not refusals[entry[0]]]

    async def _write_once(self, work: PageWork, refusals: list[str]) -> bool:
        """Return whether all pages are written. If not, another page has been rejected."""
        existing = await self._existing_ids([prefix for _, prefix, _ in work])
        new = [
            (index, document_of(prefix, number, data))
            for index, prefix, documents in work
            for number, data in enumerate(documents)
            if self._plain or f"{prefix}{number}" not in existing
        ]
        if self._plain:
            await self._write_singly(new, refusals)
        elif not await self._insert(new, refusals):
            return False
        else:
            await self._replace(work, existing, refusals)
        wanted = {f"{prefix}{number}" for _, prefix, documents in work for number in range(len(documents))}
        surplus = {document_id.rpartition(":")[0] for document_id in existing - wanted}
        for _, prefix, documents in work:
            if prefix[:-1] in surplus:
                await self._remove_from(prefix, len(documents))
        return True

    async def _existing_ids(self, prefixes: list[str]) -> set[str]:
        """Return the existing ids of the pages. Most pages are new: their first id does not exist."""
        firsts = await self._ids({"_id": {"$in": [f"{prefix}0" for prefix in prefixes]}})
        known = [prefix for prefix in prefixes if f"{prefix}0" in firsts]
        return await self._ids({"$or": [_of_page(prefix) for prefix in known]}) if known else set()

    async def _ids(self, query: dict[str, Any]) -> set[str]:
        return {document["_id"] async for document in self._collection.find(query, {"_id": 1})}

    async def _insert(self, new: list[tuple[int, RawBSONDocument]], refusals: list[str]) -> bool:
        """Insert all documents, or record the page that failed. Servers differ in which documents of a failed batch they keep."""
        if not new:
            return True
        try:
            await self._collection.insert_many([document for _, document in new], ordered=True)
        except BulkWriteError as error:
            [problem, *_] = write_errors(error)
            if is_taken(problem):
                raise ConcurrentWrite from error
            refusals[new[problem["index"]][0]] = one_line(problem["errmsg"])
            return False
        return True

    async def _replace(self, work: PageWork, existing: set[str], refusals: list[str]) -> None:
        old: list[tuple[int, ReplaceOne[Any]]] = [
            (index, ReplaceOne({"_id": f"{prefix}{n}"}, document_of(prefix, n, data), upsert=True))
            for index, prefix, documents in work
            for n, data in enumerate(documents)
            if f"{prefix}{n}" in existing
        ]
        if not old:
            return
        try:
            await self._collection.bulk_write([operation for _, operation in old], ordered=False)
        except BulkWriteError as error:
            for problem in write_errors(error):
                if is_taken(problem):
                    raise ConcurrentWrite from error
                refusals[old[problem["index"]][0]] = one_line(problem["errmsg"])

    async def _write_singly(self, new: list[tuple[int, RawBSONDocument]], refusals: list[str]) -> None:
        for index, document in new:
            if refusals[index]:
                continue
            try:
                await self._collection.replace_one({"_id": document["_id"]}, document, upsert=True)
            except DuplicateKeyError as error:
                if is_taken(error.details or {}):
                    raise ConcurrentWrite from error
                refusals[index] = one_line(str(error))
            except WriteError as error:
                refusals[index] = one_line(str(error))

    async def _remove_from(self, prefix: str, kept: int) -> None:
        """Remove surplus documents from the end of a page. Repeat it, because another worker may insert some meanwhile."""
        while True:
            numbers = [int(document_id[len(prefix) :]) for document_id in await self._ids(_of_page(prefix))]
            last_first = sorted((number for number in numbers if number >= kept), reverse=True)
            if not last_first:
                return
            await self._collection.bulk_write(
                [DeleteOne({"_id": f"{prefix}{number}"}) for number in last_first]
            )


def _of_page(prefix: str) -> dict[str, Any]:
    return {"_id": {"$gt": prefix, "$lt": prefix[:-1] + ";"}}


def work_for(name: str, pages: Sequence[PageItems], refusals: list[str]) -> PageWork:
    """Return the documents of all pages that are not rejected, for one collection."""
    return [
        (index, page.prefix, [encoded.data for encoded in page.items if encoded.shape == name])
        for index, page in enumerate(pages)
        if not refusals[index]
    ]


# --- the driver ---------------------------------------------------------------------------------------------

_DEFAULTS = {
    "serverSelectionTimeoutMS": 5000,
    "connectTimeoutMS": 5000,
    "socketTimeoutMS": 30_000,
    "w": "majority",
}
_WRITE_ATTEMPTS = 5
"""Maximum number of attempts of a write while other workers write the same pages."""


class MongoDriver:
    """Uses one client. The items of a page are numbered without gaps within each collection. Implements :class:`Driver`.

    With a buffer of one item, each item is written with a separate request.
    """

    def __init__(self, address: OutputAddress, options: Mapping[str, str], buffer: BufferOptions) -> None:
        location = MongoLocation.parse(address.kind, address.rest, dict(options), address.password("mongodb"))
        self.name = location.name
        self._location = location
        self._plain = buffer.buffer == 1
        self._job = ""
        self._fixed: str | None = None
        """The collection of all items; ``None`` if it depends on the item."""
        self._client: AsyncMongoClient[dict[str, Any]] | None = None

    async def open(self, context: StoreContext) -> None:
        """Create the client. It connects on first use."""
        self._job = context.job
        self._fixed = self._location.fixed(context.job)
        await self.close()
        with translated_errors(self.name):
            self._client = await asyncio.to_thread(self._new_client, context.durability)

    def _new_client(self, durability: str) -> AsyncMongoClient[dict[str, Any]]:
        """Create a client. This blocks: it reads files, and resolves the name of a ``mongodb+srv`` URL."""
        chosen = {
            name.lower() for name in parse_uri(self._location.uri, validate=True, warn=False)["options"]
        }
        options: dict[str, Any] = {k: v for k, v in _DEFAULTS.items() if k.lower() not in chosen}
        if durability == "machine" and "journal" not in chosen:
            options["journal"] = True
        return AsyncMongoClient(self._location.uri, **options)

    async def check(self, job: str) -> None:
        """Delete a document that does not exist, which needs the same permissions as a crawl but changes nothing."""
        with translated_errors(self.name):
            await self._names()
            await self._collection(self._location.example).delete_one({"_id": f"{job}:check"})

    async def clear(self, job: str) -> None:
        """Delete the documents of a job in all collections that the template matches."""
        with translated_errors(self.name):
            of_job = {
                "_id": {
                    "$gt": f"{job}:",
                    "$lt": f"{job};",
                    "$regex": f"^{re.escape(job)}:[0-9a-f]{{32}}:[0-9]+$",
                }
            }
            for name in await self._names():
                await self._collection(name).delete_many(of_job)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    # --- items -----------------------------------------------------------------------------------------

    def encode(self, item: Any) -> Encoded:
        fields = item_fields(item, keep=KEPT)
        collection = self._fixed or self._location.collection_of(self._job, item, fields)
        return Encoded(encoded(fields), collection)

    async def put(self, pages: Sequence[PageItems]) -> list[str]:
        refusals = [""] * len(pages)
        with translated_errors(self.name):
            for _ in range(_WRITE_ATTEMPTS):
                try:
                    await self._put(pages, refusals)
                except ConcurrentWrite:
                    continue
                return refusals
        raise Unavailable("other workers are writing the same pages")

    async def _put(self, pages: Sequence[PageItems], refusals: list[str]) -> None:
        names = await self._names(item.shape for page in pages for item in page.items)
        for name in names:
            await self._writer(name).write_pages(work_for(name, pages, refusals), refusals)
        refused = [index for index, text in enumerate(refusals) if text]
        if refused:
            removals: PageWork = [(index, pages[index].prefix, []) for index in refused]
            for name in names:
                await self._writer(name).write_pages(removals, refusals)

    # --- collections -----------------------------------------------------------------------------------

    def _collection(self, name: str) -> AsyncCollection[Any]:
        assert self._client is not None
        return self._client[self._location.database][name]

    def _writer(self, name: str) -> PageWriter:
        return PageWriter(self._collection(name), plain=self._plain)

    async def _names(self, used: Iterable[str] = ()) -> list[str]:
        """Return the collection of all items or, for a template, those in use and all others that may contain items."""
        if self._fixed is not None:
            return [self._fixed]
        assert self._client is not None
        pattern = {"name": {"$regex": self._location.pattern(self._job)}}
        known = await self._client[self._location.database].list_collection_names(filter=pattern)
        return sorted({*used, *known})


# --- errors -------------------------------------------------------------------------------------------------

_DUPLICATE = 11000
_REFUSES_LOGIN = {18, 8000}
_NOT_ALLOWED = 13
_VARIABLE = output_variable("mongodb")


def write_errors(error: BulkWriteError) -> list[dict[str, Any]]:
    """Return the errors of single documents. Raises :class:`Unavailable` if the failure has another reason."""
    details = error.details or {}
    problems: list[dict[str, Any]] = details.get("writeErrors", [])
    if not problems:
        raise Unavailable(one_line(str(details.get("writeConcernErrors") or error))) from error
    return problems


def is_taken(problem: Mapping[str, Any]) -> bool:
    """Return whether the id already exists, and not a value in another unique index of the user."""
    if problem.get("code") != _DUPLICATE:
        return False
    key = problem.get("keyPattern")
    return "_id" in key if key else "_id_" in str(problem.get("errmsg"))


def one_line(text: object) -> str:
    """Return an error's text on one line, of at most 500 characters."""
    return " ".join(str(text).split())[:500]


@contextmanager
def translated_errors(name: str) -> Iterator[None]:
    """Translate errors of the output ``name``.

    Raises :class:`Unavailable` for errors that may be temporary, and :class:`~skitter.errors.StoreError` with a
    remedy for all others.
    """
    try:
        yield
    except (InvalidURI, ConfigurationError, ValueError, TypeError) as error:
        raise StoreError(
            f"output {name}: {one_line(error)}",
            remedy="correct the URL; write options of MongoDB after '?'"
            f"; the password can be set with {_VARIABLE} instead",
        ) from error
    except (ConnectionFailure, NetworkTimeout, WriteConcernError) as error:
        raise Unavailable(one_line(str(error).partition(", Timeout:")[0])) from error
    except OperationFailure as error:
        raise _operation_failed(name, error) from error
    except PyMongoError as error:
        raise StoreError(
            f"{name}: {one_line(error)}", remedy="fix the cause, then run the same command again"
        ) from error


def _operation_failed(name: str, error: OperationFailure) -> Exception:
    text = one_line(str(error).partition(", full error")[0])
    if error.code in _REFUSES_LOGIN:
        return StoreError(
            f"{name} refuses the user or the password",
            remedy=f"set {_VARIABLE}, or write mongodb://USER:PASSWORD@HOST/DATABASE/COLLECTION; add ?authSource=DATABASE if the user is defined in another database",
        )
    if error.code == _NOT_ALLOWED:
        return StoreError(f"{name}: {text}", remedy="grant the user the role readWrite on the database")
    if error.has_error_label("RetryableWriteError") or error.timeout:
        return Unavailable(text)
    return StoreError(f"{name}: {text}", remedy="fix the cause, then run the same command again")
