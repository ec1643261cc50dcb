"""MongoLocation: which collection of which server a URL means, and which collection an item goes to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote, urlencode

import msgspec

from skitter.errors import StoreError

_REMEDY = "write mongodb://[USER:PASSWORD@]HOST[:PORT]/DATABASE/COLLECTION"
_UNFIT_IN_DATABASE = re.compile(r'[/\\. "$*<>:|?\0]')
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_UNFIT_IN_NAME = re.compile(r"[^\w.-]+")


class MongoLocation(msgspec.Struct, frozen=True):
    """Server, database and collection. The collection may be a template, ``{type}`` or ``shop_{kind}`` say."""

    uri: str
    """For the client, with user and password."""
    name: str
    """For people."""
    database: str
    collection: str

    @classmethod
    def parse(cls, kind: str, rest: str, options: dict[str, str], password: str = "") -> MongoLocation:
        """Read a URL; what is left in ``options`` is for the client, ``password`` is for a user who has none.

        Raises :class:`~skitter.errors.StoreError` with a remedy.
        """
        hosts, _, path = rest.partition("/")
        database, _, collection = path.partition("/")
        database = unquote(database)
        collection = options.pop("collection", "") or unquote(collection)
        user, _, place = hosts.rpartition("@")
        name = f"{kind}://{place}/{database}/{collection}"
        if not place or not database or not collection:
            raise StoreError(f"output {name!r} lacks host, database or collection", remedy=_REMEDY)
        if _UNFIT_IN_DATABASE.search(database) or len(database.encode()) > 63:
            raise StoreError(
                f"{database!r} cannot be the name of a database", remedy="use letters, digits and underscores"
            )
        plain = _PLACEHOLDER.sub("x", collection)
        if "$" in plain or "\0" in plain or "{" in plain or plain.startswith((".", "system.")):
            raise StoreError(
                f"{collection!r} cannot be the name of a collection",
                remedy="use letters, digits and underscores; {type}, {job} or {FIELD} stand for what an item says",
            )
        if user and password and ":" not in user:
            hosts = f"{user}:{quote(password, safe='')}@{place}"
        uri = f"{kind}://{hosts}/{quote(database)}" + (f"?{urlencode(options)}" if options else "")
        return cls(uri, name, database, collection)

    @property
    def example(self) -> str:
        """One of the collections that there could be."""
        return _PLACEHOLDER.sub("item", self.collection)

    def fixed(self, job: str) -> str | None:
        """Return the collection of all items; ``None`` if it depends on the item."""
        name = self.collection.replace("{job}", _fit(job))
        return None if _PLACEHOLDER.search(name) else name

    def pattern(self, job: str) -> str:
        """Return a regular expression for the names of all collections that the template can give."""
        pieces = _PLACEHOLDER.split(self.collection)
        for index in range(1, len(pieces), 2):
            pieces[index] = re.escape(_fit(job)) if pieces[index] == "job" else r"[\w.-]+"
        for index in range(0, len(pieces), 2):
            pieces[index] = re.escape(pieces[index])
        return f"^{''.join(pieces)}$"

    def collection_of(self, job: str, item: Any, fields: Mapping[str, Any]) -> str:
        """Return the collection of an item. Raises :class:`~skitter.errors.StoreError`: it lacks a field."""

        def value(found: re.Match[str]) -> str:
            name = found[1]
            if name == "job":
                return _fit(job)
            if name in fields:
                return _fit(str(fields[name]))
            if name == "type":
                return "item" if isinstance(item, dict) else _fit(type(item).__name__)
            raise StoreError(
                f"the item has no field {name!r}, by which its collection is chosen",
                remedy=f"give it one, or name another collection than {self.collection}",
            )

        return _PLACEHOLDER.sub(value, self.collection)


def _fit(text: str) -> str:
    return _UNFIT_IN_NAME.sub("_", text)[:80] or "_"
