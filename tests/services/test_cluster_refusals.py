"""Errors when a job on a cluster is opened, each with its remedy."""

import pytest
from redis.exceptions import ResponseError

from services.cluster_jobs import keys_of, node_of
from services.redis_servers import running
from skitter.errors import FrontierError
from skitter.frontier.options import FrontierContext
from skitter.frontier.redis.frontier import RedisFrontier
from skitter.frontier.redis.server_errors import START_SERVER
from skitter.politeness import HostLimits, LimitRule, Politeness


@pytest.mark.parametrize(
    "url",
    [
        "redis+cluster:", "redis+cluster:///", "redis+cluster://h.test/1", "redis+cluster://h.test:port/",
        "redis+cluster://h.test/?partitions=0", "redis+cluster://h.test/?partitions=many",
        "redis+cluster://h.test/?colour=red", "redis+cluster://h.test/?outage_timeout=long",
    ],
)  # fmt: skip
async def test_an_invalid_cluster_url_is_refused(url):
    from skitter.frontier.redis.cluster_frontier import RedisClusterFrontier

    with pytest.raises(FrontierError) as refusal:
        RedisClusterFrontier(url, FrontierContext("job"))
    assert "redis+cluster://" in refusal.value.remedy


async def test_a_standalone_server_is_not_a_cluster(join_cluster, job_name):
    server = running("valkey")
    with pytest.raises(FrontierError, match=f"127.0.0.1:{server.port}") as refusal:
        await join_cluster(f"redis+cluster://127.0.0.1:{server.port}/", job_name)
    assert "redis://HOST" in refusal.value.remedy


async def test_a_node_of_a_cluster_is_not_a_single_server(cluster, job_name):
    frontier = RedisFrontier(f"redis://127.0.0.1:{cluster.masters[0].port}/0", FrontierContext(job_name))
    with pytest.raises(FrontierError, match=f"127.0.0.1:{cluster.masters[0].port}") as refusal:
        await frontier.open()
    assert "redis+cluster://" in refusal.value.remedy


async def test_an_unavailable_cluster_is_reported_at_once(free_port, join_cluster, job_name):
    with pytest.raises(FrontierError, match=f"127.0.0.1:{free_port}") as refusal:
        await join_cluster(f"redis+cluster://user:hidden@127.0.0.1:{free_port}/", job_name)
    assert refusal.value.remedy == START_SERVER


async def test_one_available_node_is_enough(cluster, free_port, join_cluster, job_name):
    url = f"redis+cluster://127.0.0.1:{free_port},127.0.0.1:{cluster.replicas[1].port}/"
    await (await join_cluster(url, job_name)).status()


async def test_another_number_of_partitions_is_refused(cluster, join_cluster, job_name):
    await join_cluster(cluster.url, job_name, partitions=4)
    for other in (3, 5):
        with pytest.raises(FrontierError, match=job_name) as refusal:
            await join_cluster(cluster.url, job_name, partitions=other)
        assert refusal.value.field == "partitions"
        assert "?partitions=4" in refusal.value.remedy


async def test_rules_that_make_other_slots_are_refused_and_other_limits_are_not(
    cluster, join_cluster, job_name
):
    await join_cluster(cluster.url, job_name)
    gentler = Politeness(HostLimits(delay=5.0), [LimitRule(domain_glob="*.test", delay=9.0)])
    await join_cluster(cluster.url, job_name, politeness=gentler)
    for politeness in (
        Politeness(unit="domain"),
        Politeness(rules=[LimitRule(domain_glob="*.test", unit="rule")]),
    ):
        with pytest.raises(FrontierError, match=job_name) as refusal:
            await join_cluster(cluster.url, job_name, politeness=politeness)
        assert refusal.value.field == "partitions"


async def test_a_partition_that_was_removed_is_not_created_again(cluster, join_cluster, job_name):
    await join_cluster(cluster.url, job_name)
    node_of(cluster, job_name, 2).ask("UNLINK", keys_of(job_name, 2))
    with pytest.raises(FrontierError, match=job_name) as refusal:
        await join_cluster(cluster.url, job_name)
    assert refusal.value.field == "keys"
    assert "--fresh" in refusal.value.remedy


async def test_a_fresh_start_removes_all_data_of_a_job_with_more_partitions(cluster, join_cluster, job_name):
    from skitter.frontier.redis.cluster_frontier import RedisClusterFrontier

    await join_cluster(cluster.url, job_name, partitions=9)
    await RedisClusterFrontier(f"{cluster.url}?partitions=2", FrontierContext(job_name)).erase()
    left = [key for node in cluster.masters for key in node.ask("KEYS", f"skitter:*{job_name}*")]
    assert left == []
    await join_cluster(cluster.url, job_name, partitions=2)


async def test_the_partitions_are_distributed_over_all_nodes(cluster, join_cluster, job_name):
    await join_cluster(cluster.url, job_name, partitions=24)
    for node in cluster.masters:
        assert not isinstance(node.ask("KEYS", f"skitter:*{job_name}*"), ResponseError)
        assert node.ask("KEYS", f"skitter:*{job_name}*")
