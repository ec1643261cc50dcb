"""Documents: items as BSON, first without an id, then with it."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import xxhash
from bson import encode as bson_encode
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import DeleteOne, ReplaceOne
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import BulkWriteError, DuplicateKeyError, WriteError

from skitter.item import without_surrogates
from skitter.store.database import PageItems
from skitter.store.mongodb.errors import is_taken, one_line, write_errors

KEPT = (bytes, dt.datetime, uuid.UUID)
"""Types that BSON has itself."""
_CODEC: CodecOptions[dict[str, Any]] = CodecOptions(uuid_representation=UuidRepresentation.STANDARD)


def encoded(fields: Mapping[str, Any]) -> bytes:
    """Return the fields of an item as BSON, without id; what BSON cannot hold becomes text."""
    if "_id" in fields:
        fields = {_field(name): value for name, value in fields.items()}
    try:
        return bson_encode(fields, codec_options=_CODEC)
    except (OverflowError, UnicodeEncodeError):
        return bson_encode(_fitting(without_surrogates(fields)), codec_options=_CODEC)


def document_of(prefix: str, number: int, data: bytes) -> RawBSONDocument:
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


PageWork = list[tuple[int, str, list[bytes]]]
"""For each page its position, the prefix of its ids, and its documents for one collection."""


class Surprise(Exception):
    """Another worker has written the same page since we looked."""


class PageWriter:
    """Writes pages to a collection. ``plain``: each item by a request of its own."""

    def __init__(self, collection: AsyncCollection[Any], *, plain: bool) -> None:
        self._collection = collection
        self._plain = plain

    async def settle(self, work: PageWork, refusals: list[str]) -> None:
        """Make the collection hold exactly these documents of these pages.

        What it cannot take of a page is noted in ``refusals``, by the page's position, and the page left out.
        Raises :class:`Surprise` if another worker has come between.

        Documents are inserted in order and removed from the end, so a page of which any is there has its first.
        Behind that there may be gaps: somebody else may have removed between two of our inserts.
        """
        while not await self._settle_once(work, refusals):
            work = [entry for entry in work if not refusals[entry[0]]]

    async def _settle_once(self, work: PageWork, refusals: list[str]) -> bool:
        """Return whether it is done; if not, one page more is refused."""
        there = await self._there_of([prefix for _, prefix, _ in work])
        new = [
            (index, document_of(prefix, number, data))
            for index, prefix, documents in work
            for number, data in enumerate(documents)
            if self._plain or f"{prefix}{number}" not in there
        ]
        if self._plain:
            await self._write_singly(new, refusals)
        elif not await self._insert(new, refusals):
            return False
        else:
            await self._replace(work, there, refusals)
        wanted = {f"{prefix}{number}" for _, prefix, documents in work for number in range(len(documents))}
        too_many = {one.rpartition(":")[0] for one in there - wanted}
        for _, prefix, documents in work:
            if prefix[:-1] in too_many:
                await self._remove_from(prefix, len(documents))
        return True

    async def _there_of(self, prefixes: list[str]) -> set[str]:
        """Return which ids of the pages are taken. Most pages are new: they lack the first."""
        firsts = await self._ids({"_id": {"$in": [f"{prefix}0" for prefix in prefixes]}})
        known = [prefix for prefix in prefixes if f"{prefix}0" in firsts]
        return await self._ids({"$or": [_of_page(prefix) for prefix in known]}) if known else set()

    async def _ids(self, query: dict[str, Any]) -> set[str]:
        return {document["_id"] async for document in self._collection.find(query, {"_id": 1})}

    async def _insert(self, new: list[tuple[int, RawBSONDocument]], refusals: list[str]) -> bool:
        """Insert all, or note which page stopped it: servers differ in what they keep of the batch then."""
        if not new:
            return True
        try:
            await self._collection.insert_many([document for _, document in new], ordered=True)
        except BulkWriteError as error:
            [problem, *_] = write_errors(error)
            if is_taken(problem):
                raise Surprise from error
            refusals[new[problem["index"]][0]] = one_line(problem["errmsg"])
            return False
        return True

    async def _replace(self, work: PageWork, there: set[str], refusals: list[str]) -> None:
        old: list[tuple[int, ReplaceOne[Any]]] = [
            (index, ReplaceOne({"_id": f"{prefix}{n}"}, document_of(prefix, n, data), upsert=True))
            for index, prefix, documents in work
            for n, data in enumerate(documents)
            if f"{prefix}{n}" in there
        ]
        if not old:
            return
        try:
            await self._collection.bulk_write([operation for _, operation in old], ordered=False)
        except BulkWriteError as error:
            for problem in write_errors(error):
                if is_taken(problem):
                    raise Surprise from error
                refusals[old[problem["index"]][0]] = one_line(problem["errmsg"])

    async def _write_singly(self, new: list[tuple[int, RawBSONDocument]], refusals: list[str]) -> None:
        for index, document in new:
            if refusals[index]:
                continue
            try:
                await self._collection.replace_one({"_id": document["_id"]}, document, upsert=True)
            except DuplicateKeyError as error:
                if is_taken(error.details or {}):
                    raise Surprise from error
                refusals[index] = one_line(str(error))
            except WriteError as error:
                refusals[index] = one_line(str(error))

    async def _remove_from(self, prefix: str, kept: int) -> None:
        """Remove documents from a page's end until none is too many: another worker may insert some meanwhile."""
        while True:
            numbers = [int(one[len(prefix) :]) for one in await self._ids(_of_page(prefix))]
            last_first = sorted((number for number in numbers if number >= kept), reverse=True)
            if not last_first:
                return
            await self._collection.bulk_write(
                [DeleteOne({"_id": f"{prefix}{number}"}) for number in last_first]
            )


def _of_page(prefix: str) -> dict[str, Any]:
    return {"_id": {"$gt": prefix, "$lt": prefix[:-1] + ";"}}


def work_for(name: str, pages: Sequence[PageItems], refusals: list[str]) -> PageWork:
    """Return what a collection is to hold of the pages that are not refused."""
    return [
        (index, page.prefix, [encoded.data for encoded in page.items if encoded.shape == name])
        for index, page in enumerate(pages)
        if not refusals[index]
    ]
