"""Servers that keep data on disk: detection, atomic scripts, and restarts."""

import asyncio

import pytest
import redis.asyncio
from redis.exceptions import BusyLoadingError, NoScriptError, ResponseError

from skitter._utils.concurrency import stop_listening
from skitter.errors import FrontierError
from skitter.frontier.redis.address import parse_address
from skitter.frontier.redis.kvrocks import check_kvrocks, in_transaction, is_kvrocks
from skitter.frontier.redis.server import RedisServer, server_run_id
from skitter.frontier.redis.server_errors import explained, rule_of

SERVER = "# RedisServer\r\nversion:2.10.1\r\nkvrocks_version:2.10.1\r\nredis_version:4.0.0\r\nprocess_id:{}\r\nuptime_in_seconds:{}\r\n"
INFO = {
    "version": "2.10.1",
    "kvrocks_version": "2.10.1",
    "redis_version": "4.0.0",
    "role": "master",
    "cluster_enabled": 0,
}
REDIS = {
    "redis_version": "7.2.4",
    "server_name": "valkey",
    "valkey_version": "9.1.0",
    "role": "master",
    "aof_enabled": 1,
}


def bulk(text):
    return b"$%d\r\n%s\r\n" % (len(text), text.encode())


class FakeServer:
    """Sends scripted answers to commands, one after the other: ``answers`` are bytes as they are sent."""

    def __init__(self, *answers):
        self._answers = list(answers)
        self.asked = []

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        (self.client,) = parse_address(self.url).clients(None)
        return self

    async def __aexit__(self, *_):
        await self.client.aclose()
        await stop_listening(self._server)

    async def _serve(self, reader, writer):
        while line := await reader.readline():
            words = []
            for _ in range(int(line[1:])):
                size = int((await reader.readline())[1:])
                words.append((await reader.readexactly(size + 2))[:-2].decode())
            self.asked.append(words)
            if words[0] == "CLIENT":
                writer.write(b"+OK\r\n")
            else:
                writer.write(self._answers.pop(0))
        writer.close()


@pytest.mark.parametrize(
    ("answer", "pattern"),
    [
        ("IO error: No space left on device: While appending to file: 7.log", "IO error: "),
        ("write command not allowed when reached max-db-size.", "reached max-db-size"),
    ],
)
def test_a_full_disk_is_a_temporary_error(answer, pattern):
    rule = rule_of(ResponseError(answer))
    assert rule.pattern == pattern
    assert "server" in rule.remedy


@pytest.mark.parametrize(
    ("answer", "field", "remedy"),
    [
        ("Invalid password", "password", "USER:PASSWORD"),
        ("wrong number of arguments", "password", "USER:PASSWORD"),
        ("unknown command `SENTINEL`, with args beginning with: `MASTERS`", "frontier", "redis://HOST"),
    ],
)
def test_refusals_of_kvrocks_are_recognised(answer, field, remedy):
    assert rule_of(ResponseError(answer)) is None
    refusal = explained(ResponseError(answer), "redis://h/0")
    assert refusal.field == field
    assert remedy in refusal.remedy


END = bulk("end of transaction")
BEGUN = (b"+OK\r\n", b"+QUEUED\r\n")
SCRIPT = ("EVALSHA", "0" * 40, "0")


def test_kvrocks_is_recognised_by_its_server_info():
    assert is_kvrocks(INFO)
    assert not is_kvrocks(REDIS)
    check_kvrocks(INFO, "redis://h/0", 0)


@pytest.mark.parametrize(
    ("info", "database", "value", "field"),
    [
        ({"kvrocks_version": "2.9.0"}, 0, "2.9.0", "version"),
        ({"kvrocks_version": "unstable"}, 0, "unstable", "version"),
        ({"cluster_enabled": 1}, 0, "cluster", "frontier"),
        ({}, 3, "3", "frontier"),
    ],
)
def test_an_unsuitable_kvrocks_is_refused(info, database, value, field):
    with pytest.raises(FrontierError, match=value) as refusal:
        check_kvrocks(INFO | info, "redis://h/0", database)
    assert refusal.value.field == field
    assert refusal.value.remedy


async def test_a_script_is_the_only_one_of_its_transaction():
    async with FakeServer(*BEGUN, b"*1\r\n" + bulk("done"), END) as server:
        assert await in_transaction(server.client, SCRIPT) == b"done"
        asked = [words for words in server.asked if words[0] != "CLIENT"]
        assert asked == [["MULTI"], list(SCRIPT), ["EXEC"], ["ECHO", "end of transaction"]]


async def test_the_result_of_a_script_whose_writes_failed_is_discarded():
    failed = b"*1\r\n" + bulk("done") + b"-ERR IO error: No space left on device\r\n"
    again = (*BEGUN, b"*1\r\n" + bulk("done at last"), END)
    async with FakeServer(*BEGUN, failed, END, *again) as server:
        with pytest.raises(ResponseError, match="No space left on device"):
            await in_transaction(server.client, SCRIPT)
        assert await in_transaction(server.client, SCRIPT) == b"done at last"


async def test_a_script_that_the_server_does_not_know_is_reported_as_such():
    async with FakeServer(*BEGUN, b"*1\r\n-NOSCRIPT No matching script\r\n", END) as server:
        with pytest.raises(NoScriptError):
            await in_transaction(server.client, SCRIPT)


async def test_a_refusal_before_the_transaction_runs_is_reported_with_its_reason():
    refused = (b"+OK\r\n", b"-LOADING kvrocks is restoring\r\n", b"-EXECABORT Transaction discarded\r\n", END)
    async with FakeServer(*refused) as server:
        with pytest.raises(BusyLoadingError):
            await in_transaction(server.client, SCRIPT)


def time(second):
    return b"*2\r\n" + bulk(str(second)) + bulk("5")


async def read_identity(server):
    connection = redis.asyncio.Connection(port=server.port, protocol=2, driver_info=None)
    try:
        return await server_run_id(connection)
    finally:
        await connection.disconnect()


async def test_a_run_of_a_server_is_identified_by_process_and_second_of_its_start():
    def answers(process, started, now):
        age = bulk(SERVER.format(process, now - started))
        return age, time(now), age, time(now)

    lives = ((7, 1000, 1010), (7, 1000, 2000), (7, 1001, 2000), (8, 1000, 2000))
    async with FakeServer(*(answer for one in lives for answer in answers(*one))) as server:
        first, same, later, other = [await read_identity(server) for _ in lives]
        assert first == same
        assert len({first, later, other}) == 3


async def test_the_start_second_is_not_guessed_if_the_clock_advances():
    torn = (time(2000), bulk(SERVER.format(7, 1001)), time(2001))
    clear = (time(2001), bulk(SERVER.format(7, 1001)), time(2001))
    first = bulk(SERVER.format(7, 1000))
    async with FakeServer(first, *torn, *clear, first, *clear) as server:
        assert await read_identity(server) == await read_identity(server)


async def test_a_frontier_reports_a_restarted_server():
    begin = (bulk(SERVER.format(7, 0)), time(1000), bulk(SERVER.format(7, 0)), time(1000))
    again = (bulk(SERVER.format(7, 5)), time(2000), bulk(SERVER.format(7, 5)), time(2000))
    everything = bulk(SERVER.format(7, 0) + "role:master\r\n")
    async with FakeServer(*begin, everything, *again, b"+PONG\r\n") as server:
        frontier = RedisServer(parse_address(server.url))
        await frontier.connect(patient=False)
        await frontier.connection.client.connection_pool.disconnect()
        assert frontier.restarts == 0
        await frontier.command("PING")
        assert frontier.restarts == 1
        await frontier.close()
