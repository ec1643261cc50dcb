"""Multi: libcurl's multi handle, driven by the event loop.

pycurl brings a driver of its own. This one does less for each request, which is a tenth of what a page costs:
sockets are watched by one epoll that the loop watches (no handle of the loop is made and ended with every
request), a transfer has a bare future, and curl's timer is set anew only if it comes earlier.
"""

from __future__ import annotations

import asyncio
import select
import sys
from typing import Protocol

import pycurl

_EVENTS_AT_ONCE = 256


class Watch(Protocol):
    """Tells which of curl's sockets are ready."""

    def watch(self, fd: int, interest: int) -> None:
        """Look at a socket for ``POLL_IN``, ``POLL_OUT`` or both, and no longer for what was asked before."""
        ...

    def forget(self, fd: int) -> None:
        """Look at a socket no more; it may be closed next."""
        ...

    def close(self) -> None:
        """Look at nothing any more."""
        ...


class Multi:
    """Runs transfers. Make it, use it and close it on one running event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)
        make = EpollWatch if sys.platform == "linux" else LoopWatch
        self._watch: Watch | None = make(self._loop, self._on_ready)
        self._futures: dict[pycurl.Curl, asyncio.Future[None]] = {}
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0
        """When the timer runs out, by the loop's clock."""
        self._due: float | None = None
        """When curl wants to be called, which may be later than the timer, or never."""

    def setopt(self, option: int, value: int) -> None:
        """Set an option of the multi handle."""
        self._multi.setopt(option, value)

    def start(self, curl: pycurl.Curl) -> asyncio.Future[None]:
        """Begin a transfer. The future raises ``pycurl.error`` if it fails; :meth:`end` must follow it."""
        future = self._futures[curl] = self._loop.create_future()
        self._multi.add_handle(curl)
        return future

    def end(self, curl: pycurl.Curl) -> None:
        """Take a transfer out, wherever it stands; one that has ended is out already."""
        if self._futures.pop(curl, None) is not None:
            self._multi.remove_handle(curl)

    def close(self) -> None:
        """Cancel all transfers and close the multi handle with its connections."""
        for curl, future in list(self._futures.items()):
            self.end(curl)
            future.cancel()
        if self._timer is not None:
            self._timer.cancel()
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()
            self._multi.close()

    def _on_socket(self, what: int, fd: int, _multi: pycurl.CurlMulti, _data: object) -> None:
        if self._watch is None:  # closing: curl says goodbye over TLS and waits for no answer
            return
        if what in (pycurl.POLL_REMOVE, pycurl.POLL_NONE):
            self._watch.forget(fd)
        else:
            self._watch.watch(fd, what)

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
        # Never called from within curl's own callback, which must not be entered again.
        self._timer_at = at
        call = self._on_timeout
        self._timer = self._loop.call_later(seconds, call) if seconds else self._loop.call_soon(call)

    def _on_timeout(self) -> None:
        self._timer, due = None, self._due
        if due is None:
            return
        left = due - self._loop.time()
        if left > 0:
            self._set_timer(due, left)
            return
        self._due = None
        self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
        self._settle()

    def _on_ready(self, ready: list[tuple[int, int]]) -> None:
        for fd, mask in ready:
            self._multi.socket_action(fd, mask)
        self._settle()

    def _settle(self) -> None:
        """Resolve the futures of the transfers that have ended."""
        _, succeeded, failed = self._multi.info_read()
        for curl in succeeded:
            self._resolve(curl, None)
        for curl, code, message in failed:
            self._resolve(curl, pycurl.error(code, message))

    def _resolve(self, curl: pycurl.Curl, error: pycurl.error | None) -> None:
        future = self._futures.pop(curl)
        self._multi.remove_handle(curl)
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


class OnReady(Protocol):
    """Hears of sockets that are ready, each with its ``CSELECT_`` mask."""

    def __call__(self, ready: list[tuple[int, int]], /) -> None:
        """Take the sockets."""
        ...


class LoopWatch:
    """Watches each socket by the event loop itself: for systems without epoll."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_ready: OnReady) -> None:
        self._loop = loop
        self._on_ready = on_ready
        self._interests: dict[int, int] = {}

    def watch(self, fd: int, interest: int) -> None:
        """See :class:`Watch`, as for all methods here."""
        before = self._interests.get(fd, 0)
        self._interests[fd] = interest
        if interest & ~before & pycurl.POLL_IN:
            self._loop.add_reader(fd, self._on_ready, [(fd, pycurl.CSELECT_IN)])
        if interest & ~before & pycurl.POLL_OUT:
            self._loop.add_writer(fd, self._on_ready, [(fd, pycurl.CSELECT_OUT)])
        self._leave(fd, before & ~interest)

    def forget(self, fd: int) -> None:
        """Look no more."""
        self._leave(fd, self._interests.pop(fd, 0))

    def _leave(self, fd: int, interest: int) -> None:
        if interest & pycurl.POLL_IN:
            self._loop.remove_reader(fd)
        if interest & pycurl.POLL_OUT:
            self._loop.remove_writer(fd)

    def close(self) -> None:
        """Look at nothing any more."""
        for fd in list(self._interests):
            self.forget(fd)


class EpollWatch:
    """Watches all sockets by one epoll, and has the event loop watch that.

    A socket that is forgotten stays in the epoll until it speaks or is closed (the kernel then takes it out),
    for nearly always it is the connection on which the next request goes out.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_ready: OnReady) -> None:
        self._loop = loop
        self._on_ready = on_ready
        self._epoll = select.epoll()
        self._interests: dict[int, int] = {}
        """By socket, for those that curl is interested in."""
        self._left: set[int] = set()
        """Sockets that are forgotten, and may be in the epoll still."""
        loop.add_reader(self._epoll.fileno(), self._look)

    def watch(self, fd: int, interest: int) -> None:
        """See :class:`Watch`, as for all methods here."""
        events = _EVENTS[interest]
        known = fd in self._interests or fd in self._left
        self._left.discard(fd)
        self._interests[fd] = interest
        if known:
            try:
                self._epoll.modify(fd, events)
            except FileNotFoundError:  # it was closed, and its number given to another socket
                self._epoll.register(fd, events)
        else:
            self._epoll.register(fd, events)

    def forget(self, fd: int) -> None:
        """Look no more, as seen from outside."""
        if self._interests.pop(fd, None) is not None:
            self._left.add(fd)

    def _look(self) -> None:
        ready = []
        for fd, events in self._epoll.poll(0, _EVENTS_AT_ONCE):
            interest = self._interests.get(fd)
            if (
                interest is None
            ):  # an idle connection that the server has closed: curl will see when it takes it up
                self._left.discard(fd)
                self._epoll.unregister(fd)
            elif events & ~_PLAIN_EVENTS:
                ready.append((fd, interest | pycurl.CSELECT_ERR if events & select.EPOLLERR else interest))
            else:
                ready.append((fd, _MASKS[events]))
        if ready:
            self._on_ready(ready)

    def close(self) -> None:
        """Look at nothing any more."""
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
