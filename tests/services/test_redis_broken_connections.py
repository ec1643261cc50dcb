"""Connections that break unnoticed, on uvloop, which workers use, and on asyncio's event loop, which embedding programs use."""

import asyncio

import pytest
import uvloop

from services.frontier_requests import FREE
from services.redis_cluster import running_cluster
from services.redis_servers import running
from skitter.frontier.options import FrontierContext
from skitter.frontier.redis.cluster_frontier import RedisClusterFrontier
from skitter.frontier.redis.frontier import RedisFrontier


@pytest.fixture(params=[uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def run(request):
    """Run a coroutine to its end in its own event loop."""
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner.run


@pytest.fixture(params=["abort", "close"])
def break_all(request):
    """Break connections like a network or a server that ends: the client is not notified."""

    async def end(connections):
        for connection in connections:
            getattr(connection._writer.transport, request.param)()
        await asyncio.sleep(0.01)

    return end


@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_a_cluster_call_over_a_connection_that_broke_unseen_is_made_again(kind, job_name, run, break_all):
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

    assert run(ask()) == 0


def test_a_call_to_a_server_over_a_connection_that_broke_unseen_is_made_again(job_name, run, break_all):
    async def ask():
        frontier = RedisFrontier(running("valkey").url, FrontierContext(job_name, politeness=FREE))
        await frontier.open()
        try:
            await break_all(frontier._server.connection.client.connection_pool._available_connections)
            return (await frontier.status()).added
        finally:
            await frontier.close()

    assert run(ask()) == 0
