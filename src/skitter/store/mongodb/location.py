"""The server, database and collection that a MongoDB URL names, and the collection of each item."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote, urlencode

import msgspec

from skitter.errors import StoreError
from skitter.item import item_kind

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
