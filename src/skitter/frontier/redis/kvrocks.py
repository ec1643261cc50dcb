"""Kvrocks: what is otherwise on a server that keeps its data on disk. ``docs/redis-frontier.md`` says how it was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from redis.asyncio import Redis

from skitter.errors import FrontierError

_OLDEST = (2, 10)
_END = b"end of transaction"


def is_kvrocks(info: Mapping[str, Any]) -> bool:
    """Tell by what a server says of itself whether it is one. Its ``redis_version`` says nothing."""
    return "kvrocks_version" in info


def check_kvrocks(info: Mapping[str, Any], where: str, database: int) -> None:
    """Find out whether it can serve. Raises :class:`~skitter.errors.FrontierError`.

    ``where``: the server's name for people.
    """
    version = str(info["kvrocks_version"])
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < _OLDEST:
        raise FrontierError(f"frontier {where} is Kvrocks {version}", remedy="use Kvrocks 2.10 or later")
    if info.get("cluster_enabled"):
        raise FrontierError(
            f"frontier {where} is a cluster of Kvrocks",
            remedy="use one Kvrocks server (redis://HOST), or a cluster of Valkey or Redis",
        )
    if database:  # it says OK to any number, and goes on where it was
        raise FrontierError(
            f"frontier {where} is Kvrocks, which has no numbered databases",
            remedy="write /0, or the password of a namespace of its own: redis://:PASSWORD@HOST",
        )


async def in_transaction(client: Redis, words: Sequence[Any]) -> Any:
    """Run a script so that all of its writes are kept, or none. Raises redis errors.

    It writes each command of a script to its disk by itself, so one that is killed would leave half a script behind;
    the commands of a transaction it writes together. What it answers to ``EXEC`` it has said before it
    writes: if that fails, an error comes after the answer.
    """
    async with client.pipeline(transaction=False) as pipe:
        for command in (("MULTI",), words, ("EXEC",), ("ECHO", _END)):
            pipe.execute_command(*command)
        begun, queued, answers, end = await pipe.execute(raise_on_error=False)
    for answer in (begun, queued, answers, end):
        if isinstance(answer, Exception):
            raise answer
    (answer,) = answers
    if isinstance(answer, Exception):
        raise answer
    return answer


async def life_behind(connection: Any) -> bytes:
    """Return what changes with each life of the server behind a connection: where it is, its process and its start.

    It has no ``run_id``. The second in which it started is known for certain if its clock stands in one second while it
    says how old it is; a server that was set right by hand passes for another one, which does no harm.
    """
    while True:
        before, age, after = [
            await _ask(connection, *words) for words in (("TIME",), ("INFO", "server"), ("TIME",))
        ]
        if before[0] == after[0]:
            break
    told = dict(line.split(b":", 1) for line in age.split(b"\r\n") if b":" in line)
    started = int(before[0]) - int(told[b"uptime_in_seconds"])
    host = str(
        getattr(connection, "host", "")
    )  # of two behind a sentinel, which may have been started together
    return b"%s/%s/%d" % (host.encode(), told[b"process_id"], started)


async def _ask(connection: Any, *words: str) -> Any:
    await connection.send_command(*words)
    return await connection.read_response()
