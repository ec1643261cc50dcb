"""A minimal HTTP/2 server over TLS that responds to every request with its path."""

import asyncio

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived

from skitter._utils.concurrency import stop_listening


class Http2Server:
    def __init__(self, tls):
        tls.set_alpn_protocols(["h2"])
        self._tls = tls
        self._writers = []
        self.connections = 0

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.origin = f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        await stop_listening(self._server)
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader, writer):
        self.connections += 1
        self._writers.append(writer)
        speech = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        speech.initiate_connection()
        writer.write(speech.data_to_send())
        try:
            while data := await reader.read(65536):
                for event in speech.receive_data(data):
                    if isinstance(event, RequestReceived):
                        _answer(speech, event)
                writer.write(speech.data_to_send())
                await writer.drain()
        except ConnectionError:
            pass  # the client disconnected


def _answer(speech, event):
    path = dict(event.headers)[":path"].encode()
    speech.send_headers(event.stream_id, [(":status", "200"), ("x-served", "yes")])
    speech.send_data(event.stream_id, path, end_stream=True)
