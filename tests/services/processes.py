"""Servers as processes on free loopback ports. Each ends with the test process that started it."""

import atexit
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest


class ServerProcess:
    """A server with its own folder. It can be killed and started again on the same port."""

    def __init__(self, *options: str) -> None:
        self._options = options
        self.folder = Path(tempfile.mkdtemp(prefix="skitter-server-"))
        self.port = free_port()
        self.log = self.folder / "log"
        self.process: subprocess.Popen | None = None

    def command(self) -> list[str]:
        """Return the program and its arguments."""
        raise NotImplementedError

    def answers(self) -> bool:
        """Return whether it is ready."""
        return listens(self.port)

    def start(self):
        """Start the server, and wait until it is ready."""
        return self.run(self.command())

    def run(self, command: list[str]):
        """Run a command that starts the server, and wait until it is ready."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder
            )
        try:
            self.wait_for(self.answers)
        except BaseException:  # otherwise a server whose start failed would never be ended
            if self.is_alive:
                self.kill()
            raise
        return self

    def wait_for(self, fact: Callable[[], bool], patience: float = 300.0) -> None:
        """Wait until ``fact()`` is true."""
        deadline = time.monotonic() + patience
        while not fact():
            if not self.is_alive or time.monotonic() > deadline:
                raise RuntimeError(self.log.read_text(errors="replace"))
            time.sleep(0.01)

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """End the process as a crash does."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End the process, and remove its folder."""
        if self.is_alive:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def free_port(row: int = 1) -> int:
    """Return a port of 127.0.0.1 without a listener, outside the range of ephemeral ports.

    So no client gets the port of a server that is not started yet or is restarted. Each port is given to one test
    process of this machine only, until that process ends. ``row``: number of consecutive ports.
    """
    while True:
        first = _PORTS.randrange(10_000, 20_000)
        with ExitStack() as claims:
            try:
                for port in range(first, first + row):
                    # A bound UDP port claims the TCP port of the same number, as no other program uses it.
                    claim = claims.enter_context(socket.socket(type=socket.SOCK_DGRAM))
                    claim.bind(("127.0.0.1", port))
                    _bind_for_a_moment(port)
            except OSError:
                continue
            _CLAIMS.push(claims.pop_all())
            return first


def _bind_for_a_moment(port: int) -> None:
    """Raise ``OSError`` if a program that does not use claims has the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))


_CLAIMS = ExitStack()
atexit.register(_CLAIMS.close)
_PORTS = random.SystemRandom()  # all test processes have the same seed and would try the same ports


def listens(port: int) -> bool:
    """Return whether a process listens on a port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def program(name: str, missing: str) -> str:
    """Return the path of a program that is installed with a package, or skip the test."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        pytest.skip(missing)
    return found
