"""NSQ: an asyncio client of the NSQ V2 protocol: producer, consumer and nsqlookupd. It imports nothing of skitter."""

from skitter.nsq.compression import CompressionMissing
from skitter.nsq.connection import Connection
from skitter.nsq.consumer import Consumer
from skitter.nsq.errors import ConnectionFailed, LookupFailed, NsqError, Refused
from skitter.nsq.lookup import NsqLookup
from skitter.nsq.message import Message
from skitter.nsq.options import Options
from skitter.nsq.producer import Producer
from skitter.nsq.wire import is_channel, is_topic

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
