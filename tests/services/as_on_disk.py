"""A Valkey or Redis server that is treated as one that keeps its data on disk: each script runs in a transaction of its own."""

from skitter.frontier.redis.address import parse_address
from skitter.frontier.redis.server import RedisServer, SingleConnection


class ConnectionAsOnDisk(SingleConnection):
    """A connection that takes a Valkey or Redis server for Kvrocks."""

    async def info(self):
        info = await super().info() | {"kvrocks_version": "2.10.1"}
        self.in_transactions = True
        return info


class AsOnDisk(RedisServer):
    """A Valkey or Redis server that is used like Kvrocks."""

    def __init__(self, url: str) -> None:
        address = parse_address(url)
        super().__init__(address, ConnectionAsOnDisk(address))
