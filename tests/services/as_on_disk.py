"""A server that is treated as one that keeps its data on disk: the scripts for such, each in a transaction of its own."""

from skitter.frontier.redis.address import parse_address
from skitter.frontier.redis.server import RedisServer


class AsOnDisk(RedisServer):
    """Takes a Valkey or Redis server for a Kvrocks."""

    def __init__(self, url: str) -> None:
        super().__init__(parse_address(url))

    async def _info(self):
        return await super()._info() | {"kvrocks_version": "2.10.1"}
