"""The HTTP server of a node: serves the application on a port until the process is asked to end."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import uvicorn

from skitter.errors import UsageError
from skitter.service.api.auth import AsgiApp

_MAX_CONNECTIONS = 1000
"""Connections at a time. Further ones get the response 503."""


class TlsFiles(NamedTuple):
    """The certificate of a node with its chain, and its private key, as PEM files (RFC 7468)."""

    certificate: Path
    key: Path

    def check(self) -> None:
        """Check the files. Raises :class:`~skitter.errors.UsageError` if they cannot be used."""
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
                self.certificate, self.key, lambda: b""
            )
        except (OSError, ValueError) as error:
            raise UsageError(
                f"cannot use the certificate {self.certificate} with the key {self.key}: {error}",
                remedy="name a certificate and its private key without a passphrase, both as PEM files",
                field="tls_cert",
            ) from None


async def serve_app(
    app: AsgiApp,
    host: str,
    port: int,
    on_ready: Callable[[str], None],
    leaving: asyncio.Event,
    tls: TlsFiles | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, which sets ``leaving``. ``on_ready`` is called with the URL once the server accepts requests.

    Without ``tls``, the server speaks plain HTTP.

    Raises :class:`~skitter.errors.UsageError` if the address cannot be used, or the application fails to start.
    """
    config = uvicorn.Config(
        app, host=host, port=port, log_config=None, access_log=False, server_header=False, lifespan="on",
        timeout_graceful_shutdown=10, limit_concurrency=_MAX_CONNECTIONS,
        ssl_certfile=tls and tls.certificate, ssl_keyfile=tls and tls.key,
    )  # fmt: skip
    try:
        listener = listen(host, port)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host} port {port}: {error.strerror or error}",
            remedy="choose another --port",
            field="port",
        ) from None
    shown = f"[{host}]" if ":" in host else host
    scheme = "http" if tls is None else "https"
    server = _Server(config, lambda: on_ready(f"{scheme}://{shown}:{listener.getsockname()[1]}"), leaving)
    try:
        await server.serve([listener])
    finally:
        listener.close()
    if not server.started:
        raise UsageError("the service failed to start", remedy="see the log for the reason")


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None], leaving: asyncio.Event) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._leaving = leaving

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Make endless responses end. The server waits for the other responses."""
        self._leaving.set()
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Shut down gracefully at the first signal. The process then exits normally, not by the signal."""
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
            self._on_ready()


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address. Raises :class:`OSError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except BaseException:
        listener.close()
        raise
    return listener
