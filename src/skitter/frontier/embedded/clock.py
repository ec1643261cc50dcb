"""The clock of a frontier that lives in one process."""

import time
from collections.abc import Callable


def steady_clock() -> Callable[[], float]:
    """Return a clock of Unix time that never jumps: the wall clock of now, moved on by the monotonic one."""
    offset = time.time() - time.monotonic()
    return lambda: offset + time.monotonic()
