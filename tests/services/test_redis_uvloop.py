"""Connections that break unseen under uvloop, which workers run on and tests do not."""

import asyncio

import pytest
import uvloop

from services.frontier_requests import FREE
from services.redis_cluster import running_cluster
from services.redis_servers import running
from skitter.frontier.options import FrontierContext
from skitter.frontier.redis.cluster_frontier import RedisClusterFrontier
from skitter.frontier.redis.frontier import RedisFrontier


def on_uvloop(coroutine):
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(coroutine)


async def break_all(connections):
    """End connections as a network does: nobody has told the client."""
    for connection in connections:
        connection._writer.transport.abort()
    await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_a_cluster_call_over_a_connection_that_broke_unseen_is_made_again(kind, job_name):
    cluster = running_cluster(kind)

    async def ask():
        frontier = RedisClusterFrontier(cluster.url, FrontierContext(job_name, politeness=FREE))
        await frontier.open()
        try:
            nodes = frontier._source._cluster.client.nodes_manager.nodes_cache.values()
            await break_all([connection for node in nodes for connection in node._connections])
            return (await frontier.status()).added
        finally:
            await frontier.close()

    assert on_uvloop(ask()) == 0


def test_a_call_to_a_server_over_a_connection_that_broke_unseen_is_made_again(job_name):
    async def ask():
        frontier = RedisFrontier(running("valkey").url, FrontierContext(job_name, politeness=FREE))
        await frontier.open()
        try:
            await break_all(frontier._server.connection.client.connection_pool._available_connections)
            return (await frontier.status()).added
        finally:
            await frontier.close()

    assert on_uvloop(ask()) == 0
