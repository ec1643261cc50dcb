"""Items as BSON documents, and the writes that put them into a collection."""

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
"""Types that BSON supports natively."""
_CODEC: CodecOptions[dict[str, Any]] = CodecOptions(uuid_representation=UuidRepresentation.STANDARD)


def encoded(fields: Mapping[str, Any]) -> bytes:
    """Return the fields of an item as BSON, without an id. Values that BSON cannot represent become text."""
    if "_id" in fields:
        fields = {_field_name(name): value for name, value in fields.items()}
    try:
        return bson_encode(fields, codec_options=_CODEC)
    except (OverflowError, UnicodeEncodeError):
        return bson_encode(_representable(without_surrogates(fields)), codec_options=_CODEC)


def document_of(prefix: str, number: int, data: bytes) -> RawBSONDocument:
    """Put the id before the other fields. An element consists of type, name and value (see bsonspec.org)."""
    key = f"{prefix}{number}".encode() + b"\0"
    element = b"\x02_id\0" + len(key).to_bytes(4, "little") + key
    return RawBSONDocument((len(data) + len(element)).to_bytes(4, "little") + element + data[4:])


def _field_name(name: str) -> str:
    return f"_id_{xxhash.xxh32_intdigest(b'_id') & 0xFFFF:04x}" if name == "_id" else name


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
    """Another worker has written the same page since we read it."""


class PageWriter:
    """Writes pages to a collection. ``plain``: each item is written with a request of its own."""

    def __init__(self, collection: AsyncCollection[Any], *, plain: bool) -> None:
        self._collection = collection
        self._plain = plain

    async def write_pages(self, work: PageWork, refusals: list[str]) -> None:
        """Make the collection hold exactly these documents of these pages.

        If the server rejects a document, the reason is stored in ``refusals`` at the page's position, and the page is
        skipped. Raises :class:`ConcurrentWrite` if another worker writes the same pages.

        Documents are inserted in order and removed from the end, so if any document of a page exists, its first one
        does. Gaps after the first are possible: another worker may have removed documents between two of our inserts.
        """
        while not await self._write_once(work, refusals):
            work = [entry for entry in work if not refusals[entry[0]]]

    async def _write_once(self, work: PageWork, refusals: list[str]) -> bool:
        """Return whether all pages are written; if not, one more page has been rejected."""
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
        """Return the existing ids of the pages. Most pages are new, which is visible from their missing first id."""
        firsts = await self._ids({"_id": {"$in": [f"{prefix}0" for prefix in prefixes]}})
        known = [prefix for prefix in prefixes if f"{prefix}0" in firsts]
        return await self._ids({"$or": [_of_page(prefix) for prefix in known]}) if known else set()

    async def _ids(self, query: dict[str, Any]) -> set[str]:
        return {document["_id"] async for document in self._collection.find(query, {"_id": 1})}

    async def _insert(self, new: list[tuple[int, RawBSONDocument]], refusals: list[str]) -> bool:
        """Insert all documents, or record the page that failed: servers differ in what they keep of a failed batch."""
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
        """Remove surplus documents from the page's end, repeatedly: another worker may insert some meanwhile."""
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
    """Return the documents for a collection, of all pages that are not rejected."""
    return [
        (index, page.prefix, [encoded.data for encoded in page.items if encoded.shape == name])
        for index, page in enumerate(pages)
        if not refusals[index]
    ]
