"""The watchdog: starts the browser, and ends when the browser, its driver or its worker ends.

The driver starts it as ``python -I -S watchdog.py FOLDER PROGRAM FLAG...``, as the leader of a new process group. FOLDER
contains the profile and a FIFO that the worker holds open. This file imports nothing from skitter, because it has to start
quickly and must not depend on the folder in which it runs.
"""

import contextlib
import os
import select
import shutil
import signal
import sys
import time

LIFELINE = "worker"
"""Name of the FIFO in the folder."""
GROUP = "group"
"""Name of the file that holds the process group, for the worker."""
_POLL_INTERVAL = 0.25
_DELETION_TIMEOUT = 1.0
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Run until the browser, the driver or the worker has ended. Then kill the process group and delete the folder."""
    folder, program = sys.argv[1:3]
    os.environ["TMPDIR"] = folder  # temporary files of the browser are deleted with the folder
    driver = os.getppid()
    lifeline = os.open(os.path.join(folder, LIFELINE), os.O_RDONLY | os.O_NONBLOCK)  # noqa: PTH118 - importing pathlib takes 10 ms
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the driver or the worker decides
    child_ended, wakeup = os.pipe()
    for end in (child_ended, wakeup):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wakeup)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # only handled signals are written to the pipe
    browser = _start(program, sys.argv[2:])
    draft = os.path.join(folder, GROUP + "~")  # noqa: PTH118 - importing pathlib takes 10 ms
    with open(draft, "w", encoding="ascii") as file:  # noqa: PTH123 - importing pathlib takes 10 ms
        file.write(f"{os.getpgrp()} {browser} {driver}")
    os.rename(draft, os.path.join(folder, GROUP))  # noqa: PTH104, PTH118 - importing pathlib takes 10 ms
    worker_ended, status = False, None
    while status is None and not worker_ended and os.getppid() == driver:
        select.select([lifeline, child_ended], [], [], _POLL_INTERVAL)
        with contextlib.suppress(BlockingIOError):
            os.read(child_ended, 64)
        worker_ended = has_ended(lifeline)
        found, code = os.waitpid(browser, os.WNOHANG)
        status = code if found else None
    if status is None:
        os.kill(browser, signal.SIGKILL)
        os.waitpid(browser, 0)
    if worker_ended and os.getppid() == driver:
        with contextlib.suppress(ProcessLookupError):
            os.kill(driver, signal.SIGKILL)
    deadline = time.monotonic() + _DELETION_TIMEOUT
    while os.path.exists(folder) and time.monotonic() < deadline:  # noqa: PTH110 - the renderers are just ending, and may still write
        delete(folder)
    os.killpg(0, signal.SIGKILL)


def delete(folder: str) -> None:
    """Delete the folder, and its FIFO last: without the FIFO, other workers could not detect an abandoned folder.

    Files that a process is still writing remain. Call this again until the folder is gone.
    """
    with contextlib.suppress(OSError):
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                elif entry.name != LIFELINE:
                    with contextlib.suppress(OSError):  # a process may have deleted it
                        os.unlink(entry.path)  # noqa: PTH108 - importing pathlib takes 10 ms
        if os.listdir(folder) in ([LIFELINE], []):  # noqa: PTH208 - importing pathlib takes 10 ms
            shutil.rmtree(folder, ignore_errors=True)


def has_ended(lifeline: int) -> bool:
    """Return whether no process holds the FIFO open for writing. Nothing is ever written to it.

    ``select`` is not enough: it never reports the end of a worker that was killed before the FIFO was opened here.
    """
    try:
        return os.read(lifeline, 1) == b""
    except BlockingIOError:
        return False


def _start(program: str, command: list[str]) -> int:
    """Start the browser with the file descriptors of this process, which include the pipe to the driver."""
    watchdog = os.getpid()
    browser = os.fork()
    if browser:
        for number in (3, 4):  # the browser has its own copies of the pipe
            with contextlib.suppress(OSError):
                os.close(number)
        return browser
    try:
        if sys.platform == "linux":
            import ctypes  # noqa: PLC0415 - only for the child

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == watchdog:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            os.execv(program, command)  # noqa: S606 - the browser that the settings name
    finally:
        os._exit(127)


if __name__ == "__main__":
    main()
