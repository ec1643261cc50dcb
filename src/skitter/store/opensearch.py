"""A driver that stores items as documents of OpenSearch or Elasticsearch, under their ids."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

import msgspec
from opensearchpy import AsyncOpenSearch
from opensearchpy.exceptions import (
    AuthenticationException,
    AuthorizationException,
    OpenSearchException,
    RequestError,
    SSLError,
    TransportError,
)
from opensearchpy.exceptions import ConnectionError as NoConnection

from skitter._utils.backoff import Unavailable
from skitter._utils.visible import one_line
from skitter.errors import StoreError
from skitter.item import encode_item
from skitter.store.contract import OutputAddress, StoreContext
from skitter.store.database import BufferOptions, Encoded, PageItems, read_options, tls_context

logging.getLogger("opensearch").setLevel(logging.CRITICAL)  # it also raises the errors that it logs
JOB_FIELD = "skitter_job"
"""Field of every document with the name of its job, so that a fresh start can remove the documents of one job."""
_DEFAULT_PORT = 9200
_TIMEOUT = 30.0
_LOOK_AHEAD = 8
"""Number of documents beyond the end of a page that are looked up in one request."""
_OVERLOADED = frozenset({429, 502, 503, 504})
_NOT_OF_ONE_DOCUMENT = frozenset({401, 403, 404})
_TOO_LARGE = 413
_Document = tuple[str, int]
"""The prefix of a page and the number of a document."""


class OpenSearchOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options of an ``opensearch://`` URL. ``ca_file`` is a PEM file."""

    tls: bool = False
    ca_file: str = ""


class OpenSearchDriver:
    """Uses the bulk API. The documents of a page are numbered, and written on one shard, so that no gap can remain.

    Implements :class:`Driver`.
    """

    def __init__(self, address: OutputAddress, options: Mapping[str, str], _buffer: BufferOptions) -> None:
        """Read the URL. Raises :class:`~skitter.errors.StoreError`."""
        place, _, index = address.rest.partition("/")
        access, _, host = place.rpartition("@")
        user, _, password = access.partition(":")
        self.name = f"{address.kind}://{host}/{index}"
        valid = index == index.lower() and index[:1] not in "-_+" and not set(index) & set('/\\*?"<>|, #:')
        if not host or not index or not valid:
            raise StoreError(
                f"output {self.name} does not name an index",
                remedy=f"write {address.kind}://HOST:{_DEFAULT_PORT}/INDEX, with an index in lower case",
                field="output",
            )
        self._host = host if ":" in host.rpartition("]")[2] else f"{host}:{_DEFAULT_PORT}"
        self._index = index
        self._options = read_options(self.name, options, OpenSearchOptions)
        self._login = (unquote(user), unquote(password) or address.password("opensearch"))
        self._job_field = b""
        self._client: AsyncOpenSearch | None = None

    async def open(self, context: StoreContext) -> None:
        self._job_field = msgspec.json.encode({JOB_FIELD: context.job})[1:]
        await self.close()
        self._client = await asyncio.to_thread(self._new_client)

    def _new_client(self) -> AsyncOpenSearch:
        """Return a client, which connects on first use. This blocks, because it reads certificates."""
        arguments: dict[str, Any] = {}
        if self._options.tls:
            arguments["ssl_context"] = tls_context(self.name, self._options.ca_file)
        if self._login[0]:
            arguments["http_auth"] = self._login
        scheme = "https" if self._options.tls else "http"
        return AsyncOpenSearch([f"{scheme}://{self._host}"], timeout=_TIMEOUT, max_retries=0, **arguments)

    async def check(self, job: str) -> None:  # noqa: ARG002 - an index belongs to many jobs
        """Create the index if it is missing, and the mapping of the job's name."""
        mapping = {"properties": {JOB_FIELD: {"type": "keyword"}}}
        with self._translated_errors():
            try:
                await self._opened.indices.create(index=self._index, body={"mappings": mapping})
            except RequestError as error:
                if error.error != "resource_already_exists_exception":
                    raise
                await self._opened.indices.put_mapping(index=self._index, body=mapping)

    async def clear(self, job: str) -> None:
        with self._translated_errors():
            await self._opened.indices.refresh(index=self._index)
            await self._opened.delete_by_query(
                index=self._index,
                body={"query": {"term": {JOB_FIELD: job}}},
                params={"refresh": "true", "conflicts": "proceed"},
            )

    def encode(self, item: Any) -> Encoded:
        """Return the item as JSON, with the name of the job."""
        data = encode_item(item)
        return Encoded(data[:-1] + (b"," if len(data) > 2 else b"") + self._job_field)

    async def put(self, pages: Sequence[PageItems]) -> list[str]:
        with self._translated_errors():
            outcomes = await self._index_all(pages)
            surplus: list[_Document] = []
            ahead = {
                page.prefix: 0 if refusal else len(page.items)
                for page, (refusal, is_new) in zip(pages, outcomes, strict=True)
                if refusal or not is_new
            }
            while ahead:
                found = await self._existing(ahead)
                surplus += found
                ahead = {prefix: ahead[prefix] + _LOOK_AHEAD for prefix, _ in found}
            # The last documents are removed first, so that a kill leaves no gap.
            await self._bulk([(action("delete", *document),) for document in reversed(surplus)])
        return [refusal for refusal, _ in outcomes]

    async def _index_all(self, pages: Sequence[PageItems]) -> list[tuple[str, bool]]:
        """Write the documents. Return for each page why it was rejected, and whether it had no documents before."""
        operations = [
            (action("index", page.prefix, number), item.data)
            for page in pages
            for number, item in enumerate(page.items)
        ]
        try:
            results = iter(await self._bulk(operations))
        except TransportError as error:
            if error.status_code != _TOO_LARGE:
                raise
            if len(pages) == 1:
                return [("the items are larger than a request to the server may be", False)]
            half = len(pages) // 2
            return [*await self._index_all(pages[:half]), *await self._index_all(pages[half:])]
        outcomes = []
        for page in pages:
            replies = [next(results) for _ in page.items]
            refusals = [_reason(reply["error"]) for reply in replies if "error" in reply]
            is_new = bool(replies) and replies[0].get("result") == "created"
            outcomes.append(("".join(refusals[:1]), is_new))
        return outcomes

    async def _bulk(self, operations: Sequence[tuple[bytes, ...]]) -> list[dict[str, Any]]:
        """Send operations and return their results. An ``error`` in a result concerns only its document."""
        if not operations:
            return []
        lines = [line for operation in operations for line in operation]
        reply = await self._opened.bulk(body=b"\n".join([*lines, b""]), index=self._index)
        results = [result for item in reply["items"] for result in item.values()]
        if reply["errors"]:
            for result in results:
                if result["status"] in _OVERLOADED:
                    raise Unavailable(_reason(result["error"]))
                if result["status"] in _NOT_OF_ONE_DOCUMENT and "error" in result:
                    raise StoreError(f"{self.name}: {_reason(result['error'])}", remedy="check the index")
        return results

    async def _existing(self, ahead: dict[str, int]) -> list[_Document]:
        """Return which documents of pages exist, from a number on: the next few of each page, in order."""
        wanted = [
            (prefix, number)
            for prefix, first in ahead.items()
            for number in range(first, first + _LOOK_AHEAD)
        ]
        keys = [{"_id": f"{prefix}{number}", "routing": prefix} for prefix, number in wanted]
        reply = await self._opened.mget(index=self._index, body={"docs": keys}, params={"_source": "false"})
        return [key for key, document in zip(wanted, reply["docs"], strict=True) if document.get("found")]

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    @property
    def _opened(self) -> AsyncOpenSearch:
        if self._client is None:
            raise Unavailable("not connected")
        return self._client

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except (AuthenticationException, AuthorizationException) as error:
            raise StoreError(
                f"{self.name}: access denied: {error.error}",
                remedy="check the user, the password and the permissions",
            ) from error
        except SSLError as error:
            raise StoreError(f"{self.name}: {one_line(error)}", remedy="check tls and ca_file") from error
        except NoConnection as error:
            raise Unavailable(str(error.error)) from error
        except TransportError as error:
            if error.status_code in _OVERLOADED:
                raise Unavailable(one_line(error)) from error
            raise StoreError(
                f"{self.name}: {one_line(error)}", remedy="correct the index or its mapping"
            ) from error
        except OpenSearchException as error:
            raise Unavailable(one_line(error)) from error


def action(name: str, prefix: str, number: int) -> bytes:
    """Return the line of an operation on a document of a page, for the bulk API."""
    return msgspec.json.encode({name: {"_id": f"{prefix}{number}", "routing": prefix}})


def _reason(error: Any) -> str:
    if not isinstance(error, dict):
        return str(error)
    cause = (error.get("caused_by") or {}).get("reason", "")
    return f"{error.get('type', '')}: {error.get('reason', '')}" + (f": {cause}" if cause else "")
