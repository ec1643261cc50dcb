"""A TCP relay that loses what the test wants it to lose."""

import asyncio
from typing import Self


class Relay:
    """Passes everything to a server; ``lose_next`` cuts the connection where the next answer would come."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._losing = False
        self._tasks: set[asyncio.Task] = set()
        self.lost = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"
        return self

    async def __aexit__(self, *_) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def lose_next(self) -> None:
        """Let the server carry out the next call, and nobody hear of it."""
        self._losing = True

    async def _pass_on(self, reader, writer) -> None:
        task = asyncio.current_task()
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        back = asyncio.create_task(self._answers(server_reader, writer))
        try:
            while data := await reader.read(1 << 16):
                server_writer.write(data)
        finally:
            back.cancel()
            for stream in (writer, server_writer):
                stream.close()

    async def _answers(self, reader, writer) -> None:
        while data := await reader.read(1 << 16):
            if self._losing:
                self._losing = False
                self.lost += 1
                break
            writer.write(data)
        writer.close()
