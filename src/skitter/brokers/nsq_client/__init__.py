"""NSQ: an asyncio client of the NSQ V2 protocol: producer, consumer and nsqlookupd. It imports nothing of skitter."""

from skitter.brokers.nsq_client.compression import CompressionMissing
from skitter.brokers.nsq_client.connection import Connection
from skitter.brokers.nsq_client.consumer import Consumer
from skitter.brokers.nsq_client.errors import ConnectionFailed, LookupFailed, NsqError, Refused
from skitter.brokers.nsq_client.lookup import NsqLookup
from skitter.brokers.nsq_client.message import Message
from skitter.brokers.nsq_client.options import Options
from skitter.brokers.nsq_client.producer import Producer
from skitter.brokers.nsq_client.wire import is_channel, is_topic

__all__ = [
    "CompressionMissing",
    "Connection",
    "ConnectionFailed",
    "Consumer",
    "LookupFailed",
    "Message",
    "NsqError",
    "NsqLookup",
    "Options",
    "Producer",
    "Refused",
    "is_channel",
    "is_topic",
]
