"""Real nsqd and nsqlookupd (1.3.0) on free loopback ports, built with Go from ``tests/services/nsq``."""

import atexit
import json
import urllib.request
from functools import cache

from services.go_programs import go_program
from services.processes import ServerProcess, free_port, listens

PROGRAMS = tuple(f"github.com/nsqio/nsq/apps/{name}" for name in ("nsqd", "nsqlookupd"))


def nsq_program(name: str) -> str:
    """Return a program of NSQ. Builds it if needed, or skips the test with the reason."""
    return go_program("nsq", name, PROGRAMS)


class NsqServer(ServerProcess):
    """A process of NSQ."""

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
        return [nsq_program(self.program), *self.arguments(), *self._options]

    def answers(self):
        return listens(self.port) and listens(self.http_port)


class Nsqd(NsqServer):
    """The server that stores messages, in memory up to ``--mem-queue-size``."""

    program = "nsqd"

    def arguments(self):
        return [
            f"--tcp-address=127.0.0.1:{self.port}", f"--http-address=127.0.0.1:{self.http_port}",
            "--broadcast-address=127.0.0.1", f"--data-path={self.folder}", "--log-level=warn",
        ]  # fmt: skip


class NsqLookupd(NsqServer):
    """The directory of nsqd servers. Its port for clients is ``http_port``."""

    program = "nsqlookupd"

    def arguments(self):
        return [
            f"--tcp-address=127.0.0.1:{self.port}", f"--http-address=127.0.0.1:{self.http_port}",
            "--log-level=warn",
        ]  # fmt: skip

    def wait_for_nodes(self, count: int) -> None:
        """Wait until a number of nsqd have registered."""
        self.wait_for(lambda: self._nodes() >= count)

    def _nodes(self) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/nodes", timeout=60) as answer:
            return len(json.load(answer)["producers"])


@cache
def running() -> Nsqd:
    """Return an nsqd for all tests of this process, or skip the test with the reason."""
    server = Nsqd("--max-rdy-count=1000000")
    atexit.register(server.stop)
    return server.start()
