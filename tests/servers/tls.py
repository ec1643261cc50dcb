"""Certificates and misbehaving TLS servers for tests."""

import socket
import socketserver
import ssl
import struct
import threading
from contextlib import suppress
from datetime import UTC, datetime

import trustme


def server_side(authority, name="127.0.0.1", **certificate):
    """Return a server's TLS context with a certificate of the authority for a name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name, **certificate).configure_cert(context)
    return context


def _speak(context):
    def answer(connection):
        with connection.dup() as same:
            try:
                with context.wrap_socket(connection, server_side=True) as wrapped:
                    wrapped.recv(65_536)
                    wrapped.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 18\r\n\r\n<title>ok</title>\n")
            except ssl.SSLError:
                _drain(
                    same
                )  # a close with unread data would reset the connection and could overtake the alert

    return answer


def _send(data):
    def answer(connection):
        connection.recv(65_536)
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        _drain(connection)

    return answer


def _reset(connection):
    connection.recv(65_536)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def _drain(connection):
    while connection.recv(65_536):
        pass


def hostile_tls(authority):
    """Return the server of each case by name, as a function of an address, and the kind of its dead letter."""
    past = datetime(2000, 1, 1, tzinfo=UTC)

    def old(address):
        context = server_side(authority, address)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        return _speak(context)

    def with_client_certificate(address):
        context = server_side(authority, address)
        context.verify_mode = ssl.CERT_REQUIRED
        return _speak(context)

    alert = b"\x15\x03\x03\x00\x02\x02\x28"  # fatal handshake_failure (RFC 8446, 6.2)
    return {
        "valid": (lambda address: _speak(server_side(authority, address)), None),
        "unknown authority": (lambda address: _speak(server_side(trustme.CA(), address)), "tls"),
        "another name": (lambda _: _speak(server_side(authority, "elsewhere.example")), "tls"),
        "expired": (lambda address: _speak(server_side(authority, address, not_after=past)), "tls"),
        "TLS 1.2": (old, None),
        "client certificate": (with_client_certificate, "tls"),
        "plain HTTP": (lambda _: _send(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "tls"),
        "alert": (lambda _: _send(alert), "tls"),
        "random bytes": (lambda _: _send(b"\x16\x03\x03\x40\x00" + b"\x7f" * 16_384), "tls"),
        "end in the handshake": (lambda _: _send(b""), "connect"),
        "reset in the handshake": (lambda _: _reset, "connect"),
        "silence in the handshake": (lambda _: _drain, "timeout"),
    }


class SocketServers:
    """Serve each connection to a port of ``127.1.0.N`` in a thread with the Nth function, inside a ``with`` block."""

    def __init__(self, answers):
        self._servers = []
        for number, answer in enumerate(answers, 1):
            self._servers.append(self._server(f"127.1.0.{number}", answer(f"127.1.0.{number}")))
        self.urls = ["https://{}:{}/".format(*server.server_address) for server in self._servers]

    @staticmethod
    def _server(address, answer):
        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                with suppress(OSError):  # ssl.SSLError is one
                    answer(self.request)

        server = socketserver.ThreadingTCPServer((address, 0), Handler)
        server.daemon_threads = True
        return server

    def __enter__(self):
        for server in self._servers:
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
        return self

    def __exit__(self, *_):
        for server in self._servers:
            server.shutdown()
            server.server_close()
