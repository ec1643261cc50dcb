"""Heartbeats of the workers of a Redis frontier, on a separate connection."""

from __future__ import annotations

from skitter.errors import FrontierError
from skitter.frontier.redis.job import RedisJob
from skitter.frontier.redis.server import RedisServer
from skitter.frontier.workers import LIVENESS_SECONDS, SUSPICION_SECONDS

_SUSPECT = b"?"
"""Precedes the name of a worker that is silent and may be dead."""


class RedisLiveness:
    """Implements :class:`~skitter.frontier.contract.Liveness`."""

    def __init__(self, job: RedisJob) -> None:
        self._job = job
        self._server: RedisServer | None = None
        self._since: bytes | str = "-inf"
        """Time of the last heartbeat. Workers that expired before it have been handled."""

    async def open(self) -> None:
        server = self._job.twin_server()
        await server.connect(patient=False)
        self._since = "-inf"  # the server may have lost its last second
        self._server = server

    async def close(self) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            await server.close()

    async def beat(self, worker: str) -> list[str]:
        job = self._job
        keys = [job.key("job"), job.key("alive")]
        arguments = job.generation, job.now, worker, LIVENESS_SECONDS, SUSPICION_SECONDS, self._since
        reply = await self._open_server.run("beat", keys, arguments, patient=False)
        self._since, *dead = reply
        return [name.decode() for name in dead]

    async def workers(self) -> list[str]:
        names = await self._open_server.command("ZRANGE", self._job.key("alive"), 0, -1)
        return [name.removeprefix(_SUSPECT).decode() for name in names]

    @property
    def _open_server(self) -> RedisServer:
        if self._server is None:
            raise FrontierError("the liveness of the workers is not open", remedy="call open() first")
        return self._server
