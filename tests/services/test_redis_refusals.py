"""Forms of addresses, and errors when a job is opened."""

import re

import pytest

from services.frontier_requests import counts, entries
from services.redis_servers import PASSWORD
from skitter.errors import FrontierError
from skitter.frontier.redis.address import parse_address, parse_cluster
from skitter.frontier.redis.server_errors import START_SERVER


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
        with pytest.raises(FrontierError, match=place) as refusal:
            await join(url)
        assert refusal.value.field == "password"
        assert "USER:PASSWORD" in refusal.value.remedy


async def test_a_message_never_holds_the_password(free_port, join):
    with pytest.raises(FrontierError) as refusal:
        await join(f"redis://user:hidden@127.0.0.1:{free_port}/0")
    assert "hidden" not in f"{refusal.value} {refusal.value.remedy}"


@pytest.mark.parametrize(
    "url",
    [
        "redis:", "redis:///0", "redis://h.test/one", "redis://h.test:port/0", "unix:relative", "unix://host/s",
        "redis://h.test/0?outage_timeout=long", "redis://h.test/0?colour=red", "redis+sentinel://h.test",
        "redis://h.test/0?socket_timeout=nan", "redis://h.test/0?socket_timeout=0", "redis://h.test/0?outage_timeout=-1",
        "redis://h.test/0?decode_responses=True", "redis://h.test/0?encoding=utf-16", "redis://h.test/0?password=p",
        "redis+sentinel://h.test/", "redis+sentinel://h.test/main/one", "redis+sentinel:///main",
    ],
)  # fmt: skip
async def test_an_invalid_url_is_refused(url, join):
    with pytest.raises(FrontierError) as refusal:
        await join(url)
    assert "redis://" in refusal.value.remedy


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("redis://h.test/0?outage_timeout=long", "outage_timeout must be a number (got 'long')"),
        ("redis+cluster://h.test/?partitions=many", "partitions must be 1 to 128 (got 'many')"),
        ("redis+cluster://h.test:port/", "invalid host or port: 'h.test:port'"),
        ("redis+cluster://h.test:70000/", "invalid host or port: 'h.test:70000'"),
        ("redis+cluster://:6379/", "invalid host or port: ':6379'"),
        ("redis+sentinel://a,:26379/main", "invalid host or port: ':26379'"),
    ],
)
def test_an_error_names_the_invalid_part_of_the_url(url, problem):
    parse = parse_cluster if "cluster" in url else parse_address
    with pytest.raises(FrontierError, match=re.escape(problem)):
        parse(url)


def test_a_comma_at_the_end_of_the_hosts_is_ignored():
    assert parse_address("redis+sentinel://a:1,b,/main").sentinels == (("a", 1), ("b", 26379))


async def test_a_database_that_the_server_does_not_have_is_reported(server, join):
    with pytest.raises(FrontierError, match="/9999") as refusal:
        await join(f"{server.url.removesuffix('/0')}/9999")
    assert refusal.value.field == "database"


async def test_a_server_other_than_a_sentinel_is_reported(server, join):
    with pytest.raises(FrontierError, match=f"127.0.0.1:{server.port}/main") as refusal:
        await join(f"redis+sentinel://127.0.0.1:{server.port}/main")
    assert (refusal.value.field, refusal.value.remedy.endswith("redis://HOST")) == ("frontier", True)


@pytest.mark.parametrize("url", ["redis://[::1]:{}/0", "redis+sentinel://[::1]:{}/main"])
async def test_an_address_of_ipv6_is_reported_as_it_is_written(free_port, join, url):
    url = url.format(free_port)
    with pytest.raises(FrontierError) as refusal:
        await join(url)
    assert url in str(refusal.value)
    assert (refusal.value.field, refusal.value.remedy) == ("frontier", START_SERVER)


async def test_an_unavailable_server_is_reported_at_once(free_port, join):
    with pytest.raises(FrontierError, match=f"127.0.0.1:{free_port}") as refusal:
        await join(f"redis://127.0.0.1:{free_port}/0")
    assert (refusal.value.field, refusal.value.remedy) == ("frontier", START_SERVER)


async def test_a_replica_is_refused_and_its_primary_named(own_server, join):
    primary = own_server()
    replica = own_server("--replicaof", f"127.0.0.1 {primary.port}")
    with pytest.raises(FrontierError, match=replica.url) as refusal:
        await join(replica.url)
    assert f"127.0.0.1:{primary.port}" in refusal.value.remedy


async def test_a_server_that_evicts_keys_is_refused(own_server, join):
    server = own_server("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    with pytest.raises(FrontierError, match="allkeys-lru") as refusal:
        await join(server.url)
    assert refusal.value.field == "maxmemory-policy"
    assert "noeviction" in refusal.value.remedy


async def test_a_server_that_is_too_old_is_refused(server, join, monkeypatch):
    monkeypatch.setattr("skitter.frontier.redis.server.MIN_VERSION", (99, 0))
    with pytest.raises(FrontierError, match=server.url) as refusal:
        await join(server.url)
    assert refusal.value.field == "version"
    assert "6.2" in refusal.value.remedy


@pytest.mark.parametrize("foreign", [("SET", "job", "x"), ("HSET", "job", "a", "b"), ("SADD", "seen", "x")])
async def test_a_file_that_is_not_a_frontier_is_unchanged(server, join, ask, foreign):
    frontier = await join(server.url)
    prefix = f"skitter:{{{frontier.job.name}}}:"
    await ask.delete(f"{prefix}job")
    command, key, *values = foreign
    await ask.execute_command(command, prefix + key, *values)
    with pytest.raises(FrontierError, match=frontier.job.name) as refusal:
        await join(server.url)
    assert refusal.value.field == ("keys" if key != "job" else "job")
    assert refusal.value.remedy


async def test_a_job_of_another_format_is_refused(server, join, ask):
    frontier = await join(server.url)
    await ask.hset(f"skitter:{{{frontier.job.name}}}:job", "format", "99")
    with pytest.raises(FrontierError, match="format 99") as refusal:
        await join(server.url)
    assert "--fresh" in refusal.value.remedy


async def test_a_job_continues_with_visits_as_it_was_started(server, join):
    await join(server.url)
    with pytest.raises(FrontierError) as refusal:
        await join(server.url, visited_ttl=10.0)
    assert refusal.value.field == "seen_filter"
