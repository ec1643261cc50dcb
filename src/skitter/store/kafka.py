"""A driver that sends items to a topic of Kafka, with their ids as keys."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal
from urllib.parse import unquote

import msgspec
from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    AuthenticationFailedError,
    ClusterAuthorizationFailedError,
    InvalidTopicError,
    KafkaConnectionError,
    KafkaError,
    MessageSizeTooLargeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
)

from skitter._utils.backoff import Unavailable
from skitter._utils.visible import one_line
from skitter.errors import StoreError
from skitter.item import encode_item
from skitter.store.contract import OutputAddress, StoreContext
from skitter.store.database import BufferOptions, Encoded, PageItems, read_options, tls_context

_REFUSALS = (
    AuthenticationFailedError,
    ClusterAuthorizationFailedError,
    InvalidTopicError,
    TopicAuthorizationFailedError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
)
"""Permanent errors, for which a retry is useless."""
_KEY_AND_FRAMING = 512
"""Bytes of a message in addition to its value."""
_LINGER_MS = 5


class KafkaOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options of a ``kafka://`` URL, with the names that Kafka's own clients use. ``ca_file`` is a PEM file."""

    client_id: str = "skitter"
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    enable_idempotence: bool = True
    max_request_size: int = 1_000_000
    request_timeout_ms: int = 30_000
    security_protocol: Literal["", "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = ""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    ca_file: str = ""


class _ConnectionErrors(logging.Filter):
    """Keeps the reason why the client cannot connect, because the client logs it but does not include it in its error."""

    last: Exception | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        reason = record.args[-1] if isinstance(record.args, tuple) and record.args else None
        if not isinstance(reason, Exception):
            return True
        self.last = reason
        return False


_CONNECTION_ERRORS = _ConnectionErrors()
logging.getLogger("aiokafka").addFilter(_CONNECTION_ERRORS)
for _part in ("cluster", "conn", "producer"):
    # They also raise the errors that they log.
    logging.getLogger(f"aiokafka.{_part}").setLevel(logging.CRITICAL)


class KafkaDriver:
    """Uses one producer, which is replaced after each failure. Implements :class:`~skitter.store.database.Driver`."""

    def __init__(self, address: OutputAddress, options: Mapping[str, str], _buffer: BufferOptions) -> None:
        """Read the URL. Raises :class:`~skitter.errors.StoreError`."""
        place, _, self._topic = address.rest.partition("/")
        access, _, self._servers = place.rpartition("@")
        user, _, password = access.partition(":")
        self.name = f"kafka://{self._servers}/{self._topic}"
        if not self._servers or not self._topic or "/" in self._topic:
            raise StoreError(
                f"output {self.name} does not name a topic",
                remedy="write kafka://HOST:9092/TOPIC",
                field="output",
            )
        self._options = read_options(self.name, options, KafkaOptions)
        self._user = unquote(user)
        self._password = unquote(password) or address.password("kafka")
        self._largest = self._options.max_request_size - _KEY_AND_FRAMING
        self._producer: AIOKafkaProducer | None = None

    def _client_options(self) -> dict[str, Any]:
        """Return the arguments of the client. This blocks: it reads certificates."""
        options = self._options
        protocol = options.security_protocol or ("SASL_PLAINTEXT" if self._user else "PLAINTEXT")
        arguments: dict[str, Any] = {
            "bootstrap_servers": self._servers.split(","), "client_id": options.client_id, "acks": "all",
            "linger_ms": _LINGER_MS, "max_request_size": options.max_request_size,
            "request_timeout_ms": options.request_timeout_ms,
            "enable_idempotence": options.enable_idempotence, "security_protocol": protocol,
            "compression_type": None if options.compression_type == "none" else options.compression_type,
        }  # fmt: skip
        if self._user:
            arguments |= {
                "sasl_mechanism": options.sasl_mechanism, "sasl_plain_username": self._user,
                "sasl_plain_password": self._password,
            }  # fmt: skip
        if protocol.endswith("SSL"):
            arguments["ssl_context"] = tls_context(self.name, options.ca_file)
        return arguments

    async def open(self, context: StoreContext) -> None:  # noqa: ARG002 - a topic is independent of the job
        await self._connected()

    async def _connected(self) -> AIOKafkaProducer:
        if self._producer is None:
            try:
                options = await asyncio.to_thread(self._client_options)
                producer = AIOKafkaProducer(**options)
            except RuntimeError as error:
                raise StoreError(
                    f"{self.name}: {one_line(error)}", remedy="install the library", field="compression_type"
                ) from error
            _CONNECTION_ERRORS.last = None
            with self._translated_errors():
                try:
                    await producer.start()
                except KafkaConnectionError as error:
                    await producer.stop()
                    raise _CONNECTION_ERRORS.last or error from error
                except BaseException:
                    await producer.stop()
                    raise
            self._producer = producer
        return self._producer

    async def check(self, job: str) -> None:  # noqa: ARG002 - a topic is independent of the job
        """Check that the topic exists or is created by its first use."""
        producer = await self._connected()
        with self._translated_errors():
            try:
                await producer.partitions_for(self._topic)
            except UnknownTopicOrPartitionError:
                raise StoreError(
                    f"{self.name}: the topic does not exist",
                    remedy="create it; the broker does not create topics by itself",
                    field="output",
                ) from None

    async def clear(self, job: str) -> None:
        """Do nothing: the messages of a topic cannot be removed."""

    def encode(self, item: Any) -> Encoded:
        data = encode_item(item)
        if len(data) > self._largest:
            raise StoreError(
                f"the item has {len(data)} bytes, more than a message may have",
                remedy=f"raise max_request_size (now {self._largest + _KEY_AND_FRAMING}) and the limit of the broker",
            )
        return Encoded(data)

    async def put(self, pages: Sequence[PageItems]) -> list[str]:
        """Send all items, and wait until all replicas in sync have them."""
        try:
            with self._translated_errors():
                return await self._put(pages)
        except BaseException:
            await self.close()
            raise

    async def _put(self, pages: Sequence[PageItems]) -> list[str]:
        refusals = [""] * len(pages)
        owners = [index for index, page in enumerate(pages) for _ in page.items]
        messages = [
            (f"{page.prefix}{number}".encode(), item.data)
            for page in pages
            for number, item in enumerate(page.items)
        ]
        outcomes = await self._send(messages)
        too_large = [
            index for index, outcome in enumerate(outcomes) if isinstance(outcome, MessageSizeTooLargeError)
        ]
        if too_large:
            # The broker also refuses what an idempotent producer sends after a message that was too large.
            others = [
                message
                for message, outcome in zip(messages, outcomes, strict=True)
                if isinstance(outcome, BaseException) and not isinstance(outcome, MessageSizeTooLargeError)
            ]
            await self.close()
            outcomes = await self._send(others)
        _raise_first(outcomes)
        for index in too_large:
            # Another message of the same batch may have caused the error.
            outcomes = await self._send([messages[index]])
            if isinstance(outcomes[0], MessageSizeTooLargeError):
                refusals[owners[index]] = "a message is larger than the limit of the broker"
                await self.close()
            else:
                _raise_first(outcomes)
        return refusals

    async def _send(self, messages: Sequence[tuple[bytes, bytes]]) -> list[Any]:
        """Send keys and values. Return the outcome of each message, which is an exception if it failed."""
        producer = await self._connected()
        sent = []
        try:
            for key, data in messages:
                sent.append(await producer.send(self._topic, data, key=key))
        finally:
            outcomes = await asyncio.gather(*sent, return_exceptions=True)
        return outcomes

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop()

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except _REFUSALS as error:
            raise StoreError(
                f"{self.name}: {one_line(error)}", remedy="check the user, its permissions and the topic"
            ) from error
        except ssl.SSLError as error:
            raise StoreError(
                f"{self.name}: {one_line(error)}", remedy="check security_protocol and ca_file"
            ) from error
        except (KafkaError, OSError, TimeoutError) as error:
            raise Unavailable(one_line(error)) from error


def _raise_first(outcomes: Sequence[Any]) -> None:
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
