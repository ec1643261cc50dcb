"""Tests with a real Kvrocks, if ``SKITTER_TEST_KVROCKS`` is its path: differences from Redis, and kills during scripts."""

import asyncio
import logging
import random
import shutil

import pytest

from cli_command import usage_error
from services.frontier_requests import counts, done, entries
from services.redis_servers import PASSWORD, server_of
from services.relay import Relay
from skitter.errors import FrontierError
from skitter.frontier.records import JobState, SeedProgress

PAGES = 1_000


@pytest.fixture
def start():
    """Start a server that the test may stop or kill."""
    started = []

    def start_one(*options):
        started.append(server_of("kvrocks", *options).start())
        return started[-1]

    yield start_one
    for server in started:
        server.stop()


async def test_nothing_is_lost_or_duplicated_while_the_server_is_killed_in_the_middle_of_scripts(start, join):
    rng = random.Random(11)
    server = start()
    frontier = await join(server.url, lease_seconds=2)
    claim = await frontier.claim_seeds("w")
    await frontier.add(entries(0), SeedProgress(claim.token, 1, done=True))
    accepted = [0]

    async def work(name):
        while (answer := await frontier.lease(name, 5)).state is not JobState.FINISHED:
            outcomes = []
            for lease in answer.leases:
                number = int(lease.url.rpartition("/")[2])
                children = entries(*(n for n in (2 * number + 1, 2 * number + 2) if n < PAGES))
                outcomes += done(lease, entries=children, counters={"pages": 1})
            if outcomes:
                committed = await frontier.commit(outcomes)
                accepted[0] += sum(committed)

    workers = [asyncio.create_task(work(name)) for name in ("one", "other")]
    kills = 0
    while not all(worker.done() for worker in workers):
        await asyncio.wait(workers, timeout=rng.uniform(0.05, 0.4))
        server.kill()
        kills += 1
        await asyncio.to_thread(server.start)
    await asyncio.gather(*workers)
    assert kills >= 3
    assert accepted == [PAGES]
    assert (await frontier.status()).counters["pages"] == PAGES
    assert await counts(frontier) == {"done": PAGES}


async def test_pages_whose_machine_had_not_written_them_are_fetched_again(start, join, tmp_path):
    server = start()
    frontier = await join(server.url)
    await frontier.add(entries("a", "b"))
    server.kill()
    shutil.copytree(server.folder / "db", tmp_path / "db")
    await asyncio.to_thread(server.start)
    first, second = (await frontier.lease("w", 2)).leases
    assert await frontier.commit(done(first, entries=entries("child"))) == [True]
    server.kill()
    shutil.rmtree(server.folder / "db")
    shutil.copytree(tmp_path / "db", server.folder / "db")
    await asyncio.to_thread(server.start)
    assert await frontier.commit(done(second)) == [False]
    again = await frontier.lease("w", 9)
    assert again.data_loss
    assert sorted(lease.url[-1] for lease in again.leases) == ["a", "b"]
    assert await frontier.commit(done(*again.leases, entries=entries("child"))) == [True, True]
    assert await counts(frontier) == {"queued": 1, "done": 2}


async def test_a_reconnection_is_not_taken_for_a_restart_of_the_server(start, join):
    server = start()
    async with Relay(server.port) as relay:
        frontier = await join(relay.url)
        for _ in range(20):
            await relay.cut()
            await frontier.status()
        assert not (await frontier.lease("w", 1)).data_loss
        await frontier.close()


async def test_it_has_a_password_and_no_users(start, join):
    server = start("--requirepass", PASSWORD)
    place = server.url.removeprefix("redis://")
    secret = PASSWORD.replace(" ", "%20")
    frontier = await join(f"redis://:{secret}@{place}")
    assert (await frontier.add(entries("a"))).added == 1
    for user in ("", ":wrong@", f"nobody:{secret}@"):
        with pytest.raises(FrontierError, match=place) as refusal:
            await join(f"redis://{user}{place}")
        assert refusal.value.field == "password"


async def test_namespaces_are_separate(start, join):
    server = start("--requirepass", PASSWORD, "--repl-namespace-enabled", "yes")
    place = server.url.removeprefix("redis://")
    owner = await join(f"redis://:{PASSWORD.replace(' ', '%20')}@{place}")
    await owner.add(entries("a"))
    await owner.job.command("NAMESPACE", "ADD", "other", "token")
    elsewhere = await join(f"redis://:token@{place}")
    assert await counts(elsewhere) == {}
    await elsewhere.add(entries("a", "b"))
    assert await counts(owner) == {"queued": 1}


async def test_a_replica_is_refused_and_its_primary_named(start, join):
    primary = start()
    replica = start("--slaveof", f"127.0.0.1 {primary.port}")
    with pytest.raises(FrontierError, match=replica.url) as refusal:
        await join(replica.url)
    assert f"127.0.0.1:{primary.port}" in refusal.value.remedy


def test_a_numbered_database_is_refused_in_one_line(start, tmp_path):
    url = f"{start().url.removesuffix('/0')}/3"
    line = usage_error("top", f"--frontier={url}", cwd=tmp_path)
    assert "has no numbered databases" in line
    assert "namespace" in line


async def test_its_jobs_are_listed(start, join):
    server = start()
    frontier = await join(server.url)
    await frontier.add(entries("a"))
    assert await type(frontier)(server.url, "any").catalog.jobs() == [frontier.job.name]


async def test_an_outage_is_waited_for_and_reported_once(start, join, caplog):
    caplog.set_level(logging.WARNING, "skitter")
    server = start("--appendfsync", "always")
    frontier = await join(server.url)
    await frontier.add(entries("a"))
    server.kill()
    adding = asyncio.create_task(frontier.add(entries("b")))
    done_early, _ = await asyncio.wait([adding], timeout=0.5)
    assert not done_early
    await asyncio.to_thread(server.start)
    assert (await adding).added == 1
    assert await counts(frontier) == {"queued": 2}
    said = [record.getMessage() for record in caplog.records]
    assert sum("it does not respond" in line for line in said) == 1
    assert sum("is back after" in line for line in said) == 1
