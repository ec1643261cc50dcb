"""Listening: an application on a port, until the process is told to end."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn

from skitter.errors import UsageError
from skitter.service.access import App


async def listen(app: App, host: str, port: int, tell: Callable[[str], None], leaving: asyncio.Event) -> None:
    """Serve until SIGINT or SIGTERM, which sets ``leaving``; ``tell`` is called with the URL once callers are heard.

    Raises :class:`~skitter.errors.UsageError` if nothing can listen there, and if the application cannot begin.
    """
    config = uvicorn.Config(
        app, host=host, port=port, log_config=None, access_log=False, server_header=False, lifespan="on",
        timeout_graceful_shutdown=10,
    )  # fmt: skip
    try:
        listener = _bound(host, port)
    except OSError as error:
        raise UsageError(
            f"{host} port {port} cannot be listened on: {error.strerror or error}",
            remedy="choose another --port",
        ) from None
    shown = f"[{host}]" if ":" in host else host
    server = _Server(config, lambda: tell(f"http://{shown}:{listener.getsockname()[1]}"), leaving)
    try:
        await server.serve([listener])
    finally:
        listener.close()
    if not server.started:
        raise UsageError("the service could not begin", remedy="its log has the reason")


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, tell: Callable[[], None], leaving: asyncio.Event) -> None:
        super().__init__(config)
        self._tell = tell
        self._leaving = leaving

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Let answers that would go on for ever come to an end: the others are waited for."""
        self._leaving.set()
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End gracefully at the first signal, and then as one that has done what it was asked to, not by the signal."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._tell()


def _bound(host: str, port: int) -> socket.socket:
    kind = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(kind)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except BaseException:
        listener.close()
        raise
    return listener
