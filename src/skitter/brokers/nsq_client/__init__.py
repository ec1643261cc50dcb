"""An asyncio client of the NSQ V2 protocol: producer, consumer and nsqlookupd. It is independent of the rest of skitter."""

from skitter.brokers.nsq_client.compression import CompressionMissing
from skitter.brokers.nsq_client.connection import Connection, NsqMessage, NsqOptions
from skitter.brokers.nsq_client.consumer import Consumer
from skitter.brokers.nsq_client.lookup import NsqLookup
from skitter.brokers.nsq_client.producer import Producer
from skitter.brokers.nsq_client.protocol import (
    CommandRefused,
    ConnectionFailed,
    LookupFailed,
    NsqError,
    is_channel,
    is_topic,
)

__all__ = [
    "CommandRefused",
    "CompressionMissing",
    "Connection",
    "ConnectionFailed",
    "Consumer",
    "LookupFailed",
    "NsqError",
    "NsqLookup",
    "NsqMessage",
    "NsqOptions",
    "Producer",
    "is_channel",
    "is_topic",
]
