"""Commands with an unusable Redis frontier: one line with a remedy, exit 2, and no run starts."""

import socketserver
import threading

import pytest

from cli_command import skitter, usage_error
from services.redis_servers import PASSWORD, RedisServer, running

SPIDER = """
from skitter import Spider

class First(Spider):
    start_urls = ["http://127.0.0.1:9/"]

    def parse(self, response):
        yield {}
"""


@pytest.fixture
def refusal(tmp_path):
    """Run a job on a frontier: ``line = refusal(url, *options)``."""
    (tmp_path / "first.py").write_text(SPIDER)

    def run(url, *options):
        line = usage_error(
            "run", "first.py", "-o", "items.jsonl", f"--frontier={url}", *options, cwd=tmp_path
        )
        assert not (tmp_path / "items.jsonl").exists()
        assert not (tmp_path / ".skitter" / "first" / "job.json").exists()
        return line

    return run


@pytest.fixture
def own_valkey():
    started = []

    def start(*options):
        started.append(RedisServer("valkey", *options).start())
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.mark.parametrize("url", ["redis:", "redis+sentinel://h.test"])
def test_an_invalid_url(refusal, url):
    assert "write redis://[USER:PASSWORD@]HOST[:PORT][/DB]" in refusal(url)


def test_an_unknown_kind_of_frontier(refusal):
    assert "redis+sentinel" in refusal("mysql://h.test/")


def test_an_unavailable_server(refusal, free_port):
    line = refusal(f"redis://127.0.0.1:{free_port}/0")
    assert f"127.0.0.1:{free_port}/0: it does not respond" in line
    assert "correct the URL of --frontier" in line


def test_a_wrong_password_which_is_not_repeated(refusal, own_valkey):
    server = own_valkey("--requirepass", PASSWORD)
    line = refusal(f"redis://:guessed@127.0.0.1:{server.port}/0")
    assert "refuses the user or the password" in line
    assert "guessed" not in line


def test_no_password_where_one_is_needed(refusal, own_valkey):
    assert "refuses the user or the password" in refusal(own_valkey("--requirepass", PASSWORD).url)


def test_a_user_without_the_permissions_of_a_frontier(refusal, own_valkey):
    server = own_valkey()
    server.ask("ACL", "SETUSER", "reader", "on", ">secret", "~*", "+@read", "+info")
    line = refusal(f"redis://reader:secret@127.0.0.1:{server.port}/0")
    assert "denies a command" in line
    assert "+@all" in line


def test_a_user_without_permission_within_a_script(refusal, own_server):
    server = own_server()
    server.ask("ACL", "SETUSER", "half", "on", ">secret", "~skitter:*", "+@all", "-hset")
    line = refusal(f"redis://half:secret@127.0.0.1:{server.port}/0")
    assert "denies a command" in line
    assert "+@all" in line


@pytest.mark.parametrize("command", ["hset", "eval"])
def test_a_server_whose_commands_were_renamed(refusal, own_server, command):
    line = refusal(own_server("--rename-command", command, "other").url)
    assert "lacks a command" in line
    assert "rename-command" in line


def test_a_read_only_replica(refusal, own_valkey):
    primary = own_valkey()
    replica = own_valkey("--replicaof", f"127.0.0.1 {primary.port}")
    line = refusal(replica.url)
    assert "is a read-only replica" in line
    assert f"127.0.0.1:{primary.port}" in line


def test_a_server_that_evicts_keys(refusal, own_valkey):
    server = own_valkey("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    assert "maxmemory-policy noeviction" in refusal(server.url)


def test_a_job_of_another_format(refusal):
    server = running("valkey")
    server.ask("HSET", "skitter:{newer}:job", "format", "99", "generation", "x")
    line = refusal(server.url, "--job=newer")
    assert "frontier format 99" in line
    assert "--fresh" in line


def test_a_key_of_another_program(refusal):
    server = running("valkey")
    server.ask("SET", "skitter:{foreign}:job", "mine")
    assert "skitter:{foreign}:job" in refusal(server.url, "--job=foreign")
    assert server.ask("GET", "skitter:{foreign}:job") == b"mine"


def test_foreign_keys_do_not_hide_jobs_of_the_server(refusal, own_valkey, tmp_path):
    server = own_valkey()
    server.ask("HSET", "skitter:{newer}:job", "format", "99", "generation", "x")
    server.ask("SET", "skitter:{foreign}:job", "mine")
    server.ask("SET", "skitter:{no name}:job", "mine")
    gentle = ("-q", "--no-robots", "-s", "max_retries=0", f"--frontier={server.url}")
    begun = skitter("run", "first.py", *gentle, cwd=tmp_path)
    assert begun.returncode == 1, begun.stderr  # its only page cannot be fetched
    for command in ("top", "jobs"):
        shown = skitter(command, f"--frontier={server.url}", cwd=tmp_path)
        assert shown.returncode == 0
        states = [line.split()[:2] for line in shown.stdout.splitlines()[1:]]
        assert states == [["first", "finished"], ["foreign", "unknown"], ["newer", "unknown"]]
        assert "frontier format 99" in shown.stderr


class FakeServer(socketserver.BaseRequestHandler):
    """A server that replies to every command with the same text."""

    answer = b""

    def handle(self):
        while data := self.request.recv(1 << 16):
            for _ in range(data.count(b"*")):
                self.request.sendall(self.answer)


@pytest.fixture
def fake_server():
    """Start a server of an unsupported kind: ``url = fake_server(answer)``."""
    servers = []

    def start(answer):
        handler = type("Handler", (FakeServer,), {"answer": answer})
        servers.append(socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler))
        servers[-1].daemon_threads = True
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"redis://127.0.0.1:{servers[-1].server_address[1]}/0"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_server_that_is_too_old(refusal, fake_server):
    info = b"redis_version:5.0.14\r\nrun_id:1\r\nrole:master\r\n"
    line = refusal(fake_server(b"$%d\r\n%s\r\n" % (len(info), info)))
    assert "is Redis 5.0.14" in line
    assert "6.2 or later" in line


def test_a_server_that_is_not_redis(refusal, fake_server):
    assert "Redis" in refusal(fake_server(b"HTTP/1.1 400 Bad Request\r\n\r\n"))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_seed_key_of_another_kind(tmp_path, own_valkey, workers):
    server = own_valkey()
    server.ask("HSET", "seeds", "a", "b")
    (tmp_path / "first.py").write_text(SPIDER)
    options = (f"--frontier={server.url}", "--seed-key=seeds", f"--workers={workers}")
    line = usage_error("run", "first.py", "-o", "items.jsonl", *options, cwd=tmp_path)
    assert "seed key seeds is a hash" in line
    assert server.ask("HGET", "seeds", "a") == b"b"
