"""What the contract does not say of a frontier on a server: lost answers, outages, setbacks, a full memory."""

import asyncio
import hashlib
import logging
import random
import uuid

import pytest
import redis.asyncio
from services.redis_servers import PASSWORD, RedisServer, running
from services.relay import Relay

from skitter.errors import FrontierError
from skitter.frontier.base import Entry, FrontierOptions, JobState, Landing, Outcome, Resolution, SeedMark
from skitter.frontier.redis.frontier import RedisFrontier
from skitter.frontier.redis.keys import keys_of
from skitter.politeness import LimitRule, Politeness, SlotPolicy

FREE = Politeness(SlotPolicy(delay=0.0, parallelism=1000))


@pytest.fixture(params=["valkey", "redis"])
def kind(request):
    return request.param


@pytest.fixture
def server(kind):
    return running(kind)


@pytest.fixture
def own_server(kind):
    """Start a server that the test may hurt."""
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

    async def open_one(url, politeness=FREE, **options) -> RedisFrontier:
        frontier = RedisFrontier(url, name, politeness, FrontierOptions(**options))
        opened.append(frontier)
        await frontier.open()
        return frontier

    yield open_one
    for frontier in opened:
        await frontier.close()


@pytest.fixture
async def ask(server):
    """Ask the server itself."""
    async with redis.asyncio.Redis.from_url(server.url, protocol=2, socket_timeout=None, driver_info=None) as client:
        yield client


def entries(*names, host="h.test", **fields) -> list[Entry]:
    urls = [f"http://{host}/{name}" for name in names]
    keys = [hashlib.blake2b(url.encode(), digest_size=16).digest() for url in urls]
    return [Entry(key, host, url, b"\x01", **fields) for key, url in zip(keys, urls, strict=True)]


def done(*leases, **fields) -> list[Outcome]:
    return [Outcome(lease.id, Resolution.DONE, **fields) for lease in leases]


async def counts(frontier) -> dict[str, int]:
    status = await frontier.status()
    states = ("queued", "delayed", "leased", "done", "failed")
    return {name: getattr(status, name) for name in states if getattr(status, name)}


# --- lost answers ------------------------------------------------------------------------------------------


async def test_a_commit_whose_answer_is_lost_is_answered_again_and_counts_once(server, join):
    async with Relay(server.port) as relay:
        frontier = await join(relay.url)
        await frontier.add(entries("a"))
        (lease,) = (await frontier.lease("w", 1)).leases
        relay.lose_next()
        assert await frontier.commit(done(lease, entries=entries("b"), counters={"pages": 1})) == [True]
        assert relay.lost == 1
        assert (await frontier.status()).counters == {"pages": 1}
        assert await counts(frontier) == {"queued": 1, "done": 1}
        await frontier.close()


async def test_leases_whose_answer_is_lost_are_handed_out_again_to_who_asked(server, join):
    async with Relay(server.port) as relay:
        frontier = await join(relay.url)
        await frontier.add(entries(*range(10)))
        relay.lose_next()
        leases = (await frontier.lease("w", 4)).leases
        assert relay.lost == 1
        assert [lease.url[-1] for lease in leases] == ["0", "1", "2", "3"]
        assert await counts(frontier) == {"queued": 6, "leased": 4}
        assert await frontier.commit(done(*leases)) == [True] * 4
        await frontier.close()


async def test_adding_what_is_never_known_adds_once_when_its_answer_is_lost(server, join):
    async with Relay(server.port) as relay:
        frontier = await join(relay.url)
        relay.lose_next()
        result = await frontier.add(entries("a", "b", dedup=False))
        assert (relay.lost, result.added) == (1, 2)
        assert await counts(frontier) == {"queued": 2}
        await frontier.close()


async def test_replaying_tells_the_right_number_when_its_answer_is_lost(server, join):
    async with Relay(server.port) as relay:
        frontier = await join(relay.url)
        await frontier.add(entries("a", "b"))
        leases = (await frontier.lease("w", 2)).leases
        await frontier.commit([Outcome(lease.id, Resolution.FAILED, error="http/404") for lease in leases])
        numbers = [letter.id for letter in await frontier.dead_letters()]
        relay.lose_next()
        assert await frontier.replay(numbers) == 2
        assert relay.lost == 1
        await frontier.close()


async def test_nothing_is_lost_or_doubled_while_answers_are_lost_again_and_again(server, join):
    rng = random.Random(7)
    async with Relay(server.port) as relay:
        frontier = await join(relay.url)
        claim = await frontier.claim_seeds("w")
        await frontier.add(entries(0), SeedMark(claim.token, 1, done=True))
        accepted = 0
        while True:
            if rng.random() < 0.3:
                relay.lose_next()
            answer = await frontier.lease("w", 5, [])
            if answer.state is JobState.FINISHED:
                break
            for lease in answer.leases:
                number = int(lease.url.rpartition("/")[2])
                children = entries(*(n for n in (2 * number + 1, 2 * number + 2) if n < 100))
                if rng.random() < 0.3:
                    relay.lose_next()
                accepted += sum(await frontier.commit(done(lease, entries=children, counters={"pages": 1})))
        assert relay.lost > 20
        assert accepted == (await frontier.status()).counters["pages"] == 100
        assert await counts(frontier) == {"done": 100}
        await frontier.close()


async def test_a_cancelled_call_ends(server, join):
    frontier = await join(server.url)

    async def work():
        while True:
            await frontier.lease("w", 3)
            await frontier.status()

    for round_number in range(100):
        tasks = [asyncio.create_task(work()) for _ in range(3)]
        await asyncio.sleep(0.0005 * (round_number % 7))
        for task in tasks:
            task.cancel()
        _, pending = await asyncio.wait(tasks, timeout=5)
        assert not pending


# --- outages and setbacks ----------------------------------------------------------------------------------


async def test_an_outage_is_waited_for_and_told_once(own_server, join, caplog):
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
    said = [record.getMessage() for record in caplog.records]
    assert sum("it does not answer" in line for line in said) == 1
    assert sum("is back after" in line for line in said) == 1


async def test_an_outage_beyond_the_patience_is_an_error(own_server, join):
    server = own_server()
    frontier = await join(f"{server.url}?patience=0.2")
    server.kill()
    with pytest.raises(FrontierError, match="does not answer") as refusal:
        await frontier.status()
    assert refusal.value.remedy


async def test_a_server_that_forgot_its_scripts_gets_them_again(own_server, join):
    server = own_server()
    frontier = await join(server.url)
    async with redis.asyncio.Redis.from_url(server.url, driver_info=None, socket_timeout=None) as client:
        await client.execute_command("SCRIPT", "FLUSH")
    assert (await frontier.add(entries("a"))).added == 1


@pytest.fixture
async def set_back(own_server, join):
    """A job whose server goes back to how it was at ``remember``, as after a fail-over or with a slow log."""
    server = own_server()
    frontier = await join(server.url)

    class SetBack:
        def __init__(self):
            self.frontier = frontier

        async def remember(self):
            async with redis.asyncio.Redis.from_url(server.url, driver_info=None, socket_timeout=None) as client:
                await client.execute_command("SAVE")

        async def go_back(self):
            server.kill()
            await asyncio.to_thread(server.start)

    yield SetBack()
    await frontier.close()


async def test_what_was_leased_and_committed_after_the_last_snapshot_is_fetched_again(set_back):
    frontier = set_back.frontier
    await frontier.add(entries("a", "b"))
    await set_back.remember()
    first, second = (await frontier.lease("w", 2)).leases
    assert await frontier.commit(done(first, entries=entries("child"), counters={"pages": 1})) == [True]
    await set_back.go_back()
    assert await frontier.commit(done(second)) == [False]
    again = (await frontier.lease("w", 9)).leases
    assert sorted(lease.url[-1] for lease in again) == ["a", "b"]
    assert not {first.id, second.id} & {lease.id for lease in again}
    assert await frontier.commit(done(*again, entries=entries("child"))) == [True, True]
    assert await counts(frontier) == {"queued": 1, "done": 2}


async def test_a_setback_is_told_with_the_first_leases_after_it(set_back):
    frontier = set_back.frontier
    await set_back.remember()
    assert not (await frontier.lease("w", 1)).setback
    await set_back.go_back()
    assert (await frontier.lease("w", 1)).setback
    assert not (await frontier.lease("w", 1)).setback


async def test_seeds_that_were_lost_are_not_skipped(set_back):
    frontier = set_back.frontier
    claim = await frontier.claim_seeds("w")
    await frontier.add(entries("a"), SeedMark(claim.token, 1))
    await set_back.remember()
    await frontier.add(entries("b"), SeedMark(claim.token, 2))
    await set_back.go_back()
    assert (await frontier.add(entries("c"), SeedMark(claim.token, 3))).added == 0
    again = await frontier.claim_seeds("w")
    assert again.position == 1


async def test_while_the_memory_is_full_adding_waits_and_all_else_goes_on(own_server, join, caplog):
    caplog.set_level(logging.WARNING, "skitter")
    server = own_server("--maxmemory-policy", "noeviction")
    frontier = await join(server.url)
    await frontier.add(entries("a", "b", "c"))
    first, second = (await frontier.lease("w", 2)).leases
    async with redis.asyncio.Redis.from_url(server.url, driver_info=None, socket_timeout=None) as client:
        await client.config_set("maxmemory", "1mb")
        adding = asyncio.create_task(frontier.add(entries("d")))
        committing = asyncio.create_task(frontier.commit(done(first, entries=entries("e"))))
        other = await join(server.url)
        assert await other.renew("w", [first.id, second.id]) == []
        assert await other.commit(done(second)) == [True]
        assert len((await other.lease("w", 5, [Landing(first.id, 0.1)])).leases) == 1
        assert not adding.done()
        assert not committing.done()
        await client.config_set("maxmemory", "0")
    assert (await adding).added == 1
    assert await committing == [True]
    assert await counts(frontier) == {"queued": 2, "leased": 1, "done": 2}
    assert any("its memory is full" in record.getMessage() for record in caplog.records)


# --- many workers -------------------------------------------------------------------------------------------


async def test_each_end_of_the_fleet_sees_what_the_others_do(server, join):
    one, other = await join(server.url), await join(server.url)
    await one.add(entries(*range(6)))
    first = (await one.lease("one", 3)).leases
    second = (await other.lease("other", 9)).leases
    assert len({lease.url for lease in first + second}) == 6
    assert await other.renew("other", [first[0].id]) == [first[0].id]
    assert await one.abandon("other") == 3
    assert await other.commit(done(*second)) == [False] * 3


async def test_a_job_that_was_erased_is_gone_for_its_workers(server, join):
    frontier = await join(server.url)
    await frontier.add(entries("a"))
    other = RedisFrontier(server.url, frontier._job)
    await other.erase()
    with pytest.raises(FrontierError, match="begun anew by somebody else"):
        await frontier.add(entries("b"))
    await join(server.url)
    with pytest.raises(FrontierError, match="begun anew by somebody else"):
        await frontier.lease("w", 1)


async def test_other_rules_hold_for_hosts_that_wait_already(server, join):
    one = await join(server.url)
    await one.add(entries(*range(5), host="slow.test"))
    await one.add(entries(*range(5), host="fast.test"))
    slow = LimitRule(domain_glob="slow.*", parallelism=1)
    other = await join(server.url, Politeness(SlotPolicy(delay=0.0, parallelism=1000), [slow]))
    hosts = [lease.slot for lease in (await other.lease("w", 100)).leases]
    assert (hosts.count("slow.test"), hosts.count("fast.test")) == (1, 5)


async def test_a_rule_holds_for_what_is_delayed_while_its_host_is_tidied_away(server, join):
    slow = LimitRule(domain_glob="slow.*", parallelism=1)
    frontier = await join(server.url, Politeness(SlotPolicy(delay=0.0, parallelism=1000), [slow]))
    await frontier.add(entries(*range(5), host="slow.test", delay=0.3))
    await frontier.renew("w", [])
    while not (status := await frontier.status()).queued:
        assert status.delayed == 5
        await asyncio.sleep(0.02)
    while (await frontier.status()).delayed:
        await asyncio.sleep(0.02)
    assert len((await frontier.lease("w", 100)).leases) == 1


async def test_hosts_and_notes_that_say_nothing_any_more_are_forgotten(server, join, ask):
    frontier = await join(server.url)
    for number in range(50):
        await frontier.add(entries("a", host=f"h{number}.test"))
    leases = (await frontier.lease("w", 100)).leases
    await frontier.commit(done(*leases))
    await frontier.remember("short", b"x", 0.0)
    await frontier.remember("long", b"x", 1000.0)
    await frontier.hold("held.test", 1000.0)
    await frontier.renew("w", [])
    assert await ask.hkeys(f"skitter:{{{frontier._job}}}:slots") == [b"held.test"]
    assert await ask.hkeys(f"skitter:{{{frontier._job}}}:notes") == [b"long"]


async def test_a_finished_job_leaves_only_what_it_has_to_remember(server, join, ask):
    frontier = await join(server.url)
    await frontier.add(entries(*range(100)))
    await frontier.commit(done(*(await frontier.lease("w", 100)).leases))
    await frontier.renew("w", [])
    left = {key.rpartition(b":")[2] for key in await ask.keys(f"skitter:{{{frontier._job}}}:*")}
    assert left == {b"job", b"seen", b"answers"}


async def test_every_script_touches_one_slot_of_a_cluster_only(own_server, join):
    server = own_server("--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf")
    async with redis.asyncio.Redis.from_url(server.url, driver_info=None, socket_timeout=None) as client:
        await client.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
        while b"cluster_state:ok" not in await client.execute_command("CLUSTER", "INFO"):
            await asyncio.sleep(0.02)
    frontier = await join(server.url)
    await frontier.add(entries("a", "b"))
    first, second = (await frontier.lease("w", 2)).leases
    await frontier.renew("w", [first.id])
    assert await frontier.commit(done(first)) == [True]
    await frontier.commit([Outcome(second.id, Resolution.FAILED, error="x")])
    assert await frontier.replay() == 1
    assert await counts(frontier) == {"queued": 1, "done": 1}


def test_all_keys_of_a_job_have_its_hash_tag():
    assert all(key.startswith("skitter:{news}:") for key in keys_of("news"))


# --- addresses and refusals --------------------------------------------------------------------------------


async def test_a_unix_socket_and_a_database_can_be_named(server, join):
    by_socket = await join(f"unix://{server.socket}?db=3")
    by_port = await join(f"{server.url.removesuffix('/0')}/3")
    await by_socket.add(entries("a"))
    assert await counts(by_port) == {"queued": 1}
    elsewhere = await join(server.url)
    assert await counts(elsewhere) == {}


async def test_user_and_password_are_taken_from_the_url(own_server, join):
    server = own_server("--requirepass", PASSWORD)
    place = server.url.removeprefix("redis://")
    frontier = await join(f"redis://:{PASSWORD.replace(' ', '%20')}@{place}")
    assert (await frontier.add(entries("a"))).added == 1
    for url in (server.url, f"redis://:wrong@{place}", f"redis://nobody:wrong@{place}"):
        with pytest.raises(FrontierError, match="refuses the user or the password") as refusal:
            await join(url)
        assert "USER:PASSWORD" in refusal.value.remedy


async def test_a_message_never_holds_the_password(free_port, join):
    with pytest.raises(FrontierError) as refusal:
        await join(f"redis://user:hidden@127.0.0.1:{free_port}/0")
    assert "hidden" not in f"{refusal.value} {refusal.value.remedy}"


@pytest.mark.parametrize(
    "url",
    [
        "redis:", "redis:///0", "redis://h.test/one", "redis://h.test:port/0", "unix:relative", "unix://host/s",
        "redis://h.test/0?patience=long", "redis://h.test/0?colour=red", "redis+sentinel://h.test",
        "redis+sentinel://h.test/", "redis+sentinel://h.test/main/one", "redis+sentinel:///main",
    ],
)  # fmt: skip
async def test_a_url_that_means_nothing_is_refused(url, join):
    with pytest.raises(FrontierError) as refusal:
        await join(url)
    assert "redis://" in refusal.value.remedy


async def test_a_server_that_is_not_there_is_told_at_once(free_port, join):
    with pytest.raises(FrontierError, match=f"127.0.0.1:{free_port}.*does not answer") as refusal:
        await join(f"redis://127.0.0.1:{free_port}/0")
    assert "--frontier" in refusal.value.remedy


async def test_a_replica_is_refused_and_its_primary_named(own_server, join):
    primary = own_server()
    replica = own_server("--replicaof", f"127.0.0.1 {primary.port}")
    with pytest.raises(FrontierError, match="read-only replica") as refusal:
        await join(replica.url)
    assert f"127.0.0.1:{primary.port}" in refusal.value.remedy


async def test_a_server_that_throws_keys_away_is_refused(own_server, join):
    server = own_server("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    with pytest.raises(FrontierError, match="throws away keys") as refusal:
        await join(server.url)
    assert "noeviction" in refusal.value.remedy


async def test_a_server_that_is_too_old_is_refused(server, join, monkeypatch):
    monkeypatch.setattr("skitter.frontier.redis.server._OLDEST", (99, 0))
    with pytest.raises(FrontierError, match="is Redis") as refusal:
        await join(server.url)
    assert "6.2" in refusal.value.remedy


@pytest.mark.parametrize("foreign", [("SET", "job", "x"), ("HSET", "job", "a", "b"), ("SADD", "seen", "x")])
async def test_what_is_no_frontier_is_left_alone(server, join, ask, foreign):
    frontier = await join(server.url)
    prefix = f"skitter:{{{frontier._job}}}:"
    await ask.delete(f"{prefix}job")
    command, key, *values = foreign
    await ask.execute_command(command, prefix + key, *values)
    with pytest.raises(FrontierError, match="is no frontier of skitter|has lost its head") as refusal:
        await join(server.url)
    assert refusal.value.remedy


async def test_a_job_of_another_format_is_refused(server, join, ask):
    frontier = await join(server.url)
    await ask.hset(f"skitter:{{{frontier._job}}}:job", "format", "2")
    with pytest.raises(FrontierError, match="format 2, this skitter reads 1") as refusal:
        await join(server.url)
    assert "--fresh" in refusal.value.remedy


async def test_a_job_goes_on_with_visits_as_it_was_begun(server, join):
    await join(server.url)
    with pytest.raises(FrontierError, match="begun without visited_ttl"):
        await join(server.url, visited_ttl=10.0)


async def test_sentinels_tell_where_the_primary_is(own_server, join, tmp_path):
    primary = own_server()
    sentinel = own_server()
    sentinel.kill()
    config = tmp_path / "sentinel.conf"
    config.write_text(f"sentinel monitor main 127.0.0.1 {primary.port} 1\n")
    sentinel.start_sentinel(config)
    url = f"redis+sentinel://127.0.0.1:{sentinel.port}/main/2"
    frontier = await join(url)
    await frontier.add(entries("a"))
    directly = await join(f"{primary.url.removesuffix('/0')}/2")
    assert await counts(directly) == {"queued": 1}
    with pytest.raises(FrontierError, match="does not answer"):
        await join(f"redis+sentinel://127.0.0.1:{sentinel.port}/other")
