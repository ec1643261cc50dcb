"""A job on a cluster as users see it: found by its name, controlled while it runs, and fed from outside."""

import pytest

from services.cluster_jobs import PARTITIONS, host_in, keys_of, node_of
from services.frontier_requests import FREE, counts, done, entries
from skitter.errors import FrontierError
from skitter.frontier.contract import NoSuchJob
from skitter.frontier.options import FrontierContext, FrontierSettings, SettingsChanges
from skitter.frontier.records import FetchReport, JobState, SeedProgress
from skitter.frontier.redis.cluster_frontier import RedisClusterFrontier
from skitter.frontier.stats import StatsDimension, StatsRow
from skitter.politeness import HostLimits, Politeness
from skitter.run.job_access import jobs_on


@pytest.fixture
async def attach(cluster):
    """Attach to a job by its name alone."""
    opened = []

    async def attach_to(job):
        frontier = RedisClusterFrontier(cluster.url, FrontierContext(job, attach=True))
        opened.append(frontier)
        await frontier.open()
        return frontier

    yield attach_to
    for frontier in opened:
        await frontier.close()


async def test_a_job_is_found_with_all_its_partitions_by_its_name_alone(
    cluster, join_cluster, attach, job_name
):
    frontier = await join_cluster(cluster.url, job_name, partitions=5, max_pages=3)
    await frontier.add([e for n in range(PARTITIONS) for e in entries("a", "b", host=host_in(n))])
    found = await attach(job_name)
    assert await counts(found) == {"queued": 12}
    leases = (await found.lease("w", 10)).leases
    assert len(leases) == 3
    await found.commit(done(*leases, counters={"pages": 1}))
    assert (await frontier.status()).reason == "3 pages"
    assert job_name in [folder.job for folder in await jobs_on(cluster.url)]


async def test_a_job_that_has_lost_a_partition_is_not_taken_for_one_that_was_never_started(
    cluster, join_cluster, attach, job_name
):
    await join_cluster(cluster.url, job_name)
    node_of(cluster, job_name, 2).ask("UNLINK", keys_of(job_name, 2))
    with pytest.raises(FrontierError, match=job_name) as refusal:
        await attach(job_name)
    assert refusal.value.field == "keys"


async def test_a_job_that_was_never_started_is_not_created_by_reading_it(cluster, attach, job_name):
    with pytest.raises(NoSuchJob, match=job_name):
        await attach(job_name)
    assert job_name not in await RedisClusterFrontier(cluster.url, FrontierContext("none")).catalog.jobs()


async def test_a_run_without_a_number_of_partitions_takes_those_of_the_job(cluster, join_cluster, job_name):
    await join_cluster(cluster.url, job_name, partitions=3)
    frontier = RedisClusterFrontier(cluster.url, FrontierContext(job_name, politeness=FREE))
    await frontier.open()
    assert frontier.partitions.of_lease(10) == 10 % 3
    await frontier.close()


async def test_a_changed_limit_holds_for_workers_that_were_there_before(cluster, join_cluster, job_name):
    one, other = [await join_cluster(cluster.url, job_name) for _ in range(2)]
    await one.add([e for n in range(PARTITIONS) for e in entries("a", "b", host=host_in(n))])
    await one.commit(done(*(await one.lease("w", 4)).leases, counters={"pages": 1}))
    await other.control.change_settings(SettingsChanges({"max_pages": 4}))
    answers = [await one.lease("w", 4) for _ in range(2)]
    assert (answers[-1].state, answers[-1].reason) == (JobState.STOPPING, "4 pages")
    await other.control.change_settings(SettingsChanges({"max_pages": None}))
    assert (await one.lease("w", 4)).state is JobState.RUNNING


async def test_a_change_that_did_not_reach_all_partitions_is_completed_when_the_job_is_opened(
    cluster, join_cluster, job_name
):
    frontier = await join_cluster(cluster.url, job_name)
    # The caller dies after it has changed the first partition.
    await frontier._partitions.first.frontier.control.change_settings(
        SettingsChanges({"concurrency_per_slot": 1})
    )
    later = await join_cluster(cluster.url, job_name)
    await later.add(entries("a", "b", host=host_in(3)))
    assert len((await later.lease("w", 10)).leases) == 1


async def test_the_counts_of_a_worker_are_the_sum_over_all_partitions(cluster, join_cluster, job_name):
    frontier = await join_cluster(cluster.url, job_name)
    await frontier.add([e for n in range(PARTITIONS) for e in entries("a", host=host_in(n))])
    await frontier.commit(done(*(await frontier.lease("w", 10)).leases, counters={"pages": 1, "items": 2}))
    assert await frontier.reports.stats(StatsDimension.WORKER) == [StatsRow("w", pages=6, items=12)]
    assert len(await frontier.reports.stats(StatsDimension.HOST)) == PARTITIONS


async def test_seeds_from_a_key_beside_the_head_of_the_job_go_to_all_partitions(
    cluster, join_cluster, job_name
):
    key = f"{{{job_name}/0}}:seeds"
    frontier = await join_cluster(cluster.url, job_name, seed_keys=(key,))
    claim = await frontier.claim_seeds("w")
    await frontier.add([], SeedProgress(claim.token, 0, done=True))
    node_of(cluster, job_name, 0).ask("LPUSH", key, "one", "two")
    assert (await frontier.status()).state is JobState.RUNNING
    await frontier.seed_keys.take("dead", 10)
    await frontier.abandon("dead")
    batch = await frontier.seed_keys.take("w", 10)
    assert [seed.value for seed in batch.seeds] == [b"one", b"two"]
    found = [e for n in range(PARTITIONS) for e in entries("seed", host=host_in(n))]
    assert await frontier.seed_keys.settle(batch.token, found, [])
    assert not await frontier.seed_keys.settle(batch.token, found, [])
    assert await counts(frontier) == {"queued": PARTITIONS}


@pytest.mark.parametrize("options", [{"seed_keys": ("somewhere:seeds",)}, {"group_counter_prefix": "tasks:"}])
async def test_seed_keys_on_other_nodes_are_refused(cluster, job_name, options):
    context = FrontierContext(job_name, politeness=FREE, options=FrontierSettings(**options))
    frontier = RedisClusterFrontier(cluster.url, context)
    with pytest.raises(FrontierError) as refusal:
        await frontier.open()
    assert refusal.value.field in options


async def test_a_host_with_a_delay_stays_with_one_worker_of_the_cluster(cluster, join_cluster, job_name):
    now = [1_700_000_000.0]
    polite = Politeness(HostLimits(delay=5.0))
    one, other = [await join_cluster(cluster.url, job_name, polite, clock=lambda: now[0]) for _ in range(2)]
    await one.add([entry for n in range(PARTITIONS) for entry in entries("a", "b", host=host_in(n))])
    leases = (await one.lease("one", 100)).leases
    assert len(leases) == PARTITIONS
    await one.lease("one", 0, [FetchReport(lease.id, 0.1) for lease in leases])
    await one.commit(done(*leases))
    now[0] += 5.0
    assert (await other.lease("other", 100)).leases == []
    assert len((await one.lease("one", 100)).leases) == PARTITIONS
