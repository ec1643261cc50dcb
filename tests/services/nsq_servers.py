"""Real nsqd and nsqlookupd (1.3.0) on free loopback ports, built once from ``tests/services/nsq`` with Go."""

import atexit
import fcntl
import json
import os
import shutil
import subprocess
import urllib.request
from functools import cache
from pathlib import Path

import pytest

from services.processes import ServerProcess, free_port, listens

MODULE = Path(__file__).with_name("nsq")
BUILT = Path(__file__).parents[2] / ".cache/nsq"
PROGRAMS = ("nsqd", "nsqlookupd")
GO_FOLDERS = ("/usr/local/go/bin", "/usr/lib/go/bin")


def find_go() -> str | None:
    """Return the Go command: that of the path, or where Go's own installer puts it."""
    return shutil.which("go") or next(
        (found for folder in GO_FOLDERS if (found := shutil.which("go", path=folder))), None
    )


@cache
def binary(program: str) -> str:
    """Return a program of NSQ, built if it was not, or skip the test with the reason."""
    BUILT.mkdir(parents=True, exist_ok=True)
    with (BUILT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the test processes beside this one want it too
        if not all((BUILT / name).is_file() for name in PROGRAMS):
            _build()
    return str(BUILT / program)


def _build() -> None:
    go = find_go()
    if go is None:
        pytest.skip("no nsqd: install Go 1.17 or newer, with which the tests build it")
    packages = [f"github.com/nsqio/nsq/apps/{name}" for name in PROGRAMS]
    done = subprocess.run(
        [go, "build", "-o", f"{BUILT}/", *packages], cwd=MODULE, check=False, capture_output=True, text=True,
        env={**os.environ, "CGO_ENABLED": "0"},
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"nsqd could not be built: {done.stderr.strip()[-300:]}")


class NsqServer(ServerProcess):
    """One process of NSQ."""

    program = ""

    def __init__(self, *options: str) -> None:
        super().__init__(*options)
        self.http_port = free_port()

    @property
    def address(self) -> tuple[str, int]:
        return ("127.0.0.1", self.port)

    def arguments(self) -> list[str]:
        raise NotImplementedError

    def command(self):
        return [binary(self.program), *self.arguments(), *self._options]

    def answers(self):
        return listens(self.port) and listens(self.http_port)


class Nsqd(NsqServer):
    """The server that keeps the messages; in memory, but for what is more than ``--mem-queue-size``."""

    program = "nsqd"

    def arguments(self):
        return [
            f"--tcp-address=127.0.0.1:{self.port}", f"--http-address=127.0.0.1:{self.http_port}",
            "--broadcast-address=127.0.0.1", f"--data-path={self.folder}", "--log-level=warn",
        ]  # fmt: skip


class NsqLookupd(NsqServer):
    """The server that knows the others. Its port for clients is ``http_port``."""

    program = "nsqlookupd"

    def arguments(self):
        return [
            f"--tcp-address=127.0.0.1:{self.port}", f"--http-address=127.0.0.1:{self.http_port}",
            "--log-level=warn",
        ]  # fmt: skip

    def wait_for_nodes(self, count: int) -> None:
        """Return when so many nsqd have registered."""
        self.wait_for(lambda: self._nodes() >= count)

    def _nodes(self) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/nodes", timeout=5) as answer:
            return len(json.load(answer)["producers"])


@cache
def running() -> Nsqd:
    """Return an nsqd for all tests of this process, or skip the test with the reason."""
    server = Nsqd("--max-rdy-count=1000000")
    atexit.register(server.stop)
    return server.start()
