"""Drives libcurl's multi handle from the event loop, and decides which connections its pool keeps.

pycurl has its own driver. This one does less work per request, which saves a tenth of the cost of a page: the
sockets are watched by one epoll object that the event loop watches, so the loop creates and closes no handle per
request; a transfer is a plain future; and curl's timer is rescheduled only if it becomes due earlier.
"""

from __future__ import annotations

import asyncio
import select
import socket
import sys
from collections.abc import Callable
from typing import Protocol

import pycurl

_TCP_INFO = socket.TCP_INFO if sys.platform == "linux" else None
_LAST_RECEIVED = slice(52, 56)
"""Position of ``tcpi_last_data_recv``, in milliseconds, in Linux's ``struct tcp_info``."""
_TICK = 0.01
"""The longest tick of a Linux kernel, in seconds."""
_MAX_EVENTS = 256
_UNWATCHED = (pycurl.POLL_REMOVE, pycurl.POLL_NONE)
_LATE = 0.02
"""Seconds without reading any socket after which a response may have waited for the event loop."""

_FIRST_INTERVAL = 2.5
"""Assumed time in seconds between the first two requests to an origin."""
_MIN_INTERVAL = 0.25
"""Shorter intervals in seconds count as this one, because a busy event loop prolongs them."""
_PATIENCE = 4
"""Number of intervals without a request after which an origin is assumed to be finished."""


class SocketWatcher(Protocol):
    """Reports which of curl's sockets are ready."""

    def on_socket(self, event: int, fd: int, _multi: pycurl.CurlMulti, _data: object) -> None:
        """Watch a socket for ``POLL_IN``, ``POLL_OUT`` or both, instead of the previous events. Other events: do not watch it.

        curl calls this directly (``CURLMOPT_SOCKETFUNCTION``), twice for each request. It may close the socket next.
        """

    def close(self) -> None:
        """Stop watching all sockets."""


class Multi:
    """Runs transfers. Create, use and close it on one running event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._multi = pycurl.CurlMulti()
        make = EpollWatcher if sys.platform == "linux" else LoopWatcher
        self._watch: SocketWatcher | None = make(self._loop, self._on_ready)
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch.on_socket)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)
        self.running: dict[pycurl.Curl, asyncio.Future[float]] = {}
        """The transfers in progress."""
        self._looked_at = 0.0
        """When a socket was ready last, by the loop's clock."""
        self._is_late = False
        """Whether the responses that are being read may have waited for the event loop."""
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0
        """When the timer expires, by the loop's clock."""
        self._due: float | None = None
        """When curl wants to be called: possibly later than the timer, or never."""

    def setopt(self, option: int, value: int) -> None:
        """Set an option of the multi handle."""
        self._multi.setopt(option, value)

    def start(self, curl: pycurl.Curl) -> asyncio.Future[float]:
        """Start a transfer. The caller must call :meth:`end` afterwards.

        The future returns the seconds for which the end of the response has waited for the event loop, 0 if unknown.
        It raises ``pycurl.error`` if the transfer fails.
        """
        future = self.running[curl] = self._loop.create_future()
        self._multi.add_handle(curl)
        return future

    def end(self, curl: pycurl.Curl) -> None:
        """Remove a transfer in any state. Does nothing for a completed transfer, which has been removed already."""
        if self.running.pop(curl, None) is not None:
            self._multi.remove_handle(curl)

    def close(self) -> None:
        """Cancel all transfers and close the multi handle with its connections."""
        for curl, future in list(self.running.items()):
            self.end(curl)
            future.cancel()
        if self._timer is not None:
            self._timer.cancel()
        watch, self._watch = self._watch, None
        if watch is not None:
            # While it is closing, curl sends a TLS close notification without waiting for a reply.
            self._multi.setopt(pycurl.M_SOCKETFUNCTION, lambda *_: None)
            watch.close()
            self._multi.close()

    def _on_timer(self, milliseconds: int) -> None:
        if milliseconds < 0:
            self._due = None
            return
        self._due = due = self._loop.time() + milliseconds / 1000
        if self._timer is not None:
            if self._timer_at <= due:
                return
            self._timer.cancel()
        self._set_timer(due, milliseconds / 1000)

    def _set_timer(self, at: float, seconds: float) -> None:
        # Do not call this from a callback of curl: curl must not be entered again.
        self._timer_at = at
        call = self._on_timeout
        self._timer = self._loop.call_later(seconds, call) if seconds else self._loop.call_soon(call)

    def _on_timeout(self) -> None:
        self._timer, due = None, self._due
        if due is None:
            return
        seconds = due - self._loop.time()
        if seconds > 0:
            self._set_timer(due, seconds)
            return
        self._due = None
        self._is_late = False
        self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
        self._settle()

    def _on_ready(self, ready: list[tuple[int, int]]) -> None:
        now = self._loop.time()
        self._is_late = now - self._looked_at > _LATE
        self._looked_at = now
        for fd, mask in ready:
            self._multi.socket_action(fd, mask)
        self._settle()

    def _settle(self) -> None:
        """Resolve the futures of the completed transfers."""
        _, succeeded, failed = self._multi.info_read()
        for curl in succeeded:
            self._resolve(curl, None)
        for curl, code, message in failed:
            self._resolve(curl, pycurl.error(code, message))

    def _resolve(self, curl: pycurl.Curl, error: pycurl.error | None) -> None:
        future = self.running.pop(curl)
        unread = _seconds_unread(curl) if self._is_late else 0.0
        self._multi.remove_handle(curl)
        if future.done():
            return
        if error is None:
            future.set_result(unread)
        else:
            future.set_exception(error)


def _seconds_unread(curl: pycurl.Curl) -> float:
    """Return the minimum time since the last data of a transfer arrived; 0 if its connection is closed or is not TCP."""
    fd = curl.getinfo(pycurl.ACTIVESOCKET)
    if fd < 0 or _TCP_INFO is None:
        return 0.0
    # The C type, because creating the subclass `socket.socket` takes four times as long, for each page on a busy loop.
    connection = socket.SocketType(socket.AF_INET, socket.SOCK_STREAM, 0, fd)
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _LAST_RECEIVED.stop)
    except OSError:
        return 0.0
    finally:
        connection.detach()  # it belongs to curl
    # The kernel counts in ticks. Without subtracting one, a response might seem to have arrived before it was sent.
    return max(0.0, int.from_bytes(info[_LAST_RECEIVED], sys.byteorder) / 1000 - _TICK)


ReadyCallback = Callable[[list[tuple[int, int]]], None]
"""Receives the sockets that are ready, each with its ``CSELECT_`` mask."""


class LoopWatcher:
    """Watches each socket with the event loop itself: for systems without epoll."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_ready: ReadyCallback) -> None:
        self._loop = loop
        self._on_ready = on_ready
        self._interests: dict[int, int] = {}

    def on_socket(self, event: int, fd: int, _multi: pycurl.CurlMulti, _data: object) -> None:
        """See :class:`SocketWatcher`, as for all methods of this class."""
        if event in _UNWATCHED:
            self._leave(fd, self._interests.pop(fd, 0))
            return
        before = self._interests.get(fd, 0)
        self._interests[fd] = event
        if event & ~before & pycurl.POLL_IN:
            self._loop.add_reader(fd, self._on_ready, [(fd, pycurl.CSELECT_IN)])
        if event & ~before & pycurl.POLL_OUT:
            self._loop.add_writer(fd, self._on_ready, [(fd, pycurl.CSELECT_OUT)])
        self._leave(fd, before & ~event)

    def _leave(self, fd: int, interest: int) -> None:
        if interest & pycurl.POLL_IN:
            self._loop.remove_reader(fd)
        if interest & pycurl.POLL_OUT:
            self._loop.remove_writer(fd)

    def close(self) -> None:
        """Stop watching all sockets."""
        while self._interests:
            self._leave(*self._interests.popitem())


class EpollWatcher:
    """Watches all sockets with one epoll object, which the event loop watches.

    A socket that curl no longer watches stays in the epoll object until it becomes readable or is closed (the kernel
    removes it then), because the next request nearly always uses the same connection.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_ready: ReadyCallback) -> None:
        self._loop = loop
        self._on_ready = on_ready
        self._epoll = select.epoll()
        self._interests: dict[int, int] = {}
        """Events by socket. 0: curl no longer watches the socket, which may still be in the epoll object."""
        loop.add_reader(self._epoll.fileno(), self._look)

    def on_socket(self, event: int, fd: int, _multi: pycurl.CurlMulti, _data: object) -> None:
        """See :class:`SocketWatcher`, as for all methods of this class."""
        interests = self._interests
        is_registered = fd in interests
        if event in _UNWATCHED:
            if is_registered:
                interests[fd] = 0
            return
        interests[fd], events = event, _EVENTS[event]
        if is_registered:
            try:
                self._epoll.modify(fd, events)
            except FileNotFoundError:  # the socket was closed, and its number belongs to a new one
                self._epoll.register(fd, events)
        else:
            self._epoll.register(fd, events)

    def _look(self) -> None:
        ready = []
        for fd, events in self._epoll.poll(0, _MAX_EVENTS):
            interest = self._interests.get(fd)
            if not interest:
                # The server has closed an idle connection. Curl finds out when it uses the connection again.
                self._interests.pop(fd, None)
                self._epoll.unregister(fd)
            elif events & ~_PLAIN_EVENTS:
                ready.append((fd, interest | pycurl.CSELECT_ERR if events & select.EPOLLERR else interest))
            else:
                ready.append((fd, _MASKS[events]))
        if ready:
            self._on_ready(ready)

    def close(self) -> None:
        """Stop watching all sockets."""
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()


_EVENTS = {
    pycurl.POLL_IN: select.EPOLLIN,
    pycurl.POLL_OUT: select.EPOLLOUT,
    pycurl.POLL_INOUT: select.EPOLLIN | select.EPOLLOUT,
}
_MASKS = {
    select.EPOLLIN: pycurl.CSELECT_IN,
    select.EPOLLOUT: pycurl.CSELECT_OUT,
    select.EPOLLIN | select.EPOLLOUT: pycurl.CSELECT_IN | pycurl.CSELECT_OUT,
}
_PLAIN_EVENTS = select.EPOLLIN | select.EPOLLOUT


class KeptOrigins:
    """Chooses the origins whose connections are kept.

    A full pool of libcurl closes the connection that has been idle for the longest time. A crawl visits its hosts in
    turns, so that is the connection needed next, and none would be reused. Therefore a new connection is closed after
    its response, unless an origin in the pool is finished.

    ``places``: number of origins.
    ``idle_timeout``: time in seconds after which an unused connection is not reused.
    """

    def __init__(self, places: int, idle_timeout: float) -> None:
        self._places = places
        self._idle_timeout = idle_timeout
        self._uses: dict[str, tuple[float, float]] = {}
        """The time of the last request to each origin, and the interval expected until the next one. The oldest come first."""

    def keeps(self, origin: str, now: float) -> bool:
        """Record a request to an origin, and return whether its connection is to be kept. ``now``: monotonic time in seconds."""
        uses = self._uses
        use = uses.pop(origin, None)
        if use is not None:
            last, interval = use
            # The intervals of a host vary: its robots.txt and its first page follow each other at once.
            uses[origin] = now, max(now - last, interval / 2, _MIN_INTERVAL)
            return True
        if len(uses) >= self._places:
            oldest = next(iter(uses))
            last, interval = uses[oldest]
            if now - last < min(_PATIENCE * interval, self._idle_timeout):
                return False
            del uses[oldest]
        uses[origin] = now, _FIRST_INTERVAL
        return True
