"""The NSQ client with a scripted server: errors of the server, and the commands that the client sends."""

import asyncio
import gc
import json
import ssl
import struct

import pytest

from skitter._utils.concurrency import stop_listening
from skitter.brokers.nsq_client import (
    CommandRefused,
    Connection,
    ConnectionFailed,
    Consumer,
    NsqOptions,
    Producer,
)

PATIENT = NsqOptions(connect_timeout=60.0, reply_timeout=60.0)


def frame(kind: int, content: bytes) -> bytes:
    return struct.pack(">II", len(content) + 4, kind) + content


def message(body: bytes = b"body", number: int = 0) -> bytes:
    return frame(2, struct.pack(">qH16s", 0, 1, b"%016d" % number) + body)


class Peer:
    """A server for one connection at a time that sends what the test says."""

    def __init__(self) -> None:
        self.heard = b""
        self.accepted = 0
        self.drops = 0
        self.news = asyncio.Condition()
        self.greeting = frame(0, json.dumps({"version": "1.3.0", "max_rdy_count": 2500}).encode())

    async def start(self):
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def _serve(self, reader, writer):
        self.accepted += 1
        self.writer = writer
        try:
            head = await reader.readexactly(4 + 9)
            assert head == b"  V2IDENTIFY\n", head
            (size,) = struct.unpack(">I", await reader.readexactly(4))
            self.wishes = json.loads(await reader.readexactly(size))
            writer.write(self.greeting)
            if self.drops:
                self.drops -= 1
                return
            while data := await reader.read(65536):
                async with self.news:
                    self.heard += data
                    self.news.notify_all()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def wait_for_bytes(self, words: bytes) -> None:
        """Wait until the client has sent these bytes."""
        async with self.news, asyncio.timeout(60):
            await self.news.wait_for(lambda: words in self.heard)

    def send(self, *data: bytes) -> None:
        self.writer.write(b"".join(data))

    async def close(self):
        await stop_listening(self.server)
        if hasattr(self, "writer"):
            self.writer.close()


@pytest.fixture
async def peer():
    peer = await Peer().start()
    yield peer
    await peer.close()


@pytest.fixture
def received():
    """The messages that have arrived over ``connection``."""
    return asyncio.Queue()


@pytest.fixture
async def connection(peer, received):
    connection = await Connection.open("127.0.0.1", peer.port, PATIENT, on_message=received.put_nowait)
    yield connection
    connection.close()
    await connection.wait_closed()


async def test_a_missing_server_is_one_clear_error(free_port):
    with pytest.raises(ConnectionFailed, match=f"127.0.0.1:{free_port}"):
        await Connection.open("127.0.0.1", free_port, PATIENT)


async def test_a_connection_that_ends_while_the_pool_opens_is_one_clear_error(peer, monkeypatch):
    producer = Producer([("127.0.0.1", peer.port)], options=PATIENT)

    def end_at_once():
        (connection,) = producer.connections
        connection.close()

    monkeypatch.setattr(producer, "on_join", end_at_once)
    with pytest.raises(ConnectionFailed, match=f"127.0.0.1:{peer.port}"):
        await producer.open()
    await producer.close()


@pytest.mark.parametrize("answer", [frame(0, b"OK"), b"HTTP/1.1 400 Bad Request\r\n\r\n", frame(0, b"[]")])
async def test_another_server_is_one_clear_error(peer, answer):
    peer.greeting = answer
    with pytest.raises(ConnectionFailed):
        await Connection.open("127.0.0.1", peer.port, PATIENT)


async def test_a_server_that_never_answers_is_given_up_in_time(peer):
    peer.greeting = b""
    with pytest.raises(ConnectionFailed, match="no reply"):
        await Connection.open("127.0.0.1", peer.port, NsqOptions(connect_timeout=0.2))


@pytest.mark.parametrize(("wish", "word"), [({"deflate": 6}, "deflate"), ({"snappy": True}, "snappy")])
async def test_a_feature_that_the_server_lacks_is_an_error(peer, wish, word):
    with pytest.raises(ConnectionFailed, match=word):
        await Connection.open("127.0.0.1", peer.port, NsqOptions(connect_timeout=60.0, **wish))


async def test_the_error_of_a_failed_handshake_is_the_only_one(peer):
    logged = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: logged.append(context["message"]))
    peer.greeting = frame(0, json.dumps({"version": "1.3.0", "tls_v1": True}).encode())
    options = NsqOptions(tls=ssl.create_default_context(), connect_timeout=60.0)
    opening = asyncio.create_task(Connection.open("127.0.0.1", peer.port, options))
    await peer.wait_for_bytes(b"\x16\x03")  # the first message of TLS
    peer.send(b"something else")
    with pytest.raises(ConnectionFailed, match="SSL"):
        await opening
    peer.greeting = frame(0, b'{"version": "1.3.0"}')
    with pytest.raises(ConnectionFailed, match="does not offer deflate"):
        await Connection.open("127.0.0.1", peer.port, NsqOptions(deflate=6, connect_timeout=60.0))
    del opening
    gc.collect()
    assert logged == []


async def test_a_server_that_requires_a_secret_refuses_a_client_without_one(peer):
    peer.greeting = frame(0, json.dumps({"version": "1", "auth_required": True}).encode())
    with pytest.raises(CommandRefused, match="E_AUTH_FIRST"):
        await Connection.open("127.0.0.1", peer.port, PATIENT)


async def test_the_options_are_sent_in_the_handshake(peer):
    options = NsqOptions(
        connect_timeout=60.0,
        heartbeat=12.5,
        msg_timeout=90.0,
        output_buffer_timeout=0.01,
        client_id="me",
        sample_rate=7,
    )
    connection = await Connection.open("127.0.0.1", peer.port, options)
    connection.close()
    wishes = {"heartbeat_interval": 12500, "msg_timeout": 90000, "output_buffer_timeout": 10, "client_id": "me",
              "sample_rate": 7, "feature_negotiation": True}  # fmt: skip
    assert wishes.items() <= peer.wishes.items()


async def test_heartbeats_are_answered(peer, connection):
    peer.send(frame(0, b"_heartbeat_"))
    await peer.wait_for_bytes(b"NOP\n")


async def test_a_silent_server_counts_as_dead(peer):
    connection = await Connection.open(
        "127.0.0.1", peer.port, NsqOptions(connect_timeout=60.0, heartbeat=0.05)
    )
    async with asyncio.timeout(60):
        await connection.wait_closed()


async def test_answers_belong_to_calls_in_their_order(peer, connection):
    first = asyncio.create_task(connection.publish("t", [b"a"]))
    second = asyncio.create_task(connection.publish("t", [b"b"]))
    await peer.wait_for_bytes(b"b")
    peer.send(frame(0, b"OK"), frame(1, b"E_BAD_MESSAGE too big"))
    await first
    with pytest.raises(CommandRefused) as refusal:
        await second
    assert refusal.value.code == "E_BAD_MESSAGE"


async def test_a_call_whose_connection_ends_fails(peer, connection):
    call = asyncio.create_task(connection.publish("t", [b"a"]))
    await peer.wait_for_bytes(b"PUB t")
    peer.writer.close()
    with pytest.raises(ConnectionFailed):
        await call
    with pytest.raises(ConnectionFailed):
        await connection.publish("t", [b"b"])


async def test_a_call_that_is_never_answered_ends_the_connection(peer):
    connection = await Connection.open("127.0.0.1", peer.port, PATIENT)
    connection.options = NsqOptions(reply_timeout=0.1)  # not before: the handshake is answered
    with pytest.raises(ConnectionFailed, match="did not reply"):
        await connection.publish("t", [b"a"])
    await connection.wait_closed()


@pytest.mark.parametrize(
    "rubbish", [frame(7, b"x"), frame(0, b"OK"), struct.pack(">II", 1, 0), frame(2, b"short")]
)
async def test_invalid_data_ends_the_connection(peer, connection, rubbish):
    peer.send(rubbish)
    async with asyncio.timeout(60):
        await connection.wait_closed()


async def test_an_error_about_a_lost_message_keeps_the_connection_open(peer, connection):
    call = asyncio.create_task(connection.publish("t", [b"a"]))
    await peer.wait_for_bytes(b"PUB t")
    peer.send(frame(1, b"E_FIN_FAILED FIN 0123 failed ID not in flight"), frame(0, b"OK"))
    await call
    assert connection.is_open


async def test_a_message_is_answered_once(peer, connection, received):
    peer.send(message(number=5))
    one = await received.get()
    one.touch()
    one.finish()
    one.requeue(3.0)
    one.finish()
    one.touch()
    connection.allow(9)
    await peer.wait_for_bytes(b"RDY 9\n")
    assert peer.heard.replace(b"RDY 9\n", b"") == b"TOUCH %016d\nFIN %016d\n" % (5, 5)
    assert not connection.in_flight


async def test_rdy_is_sent_once_and_before_the_answers_that_make_room(peer, connection, received):
    connection.allow(3)
    await peer.wait_for_bytes(b"RDY 3\n")
    peer.send(message(number=5))
    one = await received.get()
    peer.heard = b""
    connection.allow(7)
    one.finish()
    connection.allow(0)
    await peer.wait_for_bytes(b"FIN %016d\n" % 5)
    assert peer.heard == b"RDY 0\nFIN %016d\n" % 5


async def test_a_delay_is_reduced_to_the_maximum_of_nsqd(peer, connection, received):
    peer.send(message(number=1))
    (await received.get()).requeue(1e9)
    await peer.wait_for_bytes(b"REQ %016d 3600000\n" % 1)


async def test_no_more_is_allowed_than_nsqd_allows(peer, connection):
    connection.allow(10_000)
    await peer.wait_for_bytes(b"RDY 2500\n")


async def open_consumer(peer, client_options=PATIENT, **options) -> Consumer:
    consumer = Consumer("t", "c", [("127.0.0.1", peer.port)], options=client_options, **options)
    opening = asyncio.create_task(consumer.open())
    await peer.wait_for_bytes(b"SUB t c\n")
    peer.send(frame(0, b"OK"))
    await opening
    return consumer


async def test_a_consumer_reconnects(peer):
    consumer = await open_consumer(peer, max_in_flight=3)
    await peer.wait_for_bytes(b"RDY 3\n")
    peer.heard = b""
    peer.writer.close()
    await peer.wait_for_bytes(b"SUB t c\n")
    peer.send(frame(0, b"OK"))
    await peer.wait_for_bytes(b"RDY 3\n")
    assert peer.accepted == 2
    await consumer.close()


async def test_a_consumer_reconnects_after_a_server_ended_each_handshake(peer):
    """Like a server that is being killed: no dead connection is kept, and no call waits for one."""
    consumer = await open_consumer(peer, max_in_flight=3)
    await peer.wait_for_bytes(b"RDY 3\n")
    peer.drops = 3
    peer.heard = b""
    peer.writer.close()
    await peer.wait_for_bytes(b"SUB t c\n")
    peer.send(frame(0, b"OK"))
    await peer.wait_for_bytes(b"RDY 3\n")
    assert peer.accepted == 1 + 3 + 1
    assert len(consumer.connections) == 1
    await consumer.close()


async def test_messages_of_an_ended_connection_are_not_received(peer):
    """They are delivered again; an answer to them would be lost."""
    consumer = await open_consumer(peer, max_in_flight=3)
    peer.send(message())
    await consumer.wait()
    (ended,) = consumer.connections
    peer.writer.close()
    await ended.wait_closed()
    assert consumer.waiting == 0
    assert await consumer.receive(5, timeout=0.0) == []
    await consumer.close()


async def test_closing_requeues_unanswered_messages(peer):
    consumer = await open_consumer(peer, max_in_flight=3)
    peer.send(message(number=1), message(number=2), message(number=3))
    await consumer.wait()
    first, second = await consumer.receive(2)
    first.finish()
    await consumer.close()
    await peer.wait_for_bytes(b"REQ %016d 0\n" % 3)
    assert b"REQ %016d 0\n" % 2 in peer.heard
    assert b"REQ %016d" % 1 not in peer.heard
    assert not second.is_in_flight


async def test_a_prompt_consumer_allows_one_more_message_in_a_lull_and_else_all(peer):
    consumer = await open_consumer(peer, max_in_flight=9, prompt=True)
    await peer.wait_for_bytes(b"RDY 1\n")
    peer.send(message(number=1), message(number=2))
    await peer.wait_for_bytes(b"RDY 9\nRDY 3\n")  # two are in flight
    peer.send(message(number=3))
    await peer.wait_for_bytes(b"RDY 3\nRDY 9\n")
    await consumer.close()


async def test_a_prompt_consumer_sees_the_lull_that_answers_begin(peer):
    """While no more messages may be in flight, nsqd gathers none. After an answer it does, without a notification."""
    consumer = await open_consumer(peer, max_in_flight=2, prompt=True)
    peer.send(message(number=1), message(number=2))
    await peer.wait_for_bytes(b"RDY 2\n")
    peer.heard = b""
    for one in await consumer.receive(2):
        one.finish()
    await peer.wait_for_bytes(b"RDY 1\n")
    await consumer.close()


async def test_a_producer_takes_another_nsqd_when_one_fails(peer):
    other = await Peer().start()
    producer = Producer([("127.0.0.1", peer.port), ("127.0.0.1", other.port)], options=PATIENT, timeout=60.0)
    await producer.open()
    call = asyncio.create_task(producer.publish("t", [b"a"]))
    hearing = [asyncio.create_task(one.wait_for_bytes(b"PUB t")) for one in (peer, other)]
    _, waiting = await asyncio.wait(hearing, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    asked, spare = (peer, other) if peer.heard else (other, peer)
    asked.send(frame(1, b"E_PUB_FAILED exiting"))
    await spare.wait_for_bytes(b"PUB t")
    spare.send(frame(0, b"OK"))
    await call
    await producer.close()
    await other.close()


async def test_a_producer_waits_for_a_connection_that_is_ending_to_end_and_for_the_next(peer):
    """While it retried the ending connection in a loop, no other task could run, not even that end."""
    producer = Producer([("127.0.0.1", peer.port)], options=PATIENT, timeout=60.0)
    await producer.open()
    (ending,) = producer.connections

    async def answer():
        await peer.wait_for_bytes(b"PUB t")
        peer.send(frame(0, b"OK"))

    answering = asyncio.create_task(answer())
    ending.close()
    await producer.publish("t", [b"a"])
    await answering
    assert peer.accepted == 2
    await producer.close()


async def test_nothing_is_allowed_to_a_connection_before_it_is_subscribed(peer):
    """nsqd closes a connection that sends RDY too early."""
    consumer = Consumer("t", "c", [("127.0.0.1", peer.port)], options=PATIENT, max_in_flight=3)
    opening = asyncio.create_task(consumer.open())
    await peer.wait_for_bytes(b"SUB t c\n")
    consumer.max_in_flight = 5
    await asyncio.sleep(0.05)
    assert b"RDY" not in peer.heard
    assert consumer.connections == []
    peer.send(frame(0, b"OK"))
    await opening
    await peer.wait_for_bytes(b"RDY 5\n")
    await consumer.close()


async def test_a_bad_message_is_not_tried_elsewhere(peer):
    producer = Producer([("127.0.0.1", peer.port)], options=PATIENT)
    await producer.open()
    call = asyncio.create_task(producer.publish("t", [b""]))
    await peer.wait_for_bytes(b"PUB t")
    peer.send(frame(1, b"E_BAD_MESSAGE empty"))
    with pytest.raises(CommandRefused, match="E_BAD_MESSAGE"):
        await call
    await producer.close()


async def test_many_messages_go_in_batches(peer):
    producer = Producer([("127.0.0.1", peer.port)], options=PATIENT)
    await producer.open()
    call = asyncio.create_task(producer.publish("t", [b"x"] * 1500))
    for count in (1000, 500):
        await peer.wait_for_bytes(struct.pack(">I", count) + b"\x00\x00\x00\x01x")
        peer.send(frame(0, b"OK"))
    await call
    await producer.close()


@pytest.mark.parametrize(
    ("topic", "channel"), [("no topic", "c"), ("t", "no/channel"), ("", "c"), ("t", "x" * 65)]
)
def test_bad_names_are_refused_before_anything_is_connected(topic, channel):
    with pytest.raises(CommandRefused) as error:
        Consumer(topic, channel, [("127.0.0.1", 1)])
    assert error.value.code in {"E_BAD_TOPIC", "E_BAD_CHANNEL"}


def test_the_client_imports_nothing_else_of_skitter(tests_folder):
    files = list((tests_folder.parent / "src/skitter/brokers/nsq_client").glob("*.py"))
    assert files
    for file in files:
        for line in file.read_text().splitlines():
            words = line.split()
            if words[:1] in (["from"], ["import"]) and words[1].startswith("skitter"):
                assert words[1].startswith("skitter.brokers.nsq_client"), f"{file.name}: {line}"
