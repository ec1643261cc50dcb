"""MongoDriver: items as documents of MongoDB, under their ids."""

from __future__ import annotations

import asyncio
import datetime as dt
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

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

from skitter.errors import StoreError
from skitter.item import item_fields, without_surrogates
from skitter.store.base import StoreContext
from skitter.store.database import Encoded, PageItems
from skitter.store.mongodb_place import MongoPlace
from skitter.store.patience import Unavailable

_KEPT = (bytes, dt.datetime, uuid.UUID)
"""Types that BSON has itself."""
_CODEC: CodecOptions[dict[str, Any]] = CodecOptions(uuid_representation=UuidRepresentation.STANDARD)
_DEFAULTS = {
    "serverSelectionTimeoutMS": 5000,
    "connectTimeoutMS": 5000,
    "socketTimeoutMS": 30_000,
    "w": "majority",
}
_DUPLICATE = 11000
_REFUSES_LOGIN = {18, 8000}
_NOT_ALLOWED = 13
_SURPRISES = 5
"""How often other workers may write the same pages at the same moment before the write is begun anew."""

type_of_work = list[tuple[int, str, list[bytes]]]
"""For each page its position, the prefix of its ids, and its documents for one collection."""


class _Surprise(Exception):
    """Another worker has written the same page since we looked."""


class MongoDriver:
    """One client. The items of a page are numbered within each collection, without gaps.

    ``plain``: each item is written by a request of its own.
    """

    def __init__(self, place: MongoPlace, *, plain: bool) -> None:
        self.name = place.name
        self._place = place
        self._plain = plain
        self._job = ""
        self._fixed: str | None = None
        """The one collection, if it does not depend on the item."""
        self._client: AsyncMongoClient[dict[str, Any]] | None = None

    async def open(self, context: StoreContext) -> None:
        """Make the client, which connects by itself when it is used."""
        self._job = context.job
        self._fixed = self._place.fixed(context.job)
        await self.close()
        with _explained(self.name):
            self._client = await asyncio.to_thread(self._new_client, context.durability)

    def _new_client(self, durability: str) -> AsyncMongoClient[dict[str, Any]]:
        """Make a client. It looks at files, and asks the name service what ``mongodb+srv`` stands for."""
        given = {name.lower() for name in parse_uri(self._place.uri, validate=True, warn=False)["options"]}
        options: dict[str, Any] = {k: v for k, v in _DEFAULTS.items() if k.lower() not in given}
        if durability == "machine" and "journal" not in given:
            options["journal"] = True
        return AsyncMongoClient(self._place.uri, **options)

    async def check(self, job: str) -> None:
        """Delete what is not there: this asks for all that a crawl needs, and leaves no trace."""
        with _explained(self.name):
            await self._names(())
            await self._collection(self._place.example).delete_one({"_id": f"{job}:check"})

    async def clear(self, job: str) -> None:
        """Delete the documents of a job, whatever collection of the template they are in."""
        with _explained(self.name):
            of_job = {
                "_id": {
                    "$gt": f"{job}:",
                    "$lt": f"{job};",
                    "$regex": f"^{re.escape(job)}:[0-9a-f]{{32}}:[0-9]+$",
                }
            }
            for name in await self._names(() if self._fixed is None else [self._fixed]):
                await self._collection(name).delete_many(of_job)

    async def close(self) -> None:
        """Close all connections."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    # --- items -----------------------------------------------------------------------------------------

    def encode(self, item: Any) -> Encoded:
        """Return the item as BSON, without id."""
        fields = item_fields(item, keep=_KEPT)
        collection = self._fixed or self._place.collection_of(self._job, item, fields)
        if "_id" in fields:
            fields = {_field(name): value for name, value in fields.items()}
        try:
            return Encoded(bson_encode(fields, codec_options=_CODEC), collection)
        except (OverflowError, UnicodeEncodeError):
            return Encoded(
                bson_encode(_fitting(without_surrogates(fields)), codec_options=_CODEC), collection
            )

    async def put(self, pages: Sequence[PageItems]) -> list[str]:
        """Write the documents; see :meth:`skitter.store.database.Driver.put`."""
        refusals = [""] * len(pages)
        with _explained(self.name):
            for _ in range(_SURPRISES):
                try:
                    await self._put(pages, refusals)
                except _Surprise:
                    continue
                return refusals
        raise Unavailable("other workers write the same pages")

    async def _put(self, pages: Sequence[PageItems], refusals: list[str]) -> None:
        fixed = self._fixed
        names = await self._names({e.shape for p in pages for e in p.items} if fixed is None else [fixed])
        for name in names:
            await self._settle(self._collection(name), _work_for(name, pages, refusals), refusals)
        refused = [index for index, text in enumerate(refusals) if text]
        if refused:
            nothing: type_of_work = [(index, pages[index].prefix, []) for index in refused]
            for name in names:
                await self._settle(self._collection(name), nothing, refusals)

    async def _settle(
        self, collection: AsyncCollection[Any], work: type_of_work, refusals: list[str]
    ) -> None:
        """Make a collection hold exactly these documents of these pages.

        There are never gaps among the numbers of a page: documents are inserted in order, and removed
        from the end. So whether one number too many is there tells whether any is.
        """
        while not await self._settle_once(collection, work, refusals):
            work = [entry for entry in work if not refusals[entry[0]]]

    async def _settle_once(
        self, collection: AsyncCollection[Any], work: type_of_work, refusals: list[str]
    ) -> bool:
        """Return whether it is done; if not, one page more is refused."""
        if self._plain:
            there = await self._there(
                collection, [f"{prefix}{len(documents)}" for _, prefix, documents in work]
            )
        else:
            there = await self._there_of(collection, work)
        new = [
            (index, _document(prefix, number, data))
            for index, prefix, documents in work
            for number, data in enumerate(documents)
            if f"{prefix}{number}" not in there
        ]
        if self._plain:
            await self._write_singly(collection, new, refusals)
        elif not await self._insert(collection, new, refusals):
            return False
        else:
            await self._replace(collection, work, there, refusals)
        for _, prefix, documents in work:
            if f"{prefix}{len(documents)}" in there:
                await self._remove_from(collection, prefix, len(documents))
        return True

    async def _there_of(self, collection: AsyncCollection[Any], work: type_of_work) -> set[str]:
        """Return which ids of the pages, up to one too many, are taken. Most pages are new: they lack the first."""
        known = await self._there(collection, [f"{prefix}0" for _, prefix, _ in work])
        if not known:
            return known
        return await self._there(
            collection,
            [
                f"{prefix}{number}"
                for _, prefix, documents in work
                if f"{prefix}0" in known
                for number in range(len(documents) + 1)
            ],
        )

    @staticmethod
    async def _there(collection: AsyncCollection[Any], ids: list[str]) -> set[str]:
        """Return which of the ids are taken."""
        return {document["_id"] async for document in collection.find({"_id": {"$in": ids}}, {"_id": 1})}

    @staticmethod
    async def _insert(
        collection: AsyncCollection[Any], new: list[tuple[int, RawBSONDocument]], refusals: list[str]
    ) -> bool:
        """Insert all, or note which page stopped it: servers differ in what they keep of the batch then."""
        if not new:
            return True
        try:
            await collection.insert_many([document for _, document in new], ordered=True)
        except BulkWriteError as error:
            [problem, *_] = _write_errors(error)
            if _is_taken(problem):
                raise _Surprise from error
            refusals[new[problem["index"]][0]] = _one_line(problem["errmsg"])
            return False
        return True

    @staticmethod
    async def _replace(
        collection: AsyncCollection[Any], work: type_of_work, there: set[str], refusals: list[str]
    ) -> None:
        old: list[tuple[int, ReplaceOne[Any]]] = [
            (index, ReplaceOne({"_id": f"{prefix}{n}"}, _document(prefix, n, data), upsert=True))
            for index, prefix, documents in work
            for n, data in enumerate(documents)
            if f"{prefix}{n}" in there
        ]
        if not old:
            return
        try:
            await collection.bulk_write([operation for _, operation in old], ordered=False)
        except BulkWriteError as error:
            for problem in _write_errors(error):
                if _is_taken(problem):
                    raise _Surprise from error
                refusals[old[problem["index"]][0]] = _one_line(problem["errmsg"])

    @staticmethod
    async def _write_singly(
        collection: AsyncCollection[Any], new: list[tuple[int, RawBSONDocument]], refusals: list[str]
    ) -> None:
        for index, document in new:
            if refusals[index]:
                continue
            try:
                await collection.replace_one({"_id": document["_id"]}, document, upsert=True)
            except DuplicateKeyError as error:
                if _is_taken(error.details or {}):
                    raise _Surprise from error
                refusals[index] = _one_line(str(error))
            except WriteError as error:
                refusals[index] = _one_line(str(error))

    @staticmethod
    async def _remove_from(collection: AsyncCollection[Any], prefix: str, kept: int) -> None:
        query = {"_id": {"$gt": prefix, "$lt": prefix[:-1] + ";"}}
        numbers = [int(found["_id"][len(prefix) :]) async for found in collection.find(query, {"_id": 1})]
        last_first = sorted((number for number in numbers if number >= kept), reverse=True)
        if last_first:
            await collection.bulk_write([DeleteOne({"_id": f"{prefix}{number}"}) for number in last_first])

    # --- collections -----------------------------------------------------------------------------------

    def _collection(self, name: str) -> AsyncCollection[Any]:
        assert self._client is not None
        return self._client[self._place.database][name]

    async def _names(self, used: Iterable[str]) -> list[str]:
        """Return the collections in use, and for a template all others that could hold an earlier visit's items."""
        if self._fixed is not None:
            return sorted(used)
        assert self._client is not None
        pattern = {"name": {"$regex": self._place.pattern(self._job)}}
        known = await self._client[self._place.database].list_collection_names(filter=pattern)
        return sorted({*used, *known})


def _work_for(name: str, pages: Sequence[PageItems], refusals: list[str]) -> type_of_work:
    return [
        (index, page.prefix, [encoded.data for encoded in page.items if encoded.shape == name])
        for index, page in enumerate(pages)
        if not refusals[index]
    ]


def _document(prefix: str, number: int, data: bytes) -> RawBSONDocument:
    """Put the id before the other fields. See bsonspec.org: an element is type, name, value."""
    key = f"{prefix}{number}".encode() + b"\0"
    element = b"\x02_id\0" + len(key).to_bytes(4, "little") + key
    return RawBSONDocument((len(data) + len(element)).to_bytes(4, "little") + element + data[4:])


def _field(name: str) -> str:
    return f"_id_{xxhash.xxh32_intdigest(b'_id') & 0xFFFF:04x}" if name == "_id" else name


def _fitting(value: Any) -> Any:
    """Turn integers of more than 64 bits, which BSON lacks, into text."""
    if isinstance(value, dict):
        return {key: _fitting(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_fitting(inner) for inner in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return str(value)
    return value


def _write_errors(error: BulkWriteError) -> list[dict[str, Any]]:
    """Return what is wrong with documents. Raises :class:`Unavailable` if it is something else."""
    details = error.details or {}
    problems: list[dict[str, Any]] = details.get("writeErrors", [])
    if not problems:
        raise Unavailable(_one_line(str(details.get("writeConcernErrors") or error))) from error
    return problems


def _is_taken(problem: Mapping[str, Any]) -> bool:
    if problem.get("code") != _DUPLICATE:
        return False
    key = problem.get("keyPattern")
    return "_id" in key if key else "_id_" in str(problem.get("errmsg"))


def _one_line(text: object) -> str:
    return " ".join(str(text).split())[:500]


@contextmanager
def _explained(name: str) -> Iterator[None]:
    try:
        yield
    except (InvalidURI, ConfigurationError, ValueError, TypeError) as error:
        raise StoreError(
            f"output {name}: {_one_line(error)}", remedy="correct the URL; after '?' stand options of MongoDB"
        ) from error
    except (ConnectionFailure, NetworkTimeout, WriteConcernError) as error:
        raise Unavailable(_one_line(str(error).partition(", Timeout:")[0])) from error
    except OperationFailure as error:
        raise _operation_failed(name, error) from error
    except PyMongoError as error:
        raise StoreError(
            f"{name}: {_one_line(error)}", remedy="see to the cause, then run the same command again"
        ) from error


def _operation_failed(name: str, error: OperationFailure) -> Exception:
    text = _one_line(str(error).partition(", full error")[0])
    if error.code in _REFUSES_LOGIN:
        return StoreError(
            f"{name} refuses the user or the password",
            remedy="write mongodb://USER:PASSWORD@HOST/DATABASE/COLLECTION, with ?authSource=DATABASE where the user is kept elsewhere",
        )
    if error.code == _NOT_ALLOWED:
        return StoreError(f"{name}: {text}", remedy="give the user the role readWrite on the database")
    if error.has_error_label("RetryableWriteError") or error.timeout:
        return Unavailable(text)
    return StoreError(f"{name}: {text}", remedy="see to the cause, then run the same command again")
