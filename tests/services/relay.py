"""A TCP relay that loses, cuts or delays traffic."""

import asyncio
import threading
from contextlib import contextmanager
from typing import Self

from skitter._utils.concurrency import stop_listening


class Relay:
    """Forwards all data to a server of this machine."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._losing = False
        self._tasks: set[asyncio.Task] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.lost = 0
        self.connections = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        return self

    async def __aexit__(self, *_) -> None:
        await stop_listening(self._server)
        await self.cut()

    def lose_next(self) -> None:
        """Let the server carry out the next call, and close the connection instead of forwarding its answer."""
        self._losing = True

    async def cut(self) -> None:
        """Close all connections. New ones are accepted."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def pause(self) -> None:
        """Hold back all data in both directions."""
        self._flowing.clear()

    def resume(self) -> None:
        """Forward the data that was held back."""
        self._flowing.set()

    async def _pass_on(self, reader, writer) -> None:
        task = asyncio.current_task()
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        except (OSError, asyncio.CancelledError):  # the server is away, or the connection was cut
            writer.transport.abort()
            return
        back = asyncio.create_task(self._answers(server_reader, writer))
        try:
            while data := await reader.read(1 << 16):
                await self._flowing.wait()
                server_writer.write(data)
        except (OSError, asyncio.CancelledError):
            pass  # as after a network failure
        finally:
            back.cancel()
            for stream in (writer, server_writer):
                stream.transport.abort()

    async def _answers(self, reader, writer) -> None:
        try:
            while data := await reader.read(1 << 16):
                await self._flowing.wait()
                if self._losing:
                    self._losing = False
                    self.lost += 1
                    break
                writer.write(data)
        except OSError:
            pass
        writer.close()


@contextmanager
def relay_thread(*ports: int):
    """Run relays for a test without an event loop: ``relays, do = ...``; ``do("cut")`` calls a method of each in its thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="relay", daemon=True)
    thread.start()

    async def make():
        return [await Relay(port).__aenter__() for port in ports]

    async def call(name):
        for relay in relays:
            result = getattr(relay, name)()
            if asyncio.iscoroutine(result):
                await result

    async def end():
        for relay in relays:
            await relay.__aexit__()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)  # transports close one turn of the loop later

    def there(coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(10)

    relays = there(make())
    try:
        yield relays, lambda name: there(call(name))
    finally:
        there(end())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
