"""Jobs on real Valkey and Redis servers, and servers that a test may stop or kill."""

import uuid

import pytest
import redis.asyncio

from services.cluster_jobs import PARTITIONS
from services.frontier_requests import FREE
from services.redis_cluster import ClusterServers, running_cluster
from services.redis_servers import KVROCKS, RedisServer, running
from skitter.frontier.options import FrontierContext, FrontierSettings
from skitter.frontier.redis.cluster_frontier import RedisClusterFrontier
from skitter.frontier.redis.frontier import RedisFrontier

collect_ignore = [] if KVROCKS else ["test_kvrocks_server.py"]


@pytest.fixture(params=["valkey", "redis"])
def kind(request):
    return request.param


@pytest.fixture
def server(kind):
    return running(kind)


@pytest.fixture
def own_server(kind):
    """Start a server that the test may stop or kill."""
    started = []

    def start(*options) -> RedisServer:
        started.append(RedisServer(kind, *options).start())
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture
async def join():
    """Open a frontier: ``frontier = await join(url)``; a second call joins the same job."""
    name = f"job{uuid.uuid4().hex}"
    opened = []

    async def open_one(url, politeness=FREE, clock=None, **options) -> RedisFrontier:
        context = FrontierContext(name, politeness=politeness, options=FrontierSettings(**options))
        frontier = RedisFrontier(url, context, clock=clock)
        opened.append(frontier)
        await frontier.open()
        return frontier

    yield open_one
    for frontier in opened:
        await frontier.close()


@pytest.fixture
async def ask(server):
    """Send commands to the server directly."""
    async with redis.asyncio.Redis.from_url(
        server.url, protocol=2, socket_timeout=None, driver_info=None
    ) as client:
        yield client


@pytest.fixture
def cluster():
    return running_cluster("valkey")


@pytest.fixture
def own_cluster(kind):
    """Start a cluster that the test may stop or kill."""
    started = []

    def start(*options, **more) -> ClusterServers:
        started.append(ClusterServers(kind, *options, **more))
        return started[-1].start()

    yield start
    for servers in started:
        servers.stop()


@pytest.fixture
async def join_cluster():
    """Open a frontier on a cluster: ``frontier = await join_cluster(url)``; a second call joins the same job."""
    opened = []

    async def open_one(
        url, job, politeness=FREE, clock=None, partitions=PARTITIONS, **options
    ) -> RedisClusterFrontier:
        context = FrontierContext(job, politeness=politeness, options=FrontierSettings(**options))
        frontier = RedisClusterFrontier(f"{url}?partitions={partitions}", context, clock=clock)
        await frontier.open()
        opened.append(frontier)
        return frontier

    yield open_one
    for frontier in opened:
        await frontier.close()


@pytest.fixture
def job_name():
    return f"job{uuid.uuid4().hex}"
