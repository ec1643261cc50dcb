"""Connection: one TCP connection to an nsqd, after its greeting."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

from skitter.brokers.nsq_client import wire
from skitter.brokers.nsq_client.compression import Codec, Deflate, Snappy
from skitter.brokers.nsq_client.errors import ConnectionFailed, NsqError, Refused
from skitter.brokers.nsq_client.message import Message
from skitter.brokers.nsq_client.options import Options

log = logging.getLogger(__name__)

LONGEST_REQUEUE = 3600.0
"""Seconds: nsqd's default ``--max-req-timeout``; it closes the connection for more."""
_NEVER_FATAL = {"E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED"}
"""Errors of a message that is no longer ours; the connection stays."""


def _ignore(_: Any) -> None:
    pass


class Connection(asyncio.Protocol):
    """Commands out, answers and messages in. Made by :meth:`open`."""

    def __init__(self, host: str, port: int, options: Options) -> None:
        self.host, self.port = host, port
        self.options = options
        self.agreed: dict[str, Any] = {}
        """What nsqd answered to IDENTIFY: version, ``max_rdy_count``, ``msg_timeout`` in ms, and so on."""
        self.held: dict[bytes, Message] = {}
        """Messages delivered and not yet answered, by id."""
        self.ready = 0
        """Messages that may be in flight."""
        self.on_message: Callable[[Message], None] = _ignore
        self.on_close: Callable[[Connection], None] = _ignore
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._unframer = wire.Unframer()
        self._codec: Codec | None = None
        self._next_codec = _codec_of(options)
        """What everything after the last plain answer of the greeting is compressed with."""
        self._compressed: asyncio.Future[bytes] = self._loop.create_future()
        self._plain_answers = 1 if options.tls is None else 2
        self._answers: deque[asyncio.Future[bytes]] = deque()
        self._out: list[bytes] = []
        self._is_ready_told = True
        self._error: Exception | None = None
        self._closed = self._loop.create_future()
        self._heard = self._loop.time()
        self._watch: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<nsqd {self.host}:{self.port}>"

    # --- opening and closing -----------------------------------------------------------------------------

    @classmethod
    async def open(cls, host: str, port: int, options: Options | None = None) -> Connection:
        """Connect and greet.

        Raises :class:`ConnectionFailed` if nobody answers as an nsqd does, :class:`Refused` if it declines.
        """
        options = options if options is not None else Options()
        connection = cls(host, port, options)
        try:
            async with asyncio.timeout(options.connect_timeout):
                await connection._loop.create_connection(lambda: connection, host, port)
                await connection._greet()
        except (OSError, TimeoutError) as error:
            connection.close()
            raise ConnectionFailed(f"nsqd {host}:{port}: {_words(error)}") from error
        except BaseException:
            connection.close()
            raise
        connection._watch = connection._loop.call_later(options.heartbeat, connection._look)
        return connection

    async def _greet(self) -> None:
        self._send(wire.MAGIC)
        answer = await self.call(wire.identify(self.options.greeting()))
        try:
            self.agreed = json.loads(answer)
            version = self.agreed["version"]
        except (ValueError, TypeError, KeyError) as error:
            raise ConnectionFailed(f"{self!r} is too old or no nsqd: it answers {answer[:40]!r}") from error
        log.debug("%r has version %s", self, version)
        if self.options.tls is not None:
            await self._encrypt(self.options.tls)
        if self.options.deflate or self.options.snappy:
            await self._compress("deflate" if self.options.deflate else "snappy")
        if self.options.auth_secret:
            await self.call(wire.auth(self.options.auth_secret.encode()))
        elif self.agreed.get("auth_required"):
            raise Refused("E_AUTH_FIRST", f"{self!r} wants a secret")

    async def _encrypt(self, context: ssl.SSLContext) -> None:
        if not self.agreed.get("tls_v1"):
            raise ConnectionFailed(f"{self!r} offers no TLS")
        answer = self._expect()
        plain = self._transport
        assert plain is not None
        encrypted = await self._loop.start_tls(plain, self, context, server_hostname=self.host)
        self._transport = encrypted
        await self._wait(answer)

    async def _compress(self, name: str) -> None:
        if not self.agreed.get(name):
            raise ConnectionFailed(f"{self!r} offers no {name}")
        await self._wait(self._compressed)

    @property
    def in_flight(self) -> int:
        """How many messages were delivered and not yet answered."""
        return len(self.held)

    def close(self) -> None:
        """Disconnect at once. What is in flight is delivered again when its time is over, by nsqd's patience."""
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
        """Whether commands still go out."""
        return not self._closed.done() and self._transport is not None and not self._transport.is_closing()

    # --- what arrives ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See the connection begin."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class

    def connection_lost(self, error: Exception | None) -> None:
        """See the connection end: whoever waits hears of it."""
        if self._closed.done():
            return
        self._transport = None
        self._closed.set_result(None)
        if self._watch is not None:
            self._watch.cancel()
        why = self._error or error
        for answer in self._answers:
            if not answer.done():
                answer.set_exception(
                    ConnectionFailed(f"{self!r}: {_words(why) if why else 'the connection was closed'}")
                )
        self._answers.clear()
        self.on_close(self)

    def data_received(self, data: bytes) -> None:
        """Take what arrived."""
        self._heard = self._loop.time()
        try:
            codec = self._codec
            frames = self._unframer.feed(data if codec is None else codec.decompress(data))
            for kind, frame in frames:
                self._take(kind, frame)
                if self._next_codec is not None and self._ends_plain(kind):
                    frames.close()
                    self._begin_codec(self._next_codec)
                    break
        except NsqError as error:
            self._break_off(ConnectionFailed(f"{self!r} does not speak the protocol: {error}"))

    def _ends_plain(self, kind: int) -> bool:
        self._plain_answers -= kind == wire.RESPONSE
        return self._plain_answers == 0

    def _begin_codec(self, codec: Codec) -> None:
        """Take the next bytes for compressed ones: the answer to that may have come along with the last plain one."""
        self._next_codec, self._codec = None, codec
        self._compressed = self._expect()
        rest = self._unframer.rest()
        if rest:
            self.data_received(rest)

    def _take(self, kind: int, frame: bytes) -> None:
        if kind == wire.MESSAGE:
            published, attempts, message_id, body = wire.read_message(frame)
            message = self.held[message_id] = Message(self, message_id, body, attempts, published)
            self.on_message(message)
        elif kind == wire.RESPONSE:
            if frame == wire.HEARTBEAT:
                self._send(wire.NOP)
            else:
                self._answer(frame)
        elif kind == wire.ERROR:
            self._take_error(frame)
        else:
            raise NsqError(f"a frame of kind {kind}")

    def _take_error(self, frame: bytes) -> None:
        code, _, words = frame.decode("utf-8", "replace").partition(" ")
        if code in _NEVER_FATAL:
            log.debug("%r: %s %s", self, code, words)
            return
        error = Refused(code, words)
        if self._answers:
            waiting = self._answers.popleft()
            if not waiting.done():
                waiting.set_exception(error)
        else:
            log.warning("%r: %s", self, error)
        self._error = error  # nsqd closes the connection after any other error

    def _answer(self, frame: bytes) -> None:
        if not self._answers:
            raise NsqError(f"an answer that nobody asked for: {frame[:40]!r}")
        waiting = self._answers.popleft()
        if not waiting.done():
            waiting.set_result(frame)

    def _look(self) -> None:
        """Find out whether the server still lives."""
        silent = self._loop.time() - self._heard
        if silent > 2 * self.options.heartbeat:
            self._break_off(ConnectionFailed(f"{self!r} has been silent for {silent:.0f} s"))
            return
        self._watch = self._loop.call_later(self.options.heartbeat, self._look)

    def _break_off(self, error: NsqError) -> None:
        log.warning("%s", error)
        self._error = error
        if self._transport is not None:
            self._transport.abort()

    # --- what goes out -----------------------------------------------------------------------------------

    def _send(self, data: bytes) -> None:
        """Send, together with what else is said in this turn of the loop."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if not self._is_ready_told:
            # Before all answers: they would make room for messages that may be wanted no more.
            self._is_ready_told = True
            out.insert(0, wire.rdy(self.ready))
        if out and self.is_open:
            assert self._transport is not None
            data = b"".join(out)
            self._transport.write(data if self._codec is None else self._codec.compress(data))

    def _expect(self) -> asyncio.Future[bytes]:
        answer: asyncio.Future[bytes] = self._loop.create_future()
        self._answers.append(answer)
        return answer

    async def call(self, command: bytes) -> bytes:
        """Send a command that has an answer, and return that. Calls may overlap.

        Raises :class:`Refused` or :class:`ConnectionFailed`.
        """
        if not self.is_open:
            raise ConnectionFailed(f"{self!r}: the connection has ended")
        self._send(command)
        return await self._wait(self._expect())

    async def _wait(self, answer: asyncio.Future[bytes]) -> bytes:
        try:
            async with asyncio.timeout(self.options.answer_timeout):
                return await answer
        except TimeoutError as error:
            late = ConnectionFailed(f"{self!r} did not answer within {self.options.answer_timeout:g} s")
            self._break_off(late)
            raise late from error

    async def publish(self, topic: str, bodies: Sequence[bytes], delay: float = 0.0) -> None:
        """Publish messages; returns when nsqd has them. With a delay (seconds) each goes by itself."""
        if delay > 0:
            milliseconds = round(min(delay, LONGEST_REQUEUE) * 1000)
            await asyncio.gather(*(self.call(wire.dpub(topic, body, milliseconds)) for body in bodies))
        elif len(bodies) == 1:
            await self.call(wire.pub(topic, bodies[0]))
        elif bodies:
            await self.call(wire.mpub(topic, bodies))

    async def subscribe(self, topic: str, channel: str) -> None:
        """Become a consumer of a channel. Nothing is delivered before :meth:`allow`."""
        await self.call(wire.sub(topic, channel))

    async def stop(self) -> None:
        """Ask for no more messages (``CLS``); those in flight may still be answered."""
        await self.call(wire.CLS)

    def allow(self, count: int) -> None:
        """Let so many messages be in flight (``RDY``), at most what nsqd allows."""
        count = min(count, int(self.agreed.get("max_rdy_count", 2500)))
        if count != self.ready:
            self.ready = count
            if self._is_ready_told:
                self._is_ready_told = False
                self._send(b"")

    def finish(self, message: Message) -> None:
        """Forget a message; see :meth:`Message.finish`."""
        self._let_go(message)
        self._send(wire.fin(message.id))

    def requeue(self, message: Message, delay: float) -> None:
        """Put a message back; see :meth:`Message.requeue`."""
        self._let_go(message)
        self._send(wire.req(message.id, round(min(max(delay, 0.0), LONGEST_REQUEUE) * 1000)))

    def _let_go(self, message: Message) -> None:
        if self.held.get(message.id) is message:  # and not a later delivery of it
            del self.held[message.id]

    def touch(self, message: Message) -> None:
        """Ask for more time with a message; see :meth:`Message.touch`."""
        self._send(wire.touch(message.id))


def _codec_of(options: Options) -> Codec | None:
    if options.deflate:
        return Deflate(options.deflate)
    return Snappy() if options.snappy else None


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError) and not error.args:
        return "no answer"
    return str(error) or type(error).__name__
