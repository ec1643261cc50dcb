"""Differences of Kvrocks, which keeps its data on disk. ``docs/design/redis-frontier.md`` gives the reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection, Connection

from skitter.errors import FrontierError

MIN_VERSION = (2, 10)
_END = b"end of transaction"


def is_kvrocks(info: Mapping[str, Any]) -> bool:
    """Return whether a server is Kvrocks, from its own information. Its ``redis_version`` does not distinguish it."""
    return "kvrocks_version" in info


def check_kvrocks(info: Mapping[str, Any], where: str, database: int) -> None:
    """Check that the server is suitable. Raises :class:`~skitter.errors.FrontierError` if it is not.

    ``where``: the server in messages.
    """
    version = str(info["kvrocks_version"])
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < MIN_VERSION:
        raise FrontierError(
            f"frontier {where} is Kvrocks {version}", remedy="use Kvrocks 2.10 or later", field="version"
        )
    if info.get("cluster_enabled"):
        raise FrontierError(
            f"frontier {where} is a cluster of Kvrocks",
            remedy="use one Kvrocks server (redis://HOST), or a cluster of Valkey or Redis",
            field="frontier",
        )
    if database:  # Kvrocks replies OK to any number, and stays in the same namespace
        raise FrontierError(
            f"frontier {where} is Kvrocks, which has no numbered databases (got {database})",
            remedy="write /0, or give skitter its own namespace by its password: redis://:PASSWORD@HOST",
            field="frontier",
        )


async def in_transaction(client: Redis, words: Sequence[Any]) -> Any:
    """Run a script so that all of its writes are kept, or none. Raises redis errors.

    Kvrocks writes each command of a script to disk separately, so a killed server would keep half of a script. It writes
    the commands of a transaction together. It replies to ``EXEC`` before it writes: if the write fails, the error follows
    the reply. The last command of the pipeline waits for that.
    """
    async with client.pipeline(transaction=False) as pipe:
        for command in (("MULTI",), words, ("EXEC",), ("ECHO", _END)):
            pipe.execute_command(*command)
        begun, queued, replies, end = await pipe.execute(raise_on_error=False)
    for reply in (begun, queued, replies, end):
        if isinstance(reply, Exception):
            raise reply
    (reply,) = replies
    if isinstance(reply, Exception):
        raise reply
    return reply


async def kvrocks_run_id(connection: AbstractConnection) -> bytes:
    """Return an id that changes when the server behind a connection restarts: host, process and start time.

    Kvrocks has no ``run_id``. The second of its start is certain if the clock shows the same second before and after the
    server reports its uptime. A server whose clock was set counts as another server, which does no harm.
    """
    while True:
        replies = []
        for words in (("TIME",), ("INFO", "server"), ("TIME",)):
            await connection.send_command(*words)
            replies.append(await connection.read_response())
        before, report, after = replies
        if before[0] == after[0]:
            break
    fields = dict(line.split(b":", 1) for line in report.split(b"\r\n") if b":" in line)
    started = int(before[0]) - int(fields[b"uptime_in_seconds"])
    # Two servers behind a sentinel may have been started together.
    host = connection.host if isinstance(connection, Connection) else ""  # a Unix socket has no host
    return b"%s/%s/%d" % (host.encode(), fields[b"process_id"], started)
