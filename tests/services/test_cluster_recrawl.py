"""A pass starts in the first partition, and the others follow: no request is lost or added twice in between."""

import pytest

from services.cluster_jobs import eventually, finish_all, host_in
from services.frontier_requests import counts, done, entries
from skitter.frontier.records import JobState, SeedProgress

HERE, THERE = 1, 2


async def load_seeds(frontier, *seeds):
    claim = await frontier.claim_seeds("seeder")
    await frontier.add(seeds, SeedProgress(claim.token, claim.position + len(seeds), done=True))


@pytest.fixture
def pages():
    """The pages of the first pass: one in each of two partitions."""
    return [*entries("old", host=host_in(HERE)), *entries("old", host=host_in(THERE))]


@pytest.fixture
async def workers(cluster, join_cluster, job_name, pages):
    """The frontier of a process that starts the second pass, and one of a process that is not notified."""
    first, second = [await join_cluster(cluster.url, job_name) for _ in range(2)]
    await load_seeds(first, *pages)
    assert len(await finish_all(first)) == 2
    await eventually(lambda: is_finished(first))
    return first, second


async def is_finished(frontier):
    return (await frontier.status()).state is JobState.FINISHED


async def begin_in_the_first_partition(frontier):
    """Start a pass like a process that is interrupted before the other partitions follow."""
    assert await frontier._partitions.first.frontier.control.recrawl()


async def follow(frontier):
    """Complete an interrupted recrawl."""
    first, *others = (client.partition for client in frontier._partitions.clients)
    for partition in others:
        await partition.follow_recrawl(first.job.recrawls)


@pytest.mark.parametrize("state", ["queued", "delayed", "leased"])
async def test_a_request_that_is_added_before_its_partition_follows_is_added_once(workers, state):
    recrawling, unaware = workers
    new = entries("new", host=host_in(HERE), delay=3600.0 if state == "delayed" else 0.0)
    await begin_in_the_first_partition(recrawling)
    assert (await unaware.add(new)).added == 1
    if state == "leased":
        assert len((await unaware.lease("w", 1)).leases) == 1
    await follow(recrawling)
    assert (await unaware.add(new)).added == 0
    assert await counts(recrawling) == {state: 1, "done": 2}


async def test_many_requests_that_are_added_before_their_partition_follows_are_added_once(workers):
    recrawling, unaware = workers
    new = entries(*range(1_700), host=host_in(HERE))
    await begin_in_the_first_partition(recrawling)
    assert (await unaware.add(new)).added == len(new)
    await follow(recrawling)
    assert (await unaware.add(new)).known == len(new)


async def test_seeds_are_not_lost_if_another_process_loads_them_before_the_partitions_follow(workers, pages):
    recrawling, unaware = workers
    await begin_in_the_first_partition(recrawling)
    await load_seeds(unaware, *pages)
    assert await counts(unaware) == {"queued": 2, "done": 2}
    await follow(recrawling)
    assert (await unaware.add(pages)).known == 2


async def test_links_to_a_partition_that_has_not_followed_are_not_lost(workers, pages):
    recrawling, unaware = workers
    await begin_in_the_first_partition(recrawling)
    await recrawling.add(entries("parent", host=host_in(0)))
    (lease,) = (await unaware.lease("w", 1)).leases
    assert await unaware.commit(done(lease, entries=pages)) == [True]
    assert await counts(unaware) == {"queued": 2, "done": 3}


async def test_links_of_a_page_leased_before_its_partition_followed_are_not_lost(workers, pages):
    recrawling, unaware = workers
    await begin_in_the_first_partition(recrawling)
    await unaware.add(entries("parent", host=host_in(HERE)))
    (lease,) = (await unaware.lease("w", 1)).leases
    here = recrawling._partitions.clients[HERE].partition
    await here.follow_recrawl(1)
    unaware._partitions.first.job.recrawls = 0  # as if no other partition had reported the pass
    assert await unaware.commit(done(lease, entries=pages)) == [True]
    assert await counts(unaware) == {"queued": 2, "done": 3}


async def test_requests_left_in_an_outbox_are_delivered_to_a_partition_that_has_not_followed(workers, pages):
    recrawling, unaware = workers
    await begin_in_the_first_partition(recrawling)
    await recrawling.add(entries("parent", host=host_in(0)))
    (lease,) = (await recrawling.lease("w", 1)).leases
    sent = recrawling.forwarder.send
    recrawling.forwarder.send = lambda found: skip_delivery()
    await recrawling.commit(done(lease, entries=pages))
    recrawling.forwarder.send = sent
    await recrawling.close()
    await unaware.forwarder.redeliver(unaware._partitions.clients[0], 0.0)
    assert await counts(unaware) == {"queued": 2, "done": 3}


async def skip_delivery():
    """Deliver nothing, like a process that dies after its commit."""


async def test_a_request_without_deduplication_stays_unknown(workers):
    recrawling, unaware = workers
    await begin_in_the_first_partition(recrawling)
    await unaware.add(entries("new", host=host_in(HERE), dedup=False))
    await follow(recrawling)
    assert (await unaware.add(entries("new", host=host_in(HERE)))).added == 1


async def keys_of_home(frontier):
    """Return the keys of the first partition as its server stores them."""
    job = frontier._partitions.first.job
    return {key: await job.command("DUMP", key) for key in job.keys}


async def fail_over(frontier, before):
    """Restore an earlier state of the first partition, like a replica that replaces its master."""
    job = frontier._partitions.first.job
    for key, value in before.items():
        if value is None:
            await job.command("DEL", key)
        else:
            await job.command("RESTORE", key, 0, value, "REPLACE")


@pytest.mark.parametrize("opened", ["before", "after"])
async def test_a_pass_after_one_that_a_fail_over_has_undone_forgets_what_that_one_has_visited(
    workers, pages, cluster, join_cluster, job_name, opened
):
    recrawling, unaware = workers
    before = await keys_of_home(recrawling)
    assert await recrawling.control.recrawl()
    await recrawling.add(pages[:1])
    await fail_over(recrawling, before)
    assert await finish_all(recrawling) == [pages[0].url]
    await eventually(lambda: is_finished(unaware))
    frontier = unaware if opened == "before" else await join_cluster(cluster.url, job_name)
    assert await frontier.control.recrawl()
    await load_seeds(frontier, *pages)
    assert sorted(await finish_all(frontier)) == sorted(page.url for page in pages)


async def test_a_link_of_the_last_pass_is_new_to_a_partition_that_has_not_followed(workers, pages):
    recrawling, unaware = workers
    await begin_in_the_first_partition(recrawling)
    await load_seeds(unaware)
    fingerprints, slots = [page.fingerprint for page in pages], [page.slot for page in pages]
    assert await unaware.partitions.unknown(fingerprints, slots) == [True, True]
