"""BrowserProcess: the driver and the browser of one worker, from their start to the end of their last process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skitter.browser.errors import BrowserGone, first_line
from skitter.browser.executable import PROFILE, command
from skitter.browser.watchdog import GROUP, LIFELINE, delete, has_ended
from skitter.errors import UsageError
from skitter.settings import Settings

if TYPE_CHECKING:
    from playwright.async_api import Browser

log = logging.getLogger("skitter.browser")

_START_TIMEOUT = 30.0
_CLOSE_TIMEOUT = 2.0
_WATCHDOG_TIMEOUT = 10.0
"""Seconds within which a watchdog reports its process group."""
_FOLDER_PREFIX = "skitter-browser-"
_MAX_TEMPORARY = 30
"""Maximum length of the path of a folder for temporary files in which a browser can start."""
_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
_PREFERENCES = '{"net":{"network_prediction_options":2}}'
"""Preferences of the profile: load no document before a page asks for it. Chromium has no flag for that."""


class BrowserProcess:
    """One browser with its driver. Create it with :meth:`start`."""

    def __init__(self, driver: Any, browser: Browser, folder: str, lifeline: int) -> None:
        self._driver = driver
        self._closing: asyncio.Future[None] | None = None
        self.browser = browser
        self._folder = folder
        self._lifeline = lifeline
        self._group, self._main, self._driver_pid = _read_group(folder) if folder else (0, 0, 0)
        self.pages = 0
        """Number of pages that it has loaded."""
        self.users = 0
        """Number of pages that it is loading."""
        self.retired = False
        """Whether it loads no further pages."""
        self.ended = asyncio.Event()
        browser.on("disconnected", lambda _browser: self.ended.set())

    @classmethod
    async def start(cls, settings: Settings) -> BrowserProcess:
        """Start a browser, or connect to the browser of the setting ``browser_url``.

        Raises :class:`BrowserGone` if it does not start in time, and :class:`~skitter.errors.UsageError` if it is missing.
        """
        playwright = await asyncio.to_thread(_load_playwright)
        folder, lifeline = ("", -1) if settings.browser_url else await asyncio.to_thread(_make_folder)
        starting = asyncio.ensure_future(playwright().start())
        try:
            async with asyncio.timeout(_START_TIMEOUT):
                with _temporary_files_in(folder):
                    # Playwright loses track of a driver whose start is cancelled.
                    driver = await asyncio.shield(starting)
                if settings.browser_url:
                    browser = await driver.chromium.connect_over_cdp(settings.browser_url)
                else:
                    browser = await driver.chromium.launch(
                        executable_path=sys.executable,
                        args=await asyncio.to_thread(command, settings, folder),
                        ignore_default_args=True,
                        handle_sigint=False,
                        handle_sigterm=False,
                        handle_sighup=False,
                    )
                return await asyncio.to_thread(cls, driver, browser, folder, lifeline)
        except BaseException as error:
            if lifeline >= 0:
                os.close(lifeline)
            ending = asyncio.ensure_future(_end_failed_start(starting, folder))
            if not isinstance(error, Exception):
                raise  # immediately: the caller that cancels the start need not wait for the end of the driver
            await asyncio.wait({ending}, timeout=_CLOSE_TIMEOUT)
            if isinstance(error, UsageError):
                raise
            if settings.browser_url:
                problem, remedy = (
                    "no connection to the browser of browser_url",
                    "start it, or correct browser_url",
                )
            else:
                problem, remedy = "the browser does not start", "run `skitter doctor --start`"
            raise BrowserGone(f"{problem}: {first_line(error)}", remedy=remedy) from error

    @property
    def is_alive(self) -> bool:
        """Whether new pages can be opened."""
        return not self.ended.is_set() and self.browser.is_connected()

    def memory(self) -> dict[int, int]:
        """Return the resident memory of each process of the browser in bytes. Empty for a remote browser. Reads files."""
        found = {}
        for name in os.listdir("/proc") if self._group and os.path.isdir("/proc/self") else ():  # noqa: PTH112, PTH208 - hundreds of names
            if name.isdigit():
                with contextlib.suppress(OSError, ValueError, IndexError):
                    pid = int(name)
                    if os.getpgid(pid) == self._group:
                        resident, shared = Path(f"/proc/{pid}/statm").read_text("ascii").split()[1:3]
                        # Memory of the executable is shared by all processes.
                        found[pid] = (
                            max(0, int(resident) - (0 if pid == self._main else int(shared))) * _PAGE_SIZE
                        )
        return found

    @staticmethod
    def renderers_above(sizes: dict[int, int], limit: int) -> list[int]:
        """Return the renderers that use more memory than a page may. Reads files."""
        return [pid for pid, size in sizes.items() if size > limit and _is_renderer(pid)]

    async def close(self) -> None:
        """Kill the browser, and end the driver. Further calls wait for the first call.

        The profile is deleted, so a regular end of the browser would save nothing. The watchdog runs until the end, so that
        nothing is left behind if this process is killed in the meantime.
        """
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._end())
        await asyncio.shield(self._closing)  # cancelling a caller must not leave a driver that hangs

    async def _end(self) -> None:
        self.ended.set()
        if self._lifeline >= 0:
            await asyncio.to_thread(self._kill_browser)
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await self._driver.stop()
        except Exception as error:  # noqa: BLE001 - a broken driver may raise anything
            log.info("the driver of the browser did not end by itself: %s", first_line(error))
        if self._lifeline >= 0:
            await asyncio.to_thread(self._clean_up)

    def _kill_browser(self) -> None:
        # While the folder exists, the watchdog has not reaped the browser, so its process id is still valid.
        if Path(self._folder).exists():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self._main, signal.SIGKILL)

    def _clean_up(self) -> None:
        """Kill a driver that hangs, and wait until the watchdog has killed the group and deleted the profile."""
        os.close(self._lifeline)
        self._lifeline = -1
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if _is_child(self._driver_pid):
                os.kill(self._driver_pid, signal.SIGKILL)
        folder, deadline = Path(self._folder), time.monotonic() + _CLOSE_TIMEOUT / 2
        while folder.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        if folder.exists():  # the watchdog was killed
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._group, signal.SIGKILL)
        deadline = time.monotonic() + _CLOSE_TIMEOUT
        while folder.exists() and time.monotonic() < deadline:  # a process may still write files
            delete(self._folder)
            time.sleep(0.01)
        delete_left_folders()


async def _end_failed_start(starting: asyncio.Future[Any], folder: str) -> None:
    """End the driver of a browser that was not started. Its lifeline is closed, so a watchdog ends by itself."""
    with contextlib.suppress(Exception):  # the driver did not start, or was killed
        await (await starting).stop()
    if folder:
        await asyncio.to_thread(delete, folder)


class _DriverEnded(logging.Filter):
    """Hides asyncio's log records about calls that were in progress when a driver was killed. Their callers get an error."""

    _TEXTS = ("Connection closed while reading from the driver", "the handler is closed")

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log a record."""
        error = record.exc_info[1] if record.exc_info else None
        return not any(text in str(error) for text in self._TEXTS)


def _load_playwright() -> Any:
    logging.getLogger("asyncio").addFilter(_DRIVER_ENDED)
    from playwright.async_api import async_playwright  # noqa: PLC0415 - takes 0.3 s, and is optional

    return async_playwright


def _temporary_folder() -> str:
    """Return the folder for profiles. The browser creates a socket in it, whose path may have about a hundred characters."""
    usual = tempfile.gettempdir()
    return "/tmp" if len(usual) > _MAX_TEMPORARY and os.access("/tmp", os.W_OK) else usual  # noqa: S108 - mkdtemp is safe


def _make_folder() -> tuple[str, int]:
    """Create the folder of a profile and its lifeline. Return the folder and the descriptor that this process keeps open."""
    folder = tempfile.mkdtemp(prefix=_FOLDER_PREFIX, dir=_temporary_folder())
    profile = Path(folder, PROFILE, "Default")
    profile.mkdir(parents=True)
    Path(profile, "Preferences").write_text(_PREFERENCES, "ascii")
    fifo = str(Path(folder) / LIFELINE)
    os.mkfifo(fifo, 0o600)
    return folder, os.open(fifo, os.O_RDWR | os.O_CLOEXEC)


def delete_left_folders() -> None:
    """Delete the folders of workers that were killed before their watchdog ran, or together with it."""
    for folder in Path(_temporary_folder()).glob(_FOLDER_PREFIX + "*"):
        with contextlib.suppress(OSError):  # it belongs to another user, or was just deleted
            # Raises an error if the FIFO does not exist yet.
            lifeline = os.open(folder / LIFELINE, os.O_RDONLY | os.O_NONBLOCK)
            try:
                is_left = has_ended(lifeline)
            finally:
                os.close(lifeline)
            if is_left:
                delete(str(folder))


_DRIVER_ENDED = _DriverEnded()  # one filter, which can be added only once


@contextlib.contextmanager
def _temporary_files_in(folder: str) -> Iterator[None]:
    """Make the driver, which has no such option, write its temporary files to a folder that is deleted with the browser."""
    before = os.environ.get("TMPDIR")
    if folder:
        os.environ["TMPDIR"] = folder
    try:
        yield
    finally:
        os.environ.pop("TMPDIR", None)
        if before is not None:
            os.environ["TMPDIR"] = before


def _read_group(folder: str) -> tuple[int, int, int]:
    """Return the process group, the browser and the driver. Raises an OSError if the watchdog has ended."""
    deadline = time.monotonic() + _WATCHDOG_TIMEOUT
    while time.monotonic() < deadline:
        try:
            group, main, driver = Path(folder, GROUP).read_text("ascii").split()
            return int(group), int(main), int(driver)
        except FileNotFoundError:  # the browser has replied a moment before its watchdog continues
            os.stat(Path(folder, LIFELINE))  # noqa: PTH116 - raises the same error when the watchdog has deleted the folder
            time.sleep(0.005)
    raise TimeoutError("the watchdog of the browser does not respond")


def _is_renderer(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"--type=renderer" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _is_child(pid: int) -> bool:
    """Return whether a process is a child of this one, and not another process with the same id."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("ascii", errors="replace")
    except OSError:
        return False
    return int(text.rpartition(")")[2].split()[1]) == os.getpid()
