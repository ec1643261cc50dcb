"""MongoDriver: items as documents of MongoDB, under their ids."""

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
from skitter.store.mongodb.documents import KEPT, PageWork, PageWriter, Surprise, encoded, work_for
from skitter.store.mongodb.errors import explained
from skitter.store.mongodb.location import MongoLocation

_DEFAULTS = {
    "serverSelectionTimeoutMS": 5000,
    "connectTimeoutMS": 5000,
    "socketTimeoutMS": 30_000,
    "w": "majority",
}
_SURPRISES = 5
"""How often other workers may write the same pages at the same moment before the write is begun anew."""


class MongoDriver:
    """One client. The items of a page are numbered within each collection, without gaps.

    ``plain``: each item is written by a request of its own.
    """

    def __init__(self, place: MongoLocation, *, plain: bool) -> None:
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
        with explained(self.name):
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
        with explained(self.name):
            await self._names(())
            await self._collection(self._place.example).delete_one({"_id": f"{job}:check"})

    async def clear(self, job: str) -> None:
        """Delete the documents of a job, whatever collection of the template they are in."""
        with explained(self.name):
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
        fields = item_fields(item, keep=KEPT)
        collection = self._fixed or self._place.collection_of(self._job, item, fields)
        return Encoded(encoded(fields), collection)

    async def put(self, pages: Sequence[PageItems]) -> list[str]:
        """Write the documents; see :meth:`skitter.store.database.Driver.put`."""
        refusals = [""] * len(pages)
        with explained(self.name):
            for _ in range(_SURPRISES):
                try:
                    await self._put(pages, refusals)
                except Surprise:
                    continue
                return refusals
        raise Unavailable("other workers write the same pages")

    async def _put(self, pages: Sequence[PageItems], refusals: list[str]) -> None:
        fixed = self._fixed
        names = await self._names({e.shape for p in pages for e in p.items} if fixed is None else [fixed])
        for name in names:
            await self._writer(name).settle(work_for(name, pages, refusals), refusals)
        refused = [index for index, text in enumerate(refusals) if text]
        if refused:
            nothing: PageWork = [(index, pages[index].prefix, []) for index in refused]
            for name in names:
                await self._writer(name).settle(nothing, refusals)

    # --- collections -----------------------------------------------------------------------------------

    def _collection(self, name: str) -> AsyncCollection[Any]:
        assert self._client is not None
        return self._client[self._place.database][name]

    def _writer(self, name: str) -> PageWriter:
        return PageWriter(self._collection(name), plain=self._plain)

    async def _names(self, used: Iterable[str]) -> list[str]:
        """Return the collections in use, and for a template all others that could hold an earlier visit's items."""
        if self._fixed is not None:
            return sorted(used)
        assert self._client is not None
        pattern = {"name": {"$regex": self._place.pattern(self._job)}}
        known = await self._client[self._place.database].list_collection_names(filter=pattern)
        return sorted({*used, *known})
