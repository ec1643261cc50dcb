"""A driver that stores items as documents in MongoDB, under their ids."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from typing import Any

from pymongo import AsyncMongoClient
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.uri_parser import parse_uri

from skitter._utils.backoff import Unavailable
from skitter.item import item_fields
from skitter.store.contract import StoreContext
from skitter.store.database import Encoded, PageItems
from skitter.store.mongodb.documents import KEPT, ConcurrentWrite, PageWork, PageWriter, encoded, work_for
from skitter.store.mongodb.errors import translated_errors
from skitter.store.mongodb.location import MongoLocation

_DEFAULTS = {
    "serverSelectionTimeoutMS": 5000,
    "connectTimeoutMS": 5000,
    "socketTimeoutMS": 30_000,
    "w": "majority",
}
_WRITE_ATTEMPTS = 5
"""How often a write is repeated when other workers write the same pages at the same time."""


class MongoDriver:
    """Uses one client. The items of a page are numbered without gaps within each collection.

    ``plain``: each item is written with a request of its own.
    """

    def __init__(self, location: MongoLocation, *, plain: bool) -> None:
        self.name = location.name
        self._location = location
        self._plain = plain
        self._job = ""
        self._fixed: str | None = None
        """The collection of all items; ``None`` if it depends on the item."""
        self._client: AsyncMongoClient[dict[str, Any]] | None = None

    async def open(self, context: StoreContext) -> None:
        """Create the client, which connects when it is first used."""
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
        """Delete a document that does not exist: this needs the same permissions as a crawl and changes nothing."""
        with translated_errors(self.name):
            await self._names(())
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
            for name in await self._names(() if self._fixed is None else [self._fixed]):
                await self._collection(name).delete_many(of_job)

    async def close(self) -> None:
        """Close all connections."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    # --- items -----------------------------------------------------------------------------------------

    def encode(self, item: Any) -> Encoded:
        """Return the item as BSON, without an id."""
        fields = item_fields(item, keep=KEPT)
        collection = self._fixed or self._location.collection_of(self._job, item, fields)
        return Encoded(encoded(fields), collection)

    async def put(self, pages: Sequence[PageItems]) -> list[str]:
        """Write the documents; see :meth:`skitter.store.database.Driver.put`."""
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
        fixed = self._fixed
        names = await self._names({e.shape for p in pages for e in p.items} if fixed is None else [fixed])
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

    async def _names(self, used: Iterable[str]) -> list[str]:
        """Return the collections in use; for a template, also all others that may hold items of an earlier visit."""
        if self._fixed is not None:
            return sorted(used)
        assert self._client is not None
        pattern = {"name": {"$regex": self._location.pattern(self._job)}}
        known = await self._client[self._location.database].list_collection_names(filter=pattern)
        return sorted({*used, *known})
