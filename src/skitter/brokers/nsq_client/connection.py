"""One TCP connection to an nsqd, and the messages that arrive over it."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from skitter.brokers.nsq_client import protocol
from skitter.brokers.nsq_client.compression import Codec, Deflate, Snappy
from skitter.brokers.nsq_client.protocol import CommandRefused, ConnectionFailed, NsqError

log = logging.getLogger(__name__)

MAX_REQUEUE_DELAY = 3600.0
"""Maximum delay in seconds: nsqd's default ``--max-req-timeout``. nsqd closes the connection for more."""
_HARMLESS_ERRORS = {"E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED"}
"""Errors about a message that has timed out; the connection stays open."""


@dataclass(frozen=True, kw_only=True)
class NsqOptions:
    """How clients connect, and the features they ask nsqd for."""

    connect_timeout: float = 5.0
    """Seconds to connect, including the whole handshake."""
    reply_timeout: float = 30.0
    """Seconds to wait for the reply to a command, before the connection is closed."""
    heartbeat: float = 30.0
    """Seconds between two heartbeats. A server that is silent for two of them counts as dead."""
    msg_timeout: float | None = None
    """Seconds after which a message in flight is delivered again; ``None``: nsqd's setting."""
    output_buffer_size: int | None = None
    """Bytes that nsqd buffers before it sends; ``None``: nsqd's setting (16 KB); -1: no buffer.
    Do not combine -1 with compression: nsqd 1.3.0 then does not send at all."""
    output_buffer_timeout: float | None = None
    """Seconds for which nsqd buffers; ``None``: nsqd's setting (0.25). nsqd refuses less than 0.025."""
    sample_rate: int = 0
    """Percentage of the messages to deliver; 0: all."""
    client_id: str = ""
    """Name of the client in nsqd's statistics; empty: the host's name."""
    user_agent: str = "skitter-nsq/1"
    tls: ssl.SSLContext | None = None
    """Encrypt the connection, and fail if nsqd offers no TLS; ``None``: plain text."""
    deflate: int = 0
    """Level of deflate compression from 1 to 9; 0: off. Excludes ``snappy``."""
    snappy: bool = False
    auth_secret: str = ""
    lookup_interval: float = 60.0
    """Seconds between two requests to each nsqlookupd, varied at random by a third."""

    def identification(self) -> bytes:
        """Return the JSON text of IDENTIFY."""
        host = socket.gethostname()
        features: dict[str, Any] = {
            "client_id": self.client_id or host,
            "hostname": host,
            "user_agent": self.user_agent,
            "feature_negotiation": True,
            "heartbeat_interval": round(self.heartbeat * 1000),
            "sample_rate": self.sample_rate,
            "tls_v1": self.tls is not None,
            "deflate": self.deflate > 0,
            "deflate_level": self.deflate,
            "snappy": self.snappy,
        }
        if self.msg_timeout is not None:
            features["msg_timeout"] = round(self.msg_timeout * 1000)
        if self.output_buffer_size is not None:
            features["output_buffer_size"] = self.output_buffer_size
        if self.output_buffer_timeout is not None:
            features["output_buffer_timeout"] = round(self.output_buffer_timeout * 1000)
        return json.dumps(features).encode()


class NsqMessage:
    """A message as delivered over a connection. :meth:`finish` or :meth:`requeue` acknowledges it; later calls do nothing.

    An acknowledgement after the end of the connection is lost: nsqd delivers the message again.
    """

    __slots__ = ("attempts", "body", "connection", "id", "is_in_flight", "published")

    def __init__(
        self, connection: Connection, message_id: bytes, body: bytes, attempts: int, published: int
    ) -> None:
        self.connection = connection
        self.id = message_id
        self.body = body
        self.attempts = attempts
        """Number of deliveries, including this one; nsqd stops counting at 65,535."""
        self.published = published
        """Unix time in nanoseconds, by the clock of nsqd."""
        self.is_in_flight = True

    def finish(self) -> None:
        """Delete the message from nsqd (``FIN``)."""
        self._acknowledge(protocol.fin(self.id))

    def requeue(self, delay: float = 0.0) -> None:
        """Return the message, to be delivered again after ``delay`` seconds (``REQ``).

        A delay above an hour, nsqd's default ``--max-req-timeout``, is reduced to an hour.
        """
        self._acknowledge(protocol.req(self.id, round(min(max(delay, 0.0), MAX_REQUEUE_DELAY) * 1000)))

    def _acknowledge(self, command: bytes) -> None:
        if self.is_in_flight:
            self.is_in_flight = False
            if self.connection.in_flight.get(self.id) is self:  # not a later delivery of the same message
                del self.connection.in_flight[self.id]
            self.connection.send(command)

    def touch(self) -> None:
        """Restart the message timeout (``TOUCH``). nsqd allows at most ``--max-msg-timeout`` in all."""
        if self.is_in_flight:
            self.connection.send(protocol.touch(self.id))


class Connection(asyncio.Protocol):
    """Sends commands, and receives replies and messages. Use :meth:`open` to create one."""

    def __init__(
        self,
        host: str,
        port: int,
        options: NsqOptions,
        on_message: Callable[[NsqMessage], None] | None,
        on_close: Callable[[Connection], None] | None,
    ) -> None:
        self.host, self.port = host, port
        self.options = options
        self.server_info: dict[str, Any] = {}
        """nsqd's reply to IDENTIFY: version, ``max_rdy_count``, ``msg_timeout`` in ms, and others."""
        self.in_flight: dict[bytes, NsqMessage] = {}
        """Messages delivered and neither finished nor requeued, by id."""
        self.ready = 0
        """Number of messages that may be in flight."""
        self._on_message = on_message
        self._on_close = on_close
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._frames = protocol.NsqFrameReader()
        self._codec: Codec | None = None
        self._next_codec: Codec | None = None
        if options.deflate or options.snappy:
            self._next_codec = Deflate(options.deflate) if options.deflate else Snappy()
        """Codec for all data after the last plain reply of the handshake."""
        self._compressed: asyncio.Future[bytes] = self._loop.create_future()
        self._plain_replies = 1 if options.tls is None else 2
        self._replies: deque[asyncio.Future[bytes]] = deque()
        self._out: list[bytes] = []
        self._is_ready_sent = True
        self._error: Exception | None = None
        self._closed = self._loop.create_future()
        self._received_at = self._loop.time()
        self._liveness_timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<nsqd {self.host}:{self.port}>"

    # --- opening and closing -----------------------------------------------------------------------------

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        options: NsqOptions | None = None,
        *,
        on_message: Callable[[NsqMessage], None] | None = None,
        on_close: Callable[[Connection], None] | None = None,
    ) -> Connection:
        """Connect. ``on_message`` is called with each message, ``on_close`` once at the end of the connection.

        Raises :class:`ConnectionFailed` if no nsqd replies, :class:`CommandRefused` if it refuses the client.
        """
        options = options or NsqOptions()
        connection = cls(host, port, options, on_message, on_close)
        try:
            async with asyncio.timeout(options.connect_timeout):
                await connection._loop.create_connection(lambda: connection, host, port)
                await connection._handshake()
        except (OSError, TimeoutError) as error:
            connection.close()
            raise ConnectionFailed(f"nsqd {host}:{port}: {_describe(error)}") from error
        except BaseException:
            connection.close()
            raise
        connection._liveness_timer = connection._loop.call_later(
            options.heartbeat, connection._check_liveness
        )
        return connection

    async def _handshake(self) -> None:
        self.send(protocol.MAGIC)
        reply = await self.call(protocol.identify(self.options.identification()))
        try:
            self.server_info = json.loads(reply)
            version = self.server_info["version"]
        except (ValueError, TypeError, KeyError) as error:
            raise ConnectionFailed(
                f"{self!r} is not an nsqd, or too old: it replied {reply[:40]!r}"
            ) from error
        log.debug("%r has version %s", self, version)
        if self.options.tls is not None:
            await self._encrypt(self.options.tls)
        if self.options.deflate or self.options.snappy:
            name = "deflate" if self.options.deflate else "snappy"
            if not self.server_info.get(name):
                raise ConnectionFailed(f"{self!r} does not offer {name}")
            await self._await_reply(self._compressed)
        if self.options.auth_secret:
            await self.call(protocol.auth(self.options.auth_secret.encode()))
        elif self.server_info.get("auth_required"):
            raise CommandRefused("E_AUTH_FIRST", f"{self!r} requires a secret")

    async def _encrypt(self, context: ssl.SSLContext) -> None:
        if not self.server_info.get("tls_v1"):
            raise ConnectionFailed(f"{self!r} does not offer TLS")
        reply = self._expect_reply()
        plain = self._transport
        assert plain is not None
        encrypted = await self._loop.start_tls(plain, self, context, server_hostname=self.host)
        self._transport = encrypted
        await self._await_reply(reply)

    def close(self) -> None:
        """Disconnect at once. nsqd delivers messages in flight again after their timeout."""
        if self._transport is not None:
            self._flush()
            self._transport.close()
        elif not self._closed.done():
            self.connection_lost(None)

    async def wait_closed(self) -> None:
        """Wait until the connection has ended."""
        await asyncio.shield(self._closed)

    @property
    def is_open(self) -> bool:
        """Whether commands can be sent."""
        return not self._closed.done() and self._transport is not None and not self._transport.is_closing()

    # --- receiving ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport is not a subclass

    def connection_lost(self, error: Exception | None) -> None:
        """Fail all calls that wait for a reply."""
        if self._closed.done():
            return
        self._transport = None
        self._closed.set_result(None)
        if self._liveness_timer is not None:
            self._liveness_timer.cancel()
        reason = self._error or error
        for reply in self._replies:
            if not reply.done():
                reply.set_exception(
                    ConnectionFailed(
                        f"{self!r}: {_describe(reason) if reason else 'the connection was closed'}"
                    )
                )
                reply.exception()  # retrieved: after a failed handshake, which raises its own error, no call waits
        self._replies.clear()
        if self._on_close is not None:
            self._on_close(self)

    def data_received(self, data: bytes) -> None:
        """Process received bytes."""
        self._received_at = self._loop.time()
        try:
            codec = self._codec
            frames = self._frames.feed(data if codec is None else codec.decompress(data))
            for kind, frame in frames:
                self._process(kind, frame)
                self._plain_replies -= kind == protocol.RESPONSE
                if self._next_codec is not None and self._plain_replies == 0:
                    frames.close()
                    self._start_codec(self._next_codec)
                    break
        except NsqError as error:
            self._abort(ConnectionFailed(f"{self!r} broke the protocol: {error}"))

    def _start_codec(self, codec: Codec) -> None:
        """Decompress all further bytes, including those that came together with the last plain reply."""
        self._next_codec, self._codec = None, codec
        self._compressed = self._expect_reply()
        rest = self._frames.rest()
        if rest:
            self.data_received(rest)

    def _process(self, kind: int, frame: bytes) -> None:
        if kind == protocol.MESSAGE:
            published, attempts, message_id, body = protocol.read_message(frame)
            message = NsqMessage(self, message_id, body, attempts, published)
            self.in_flight[message_id] = message
            if self._on_message is not None:
                self._on_message(message)
        elif kind == protocol.RESPONSE:
            if frame == protocol.HEARTBEAT:
                self.send(protocol.NOP)
            elif not self._replies:
                raise NsqError(f"unexpected reply: {frame[:40]!r}")
            elif not (waiting := self._replies.popleft()).done():
                waiting.set_result(frame)
        elif kind == protocol.ERROR:
            self._process_error(frame)
        else:
            raise NsqError(f"unknown kind of frame ({kind})")

    def _process_error(self, frame: bytes) -> None:
        code, _, text = frame.decode("utf-8", "replace").partition(" ")
        if code in _HARMLESS_ERRORS:
            log.debug("%r: %s %s", self, code, text)
            return
        error = CommandRefused(code, text)
        if self._replies:
            waiting = self._replies.popleft()
            if not waiting.done():
                waiting.set_exception(error)
        else:
            log.warning("%r: %s", self, error)
        self._error = error  # nsqd closes the connection after any other error

    def _check_liveness(self) -> None:
        """Abort the connection if the server has been silent for too long."""
        silent = self._loop.time() - self._received_at
        if silent > 2 * self.options.heartbeat:
            self._abort(ConnectionFailed(f"{self!r} has been silent for {silent:.0f} s"))
            return
        self._liveness_timer = self._loop.call_later(self.options.heartbeat, self._check_liveness)

    def _abort(self, error: NsqError) -> None:
        log.warning("%s", error)
        self._error = error
        if self._transport is not None:
            self._transport.abort()

    # --- sending ----------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Send, together with everything else that is sent in this iteration of the event loop."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if not self._is_ready_sent:
            # Before FIN and REQ: these make room for messages that may not be wanted any more.
            self._is_ready_sent = True
            out.insert(0, protocol.rdy(self.ready))
        if out and self.is_open:
            assert self._transport is not None
            data = b"".join(out)
            self._transport.write(data if self._codec is None else self._codec.compress(data))

    def _expect_reply(self) -> asyncio.Future[bytes]:
        reply: asyncio.Future[bytes] = self._loop.create_future()
        self._replies.append(reply)
        return reply

    async def call(self, command: bytes) -> bytes:
        """Send a command and return the reply. Calls may overlap.

        Raises :class:`CommandRefused` or :class:`ConnectionFailed`.
        """
        if not self.is_open:
            raise ConnectionFailed(f"{self!r}: the connection has ended")
        self.send(command)
        return await self._await_reply(self._expect_reply())

    async def _await_reply(self, reply: asyncio.Future[bytes]) -> bytes:
        try:
            async with asyncio.timeout(self.options.reply_timeout):
                return await reply
        except TimeoutError as error:
            late = ConnectionFailed(f"{self!r} did not reply within {self.options.reply_timeout:g} s")
            self._abort(late)
            raise late from error

    async def publish(self, topic: str, bodies: Sequence[bytes], delay: float = 0.0) -> None:
        """Publish messages, with a delay in seconds. Return when nsqd has them."""
        if delay > 0:
            milliseconds = round(min(delay, MAX_REQUEUE_DELAY) * 1000)
            await asyncio.gather(*(self.call(protocol.dpub(topic, body, milliseconds)) for body in bodies))
        elif len(bodies) == 1:
            await self.call(protocol.pub(topic, bodies[0]))
        elif bodies:
            await self.call(protocol.mpub(topic, bodies))

    async def subscribe(self, topic: str, channel: str) -> None:
        """Subscribe to a channel. Nothing is delivered before :meth:`allow`."""
        await self.call(protocol.sub(topic, channel))

    async def stop(self) -> None:
        """Stop the delivery of messages (``CLS``). Those in flight can still be finished or requeued."""
        await self.call(protocol.CLS)

    def allow(self, count: int) -> None:
        """Let ``count`` messages be in flight (``RDY``), or as many as nsqd allows."""
        count = min(count, int(self.server_info.get("max_rdy_count", 2500)))
        if count != self.ready:
            self.ready = count
            if self._is_ready_sent:
                self._is_ready_sent = False
                self.send(b"")


def _describe(error: BaseException) -> str:
    if isinstance(error, TimeoutError) and not error.args:
        return "no reply"
    return str(error) or type(error).__name__
