"""Servers as processes of the tests, on free loopback ports; each ends with the tests that started it."""

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
    """One server with a folder of its own; it can be killed and started again on the same port."""

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
        """Tell whether it is ready to serve."""
        return listens(self.port)

    def start(self):
        """Start, and return when it answers."""
        return self.run(self.command())

    def run(self, command: list[str]):
        """Start by this command, and return when it answers."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder
            )
        try:
            self.wait_for(self.answers)
        except BaseException:  # nothing else ends a server whose start failed
            if self.is_alive:
                self.kill()
            raise
        return self

    def wait_for(self, fact: Callable[[], bool], patience: float = 300.0) -> None:
        """Return when a fact about the server holds."""
        deadline = time.monotonic() + patience
        while not fact():
            if not self.is_alive or time.monotonic() > deadline:
                raise RuntimeError(self.log.read_text(errors="replace"))
            time.sleep(0.01)

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """End as by a crash."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End, and remove everything."""
        if self.is_alive:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def free_port(row: int = 1) -> int:
    """Return a port of 127.0.0.1 that nothing listens on, outside the range from which clients are given theirs.

    So none takes it from a server that is not started yet, or is killed and started again. It is given once, to
    whichever test process there is on this machine, until the one that has it ends. ``row``: so many ports from it on
    are.
    """
    while True:
        first = _PORTS.randrange(10_000, 20_000)
        with ExitStack() as claims:
            try:
                for port in range(first, first + row):
                    # Nobody else wants the UDP port; who has it has the TCP port of the same number, bound or not.
                    claim = claims.enter_context(socket.socket(type=socket.SOCK_DGRAM))
                    claim.bind(("127.0.0.1", port))
                    _bind_for_a_moment(port)
            except OSError:
                continue
            _CLAIMS.push(claims.pop_all())
            return first


def _bind_for_a_moment(port: int) -> None:
    """Raise ``OSError`` if something is there that knows nothing of claims."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))


_CLAIMS = ExitStack()
atexit.register(_CLAIMS.close)
_PORTS = random.SystemRandom()  # seeded alike, the test processes would try the same ones


def listens(port: int) -> bool:
    """Tell whether something listens on a port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def program(name: str, missing: str) -> str:
    """Return the path of a program that a package of this environment brought, or skip the test."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        pytest.skip(missing)
    return found
