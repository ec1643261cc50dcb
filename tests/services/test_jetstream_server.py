"""The JetStream broker against a real NATS server that loses its streams."""

import asyncio
import shutil

import nats
import nats.js.errors
import pytest

from services.nats_servers import NatsServer
from skitter.brokers.address import parse_address
from skitter.brokers.contract import OutgoingMessage
from skitter.brokers.jetstream import RULES, JetStreamBroker


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
