"""The NSQ client with real nsqd and nsqlookupd."""

import asyncio
import ssl

import pytest
import trustme

from services.nsq_servers import Nsqd, NsqLookupd
from skitter.brokers.nsq_client import (
    CommandRefused,
    Connection,
    ConnectionFailed,
    Consumer,
    LookupFailed,
    NsqLookup,
    NsqOptions,
    Producer,
)

QUICK = NsqOptions(output_buffer_size=-1)
SHORT = NsqOptions(output_buffer_size=-1, msg_timeout=3.0)
TOUCHED = NsqOptions(output_buffer_size=-1, msg_timeout=6.0)
"""With a timeout that is longer than a busy machine suspends the test between two touches."""
POLLING = NsqOptions(output_buffer_size=-1, lookup_interval=0.05)


@pytest.fixture(scope="module")
def nsqd():
    server = Nsqd().start()
    yield server
    server.stop()


@pytest.fixture
def start_nsqd():
    servers = []

    def start(*options):
        servers.append(Nsqd(*options).start())
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
async def open_all():
    """Open producers and consumers that are closed with the test."""
    opened = []

    async def open_one(one):
        await one.open()
        opened.append(one)
        return one

    yield open_one
    for one in reversed(opened):
        await one.close()


@pytest.fixture
def topic(request):
    return request.node.name[:50].replace("[", "-").replace("]", "")


@pytest.fixture
def old_topic():
    """One topic for all tests of delays: nsqd checks a new channel for due messages only after up to 5 seconds."""
    return "delays"


async def collect(consumer, count, seconds=60.0):
    """Receive and finish a number of messages."""
    got = []
    async with asyncio.timeout(seconds):
        while len(got) < count:
            for message in await consumer.receive(count - len(got)):
                got.append(message.body)
                message.finish()
    return got


async def test_a_published_message_is_received_once(nsqd, topic, open_all):
    producer = await open_all(Producer([nsqd.address]))
    consumer = await open_all(Consumer(topic, "c", [nsqd.address], options=QUICK, max_in_flight=50))
    bodies = [b"%d" % number for number in range(3000)]
    await producer.publish(topic, bodies[:1])
    await producer.publish(topic, bodies[1:])
    assert sorted(await collect(consumer, 3000)) == sorted(bodies)
    assert await consumer.receive(1, timeout=0.1) == []


async def test_a_prompt_consumer_gets_few_messages_at_once_though_nsqd_gathers(nsqd, topic, open_all):
    producer = await open_all(Producer([nsqd.address]))
    gathers = NsqOptions(output_buffer_size=16384, output_buffer_timeout=30.0)
    consumer = await open_all(
        Consumer(topic, "c", [nsqd.address], options=gathers, max_in_flight=50, prompt=True)
    )
    for count in (1, 3, 40, 7, 200):
        await producer.publish(topic, [b"%d" % number for number in range(count)])
        assert len(await collect(consumer, count, seconds=15.0)) == count


async def test_no_more_than_allowed_are_in_flight(nsqd, topic, open_all):
    producer = await open_all(Producer([nsqd.address]))
    consumer = await open_all(Consumer(topic, "c", [nsqd.address], options=QUICK, max_in_flight=3))
    await producer.publish(topic, [b"x"] * 10)
    held = []
    for allowed in (3, 5):
        consumer.max_in_flight = allowed
        async with asyncio.timeout(20):
            while len(held) < allowed:
                held += await consumer.receive(10)
        assert len(held) == allowed
        assert await consumer.receive(10, timeout=0.3) == []
    held[0].finish()
    assert len(await consumer.receive(10, timeout=20.0)) == 1


async def test_a_requeued_message_comes_again_after_its_delay(nsqd, old_topic, open_all):
    producer = await open_all(Producer([nsqd.address]))
    consumer = await open_all(Consumer(old_topic, "c", [nsqd.address], options=QUICK))
    await producer.publish(old_topic, [b"x"])
    (first,) = await consumer.receive(1, 20.0)
    began = asyncio.get_running_loop().time()
    first.requeue(0.3)
    (second,) = await consumer.receive(1, 20.0)
    assert (second.body, second.attempts) == (b"x", 2)
    assert asyncio.get_running_loop().time() - began >= 0.29
    second.finish()


async def test_a_message_published_with_a_delay_comes_later(nsqd, old_topic, open_all):
    producer = await open_all(Producer([nsqd.address]))
    consumer = await open_all(Consumer(old_topic, "c", [nsqd.address], options=QUICK, max_in_flight=5))
    began = asyncio.get_running_loop().time()
    await producer.publish(old_topic, [b"late", b"later"], delay=0.3)
    assert sorted(await collect(consumer, 2)) == [b"late", b"later"]
    assert asyncio.get_running_loop().time() - began >= 0.29


async def test_a_message_published_without_a_delay_does_not_wait_for_others(nsqd, topic, open_all):
    producer = await open_all(Producer([nsqd.address]))
    consumer = await open_all(Consumer(topic, "c", [nsqd.address], options=QUICK, max_in_flight=5))
    await producer.publish(topic, [b"late"], delay=3000)
    await producer.publish(topic, [b"now"])
    assert (await collect(consumer, 1)) == [b"now"]


async def test_a_touched_message_is_kept_and_another_one_times_out(nsqd, old_topic, open_all):
    producer = await open_all(Producer([nsqd.address]))
    consumer = await open_all(Consumer(old_topic, "c", [nsqd.address], options=TOUCHED, max_in_flight=2))
    await producer.publish(old_topic, [b"kept", b"lost"])
    held = {}
    while len(held) < 2:
        held |= {message.body: message for message in await consumer.receive(2, 20.0)}
    consumer.max_in_flight = 3
    again = []
    while not again:
        held[b"kept"].touch()
        again = await consumer.receive(1, 0.3)
    assert [(message.body, message.attempts) for message in again] == [(b"lost", 2)]
    held[b"kept"].touch()
    held[b"lost"].finish()  # nsqd refuses that without closing the connection
    again[0].finish()
    held[b"kept"].finish()
    assert consumer.connections[0].is_open


async def test_the_messages_of_a_dead_client_are_delivered_to_another_after_their_timeout(
    nsqd, old_topic, open_all
):
    producer = await open_all(Producer([nsqd.address]))
    dying = Consumer(old_topic, "c", [nsqd.address], options=SHORT, max_in_flight=5)
    await dying.open()
    await producer.publish(old_topic, [b"x"])
    (held,) = await dying.receive(1, 20.0)
    held.connection._transport.abort()  # without closing the connection properly
    await dying.close()
    other = await open_all(Consumer(old_topic, "c", [nsqd.address], options=QUICK))
    (again,) = await other.receive(1, 20.0)
    assert again.attempts > held.attempts
    again.finish()


@pytest.mark.parametrize("feature", [{"deflate": 6}, {"snappy": True}], ids=["deflate", "snappy"])
async def test_compressed_connections_carry_the_same(nsqd, topic, open_all, feature):
    options = NsqOptions(output_buffer_timeout=0.025, **feature)
    producer = await open_all(Producer([nsqd.address], options=options))
    consumer = await open_all(Consumer(topic, "c", [nsqd.address], options=options, max_in_flight=20))
    bodies = [b"%d" % number * 200 for number in range(200)]
    await producer.publish(topic, bodies)
    assert sorted(await collect(consumer, 200)) == sorted(bodies)


@pytest.mark.parametrize(
    "feature", [{}, {"deflate": 1}, {"snappy": True}], ids=["plain", "deflate", "snappy"]
)
async def test_encrypted_connections_carry_the_same(start_nsqd, tmp_path, topic, open_all, feature):
    authority = trustme.CA()
    mine = authority.issue_cert("127.0.0.1")
    mine.private_key_pem.write_to_path(tmp_path / "key")
    mine.cert_chain_pems[0].write_to_path(tmp_path / "cert")
    server = start_nsqd(f"--tls-cert={tmp_path / 'cert'}", f"--tls-key={tmp_path / 'key'}", "--tls-required")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    options = NsqOptions(tls=context, output_buffer_timeout=0.025, **feature)
    producer = await open_all(Producer([server.address], options=options))
    consumer = await open_all(Consumer(topic, "c", [server.address], options=options, max_in_flight=20))
    bodies = [b"%d" % number * 100 for number in range(100)]
    await producer.publish(topic, bodies)
    assert sorted(await collect(consumer, 100)) == sorted(bodies)
    with pytest.raises(ConnectionFailed):  # no authority has signed the server's certificate
        await Connection.open(*server.address, NsqOptions(tls=ssl.create_default_context()))


async def test_a_server_without_tls_gets_no_plain_connection(nsqd):
    with pytest.raises(ConnectionFailed, match="TLS"):
        await Connection.open(*nsqd.address, NsqOptions(tls=ssl.create_default_context()))


async def test_a_name_that_nsqd_refuses_is_an_error_with_its_code(nsqd):
    connection = await Connection.open(*nsqd.address)
    with pytest.raises(CommandRefused) as refusal:
        await connection.publish("no/topic", [b"x"])
    assert refusal.value.code.startswith("E_")
    await connection.wait_closed()


async def test_messages_in_flight_can_be_finished_after_a_stop(nsqd, topic, open_all):
    producer = await open_all(Producer([nsqd.address]))
    got = asyncio.Queue()
    connection = await Connection.open(*nsqd.address, QUICK, on_message=got.put_nowait)
    await connection.subscribe(topic, "c")
    connection.allow(1)
    await producer.publish(topic, [b"a", b"b"])
    message = await got.get()
    await connection.stop()
    message.finish()
    connection.close()
    await connection.wait_closed()
    other = await open_all(Consumer(topic, "c", [nsqd.address], options=QUICK))
    assert await collect(other, 1) == [b"b"]
    assert await other.receive(1, 0.2) == []


async def test_producer_and_consumer_come_back_after_nsqd_was_killed(start_nsqd, topic, open_all):
    server = start_nsqd("--mem-queue-size=0")
    producer = await open_all(Producer([server.address]))
    consumer = await open_all(Consumer(topic, "c", [server.address], options=QUICK, max_in_flight=5))
    await producer.publish(topic, [b"before"])
    assert await collect(consumer, 1) == [b"before"]
    await asyncio.to_thread(server.kill)
    publishing = asyncio.create_task(producer.publish(topic, [b"after"]))
    await asyncio.to_thread(server.start)
    await publishing
    while await collect(consumer, 1) != [b"after"]:
        pass  # nsqd may send the first message again: it was killed before it could record the end


async def test_several_nsqd_are_found_by_nsqlookupd_and_their_messages_shared_out(
    start_nsqd, topic, open_all
):
    lookupd = await asyncio.to_thread(lambda: NsqLookupd().start())
    try:
        names = f"--lookupd-tcp-address=127.0.0.1:{lookupd.port}"
        servers = [await asyncio.to_thread(start_nsqd, names) for _ in range(2)]
        lookup = NsqLookup("127.0.0.1", lookupd.http_port)
        await asyncio.to_thread(lookupd.wait_for_nodes, len(servers))
        producer = await open_all(Producer(lookups=[lookup]))
        assert len(producer.connections) == 2
        assert await lookup.producers(topic) == []
        consumer = await open_all(Consumer(topic, "c", lookups=[lookup], options=POLLING, max_in_flight=4))
        for number in range(4):
            await producer.publish(topic, [b"%d" % number])
        assert sorted(await collect(consumer, 4)) == [b"0", b"1", b"2", b"3"]
        assert len(consumer.connections) == len(servers)
        assert sorted(await lookup.producers(topic)) == sorted(server.address for server in servers)
    finally:
        lookupd.stop()


async def test_one_message_in_flight_is_shared_by_two_nsqd(start_nsqd, topic, open_all):
    """If the limit is smaller than the number of connections, they take turns, so that none starves."""
    addresses = [(await asyncio.to_thread(start_nsqd)).address for _ in range(2)]
    for number, address in enumerate(addresses):
        producer = await open_all(Producer([address]))
        await producer.publish(topic, [b"%d" % number])
    consumer = await open_all(Consumer(topic, "c", addresses, options=QUICK, max_in_flight=1))
    assert sorted(await collect(consumer, 2)) == [b"0", b"1"]


async def test_a_missing_lookupd_is_one_clear_error(free_port):
    consumer = Consumer("t", "c", lookups=[NsqLookup("127.0.0.1", free_port)])
    with pytest.raises(LookupFailed, match=f"nsqlookupd 127.0.0.1:{free_port}"):
        await consumer.open()


async def test_a_missing_lookupd_does_no_harm_if_nsqd_are_named(nsqd, topic, open_all, free_port):
    nobody = NsqLookup("127.0.0.1", free_port)
    producer = await open_all(Producer([nsqd.address], [nobody]))
    consumer = await open_all(Consumer(topic, "c", [nsqd.address], [nobody], QUICK))
    await producer.publish(topic, [b"x"])
    assert await collect(consumer, 1) == [b"x"]
