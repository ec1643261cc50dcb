"""The JetStream broker against a real NATS server that loses its streams."""

import asyncio
import shutil
from urllib.parse import quote

import nats
import nats.js.errors
import pytest

from services.nats_servers import NatsServer
from skitter.brokers.address import parse_address
from skitter.brokers.contract import OutgoingMessage
from skitter.brokers.jetstream import RULES, JetStreamBroker
from skitter.errors import FrontierError


@pytest.fixture
def server():
    server = NatsServer().start()
    yield server
    server.stop()


@pytest.fixture
async def broker(server):
    url = f"nats://127.0.0.1:{server.port}/pages?state=sqlite:"
    broker = JetStreamBroker(parse_address(url, "job", RULES), 60.0)
    await broker.open()
    broker.allow(10)
    yield broker
    await broker.close()


async def bodies(broker, count):
    found = []
    while len(found) < count:
        await broker.wait(1.0)
        for delivery in broker.receive():
            found.append(delivery.body)
            delivery.finish()
    return found


async def exists(server):
    """Return whether the stream and its consumer exist."""
    client = await nats.connect(f"nats://127.0.0.1:{server.port}")
    try:
        await client.jetstream(timeout=60).consumer_info("pages", "job")
    except nats.js.errors.Error:
        return False
    finally:
        await client.close()
    return True


@pytest.mark.parametrize("first", ["publish", "receive"])
async def test_a_server_that_has_lost_its_streams_gets_them_again(server, broker, first):
    async with asyncio.timeout(60):
        await broker.publish([OutgoingMessage(b"a")])
        assert await bodies(broker, 1) == [b"a"]
        server.kill()
        shutil.rmtree(server.folder / "store")
        server.start()
        if first == "receive":
            while not await exists(server):
                await asyncio.sleep(0.1)
        await broker.publish([OutgoingMessage(b"b")])
        assert await bodies(broker, 1) == [b"b"]


@pytest.mark.parametrize(
    ("options", "secret"),
    [(("--user", "me", "--pass", "a/b?c#d@e:f"), "me:a/b?c#d@e:f"), (("--auth", "a/b?c#d@e"), "a/b?c#d@e")],
    ids=["user and password", "token"],
)
async def test_a_password_or_a_token_may_contain_any_character(options, secret):
    server = NatsServer(*options).start()
    url = f"nats://{quote(secret, safe=':')}@127.0.0.1:{server.port}/pages?state=sqlite:"
    broker = JetStreamBroker(parse_address(url, "job", RULES), 60.0)
    try:
        await broker.open()
        await broker.publish([OutgoingMessage(b"a")])
    finally:
        await broker.close()
        server.stop()


def test_the_address_of_a_server_may_be_an_ipv6_address():
    broker = JetStreamBroker(parse_address("nats://[::1]:5222/pages?state=sqlite:", "job", RULES), 60.0)
    assert broker._servers == ["nats://[::1]:5222"]


async def test_a_message_larger_than_the_server_allows_is_an_error_at_once(tmp_path):
    config = tmp_path / "nats.conf"
    await asyncio.to_thread(config.write_text, "max_payload: 1024\n")
    server = NatsServer("--config", str(config)).start()
    url = f"nats://127.0.0.1:{server.port}/pages?state=sqlite:"
    broker = JetStreamBroker(parse_address(url, "job", RULES), 60.0)
    try:
        await broker.open()
        with pytest.raises(FrontierError, match="maximum payload"):
            await broker.publish([OutgoingMessage(bytes(2000))])
    finally:
        await broker.close()
        server.stop()


@pytest.mark.parametrize("access", ["", "me:wrong@"])
async def test_a_wrong_password_is_an_error_at_once(access):
    server = NatsServer("--user", "me", "--pass", "right").start()
    url = f"nats://{access}127.0.0.1:{server.port}/pages?state=sqlite:"
    broker = JetStreamBroker(parse_address(url, "job", RULES), 60.0)
    try:
        with pytest.raises(
            FrontierError, match="cannot use the broker"
        ) as refusal:  # or the connection is reset
            await broker.open()
        assert "password" in refusal.value.remedy
    finally:
        server.stop()


async def test_a_server_that_is_gone_does_not_keep_the_others_from_being_used(server, free_port):
    url = f"nats://127.0.0.1:{free_port},127.0.0.1:{server.port}/pages?state=sqlite:"
    for _ in range(4):  # the client tries the servers in random order
        broker = JetStreamBroker(parse_address(url, "job", RULES), 60.0)
        await broker.open()
        await broker.close()
