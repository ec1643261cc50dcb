"""A server that is away, that has lost its last second, or whose memory is full."""

import asyncio
import logging
import sqlite3
from collections import Counter
from contextlib import closing

import pytest
import redis.asyncio

from cli_command import SHOP, skitter
from services.frontier_requests import counts, done, entries
from skitter.errors import FrontierError
from skitter.frontier.records import FetchReport, SeedProgress
from skitter.frontier.redis.address import parse_address
from skitter.frontier.redis.server import RedisServer
from skitter.testing import GeneratedSite


async def test_calls_wait_for_the_end_of_an_outage_which_is_reported_once(own_server, join, caplog):
    caplog.set_level(logging.WARNING, "skitter")
    server = own_server("--appendonly", "yes", "--appendfsync", "always")
    frontier = await join(server.url)
    await frontier.add(entries("a", "b"))
    leases = (await frontier.lease("w", 2)).leases
    server.kill()
    waiting = [
        asyncio.create_task(frontier.commit(done(*leases, entries=entries("c")))),
        asyncio.create_task(frontier.status()),
        asyncio.create_task(frontier.unknown([leases[0].fingerprint])),
    ]
    done_early, _ = await asyncio.wait(waiting, timeout=0.5)
    assert not done_early
    await asyncio.to_thread(server.start)
    assert await waiting[0] == [True, True]
    await waiting[1]
    assert await waiting[2] == [False]
    assert await counts(frontier) == {"queued": 1, "done": 2}
    messages = [record.getMessage() for record in caplog.records]
    assert sum("it does not respond" in line for line in messages) == 1
    assert sum("is back after" in line for line in messages) == 1


async def test_a_joining_worker_waits_until_the_server_is_a_primary_again(own_server, caplog):
    caplog.set_level(logging.WARNING, "skitter")
    primary, server = own_server(), own_server()
    server.ask("REPLICAOF", "127.0.0.1", primary.port)
    joining = RedisServer(parse_address(server.url))
    connecting = asyncio.create_task(joining.connect(patient=True))
    async with asyncio.timeout(60):
        while not caplog.records:
            await asyncio.sleep(0.01)
        assert "is a read-only replica" in caplog.records[0].getMessage()
        assert not connecting.done()
        server.ask("REPLICAOF", "NO", "ONE")
        await connecting
    await joining.close()


async def test_an_outage_beyond_its_timeout_is_an_error(own_server, join):
    server = own_server()
    frontier = await join(f"{server.url}?outage_timeout=0.2")
    server.kill()
    with pytest.raises(FrontierError, match=server.url) as refusal:
        await frontier.status()
    assert refusal.value.remedy


async def test_a_process_that_ends_limits_its_wait_for_the_server(own_server, join):
    server = own_server("--appendonly", "yes", "--appendfsync", "always")
    frontier = await join(server.url)
    server.kill()
    waiting = asyncio.create_task(frontier.status())
    done_early, _ = await asyncio.wait([waiting], timeout=0.3)
    assert not done_early
    frontier.limit_outages(0.2)
    async with asyncio.timeout(30):
        with pytest.raises(FrontierError, match=server.url):
            await waiting
        with pytest.raises(FrontierError, match=server.url):
            await frontier.status()
    await asyncio.to_thread(server.start)
    await frontier.notes.get("a")  # an available server is used as before


async def test_a_server_that_forgot_its_scripts_gets_them_again(own_server, join):
    server = own_server()
    frontier = await join(server.url)
    async with redis.asyncio.Redis.from_url(server.url, driver_info=None, socket_timeout=None) as client:
        await client.execute_command("SCRIPT", "FLUSH")
    assert (await frontier.add(entries("a"))).added == 1


@pytest.fixture
async def rolled_back(own_server, join):
    """A job whose server returns to the state of ``snapshot``, as after a fail-over or with a slow log."""
    server = own_server()
    frontier = await join(server.url)

    class RollBack:
        def __init__(self):
            self.frontier = frontier

        async def snapshot(self):
            async with redis.asyncio.Redis.from_url(
                server.url, driver_info=None, socket_timeout=None
            ) as client:
                await client.execute_command("SAVE")

        async def roll_back(self):
            server.kill()
            await asyncio.to_thread(server.start)

    yield RollBack()
    await frontier.close()


async def test_pages_committed_after_the_last_snapshot_are_fetched_again(rolled_back):
    frontier = rolled_back.frontier
    await frontier.add(entries("a", "b"))
    await rolled_back.snapshot()
    first, second = (await frontier.lease("w", 2)).leases
    assert await frontier.commit(done(first, entries=entries("child"), counters={"pages": 1})) == [True]
    await rolled_back.roll_back()
    assert await frontier.commit(done(second)) == [False]
    again = (await frontier.lease("w", 9)).leases
    assert sorted(lease.url[-1] for lease in again) == ["a", "b"]
    assert not {first.id, second.id} & {lease.id for lease in again}
    assert await frontier.commit(done(*again, entries=entries("child"))) == [True, True]
    assert await counts(frontier) == {"queued": 1, "done": 2}


async def test_a_setback_is_reported_with_the_first_leases_after_it(rolled_back):
    frontier = rolled_back.frontier
    await rolled_back.snapshot()
    assert not (await frontier.lease("w", 1)).data_loss
    await rolled_back.roll_back()
    assert (await frontier.lease("w", 1)).data_loss
    assert not (await frontier.lease("w", 1)).data_loss


async def test_seeds_that_were_lost_are_not_skipped(rolled_back):
    frontier = rolled_back.frontier
    claim = await frontier.claim_seeds("w")
    await frontier.add(entries("a"), SeedProgress(claim.token, 1))
    await rolled_back.snapshot()
    await frontier.add(entries("b"), SeedProgress(claim.token, 2))
    await rolled_back.roll_back()
    assert (await frontier.add(entries("c"), SeedProgress(claim.token, 3))).added == 0
    again = await frontier.claim_seeds("w")
    assert again.position == 1


async def test_while_the_memory_is_full_adding_waits_and_all_else_continues(own_server, join, caplog):
    caplog.set_level(logging.WARNING, "skitter")
    server = own_server("--maxmemory-policy", "noeviction")
    frontier = await join(server.url)
    await frontier.add(entries("a", "b", "c"))
    first, second = (await frontier.lease("w", 2)).leases
    async with redis.asyncio.Redis.from_url(server.url, driver_info=None, socket_timeout=None) as client:
        await client.config_set("maxmemory", "100kb")
        adding = asyncio.create_task(frontier.add(entries("d")))
        committing = asyncio.create_task(frontier.commit(done(first, entries=entries("e"))))
        other = await join(server.url)
        assert await other.renew("w", [first.id, second.id]) == []
        assert await other.commit(done(second)) == [True]
        assert len((await other.lease("w", 5, [FetchReport(first.id, 0.1)])).leases) == 1
        assert not adding.done()
        assert not committing.done()
        await client.config_set("maxmemory", "0")
    assert (await adding).added == 1
    assert await committing == [True]
    assert await counts(frontier) == {"queued": 2, "leased": 1, "done": 2}
    assert any("its memory is full" in record.getMessage() for record in caplog.records)


@pytest.fixture
def shop(serve, tmp_path):
    """A job that writes to a SQLite database: ``rows = shop(url)`` runs it, and returns the number of rows by URL."""
    server = serve(GeneratedSite(pages=20))
    (tmp_path / "shop.py").write_text(SHOP.format(url=server.url))

    def run(frontier, *options):
        settings = ["-s", "delay=0", "-s", "robots=no"]
        result = skitter(
            "run", "shop.py", f"--frontier={frontier}", "-o", "items.db", *settings, *options, cwd=tmp_path
        )
        assert result.returncode == 0, result.stderr
        with closing(sqlite3.connect(tmp_path / "items.db")) as file:
            return Counter(url for (url,) in file.execute("SELECT url FROM items"))

    return run


@pytest.mark.parametrize("options", [(), ("--fresh",)])
def test_a_job_that_its_server_has_lost_replaces_its_rows_in_databases(own_server, shop, options):
    server = own_server()
    rows = shop(server.url)
    assert len(rows) == 20
    server.ask("FLUSHALL")
    assert shop(server.url, *options) == rows


def test_a_fresh_start_draws_another_secret(own_server, shop):
    server = own_server()
    seeds = [
        shop(server.url, *options) and server.ask("HGET", "skitter:{shop}:job", "fingerprint_seed")
        for options in ((), ("--fresh",))
    ]
    assert seeds[0] != seeds[1]
