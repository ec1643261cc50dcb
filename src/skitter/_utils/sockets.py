"""What the kernel knows about a connection."""

from __future__ import annotations

import socket
import sys

_TCP_INFO = socket.TCP_INFO if sys.platform == "linux" else None
_LAST_RECEIVED = slice(52, 56)
"""Position of ``tcpi_last_data_recv``, in milliseconds, in Linux's ``struct tcp_info``."""
_TICK = 0.01
"""The longest tick of a Linux kernel, in seconds."""


def seconds_since_arrival(connection: socket.socket) -> float:
    """Return the minimum time since the last data of a TCP connection arrived, in seconds.

    0 if the kernel does not report it. Raises :class:`OSError` for other sockets.
    """
    if _TCP_INFO is None:
        return 0.0
    info = connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _LAST_RECEIVED.stop)
    # The kernel counts in ticks. Without subtracting one, data might seem to have arrived before it was sent.
    return max(0.0, int.from_bytes(info[_LAST_RECEIVED], sys.byteorder) / 1000 - _TICK)
