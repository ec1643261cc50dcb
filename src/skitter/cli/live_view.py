"""A live table on the terminal that is updated in place until q or Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import termios
import tty
from collections.abc import Awaitable, Callable, Iterator

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from skitter._utils.concurrency import wait_until_set
from skitter._utils.visible import visible
from skitter.cli.tables import status_lines, top_rows
from skitter.errors import SkitterError
from skitter.run.job_access import JobStatus

ReadJobs = Callable[[], Awaitable[list[JobStatus]]]

_HINT = "q: quit"


async def watch_jobs(read_jobs: ReadJobs, interval: float, *, detailed: bool) -> None:
    """Show jobs repeatedly until the user ends the display. ``detailed``: show all details of each job.

    Raises :class:`~skitter.errors.SkitterError` if the jobs cannot be read at first.
    """
    console = Console()
    shown: RenderableType = _shown(await read_jobs(), console.width, detailed=detailed)
    quit_requested = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, quit_requested.set)
    with _keys(quit_requested), Live(console=console, screen=True, auto_refresh=False) as live:
        while not quit_requested.is_set():
            live.update(Group(shown, Text(), Text(_HINT, style="dim")), refresh=True)
            await wait_until_set(quit_requested, interval)
            try:
                shown = _shown(await read_jobs(), console.width, detailed=detailed)
            except SkitterError as error:  # the jobs may become readable again, and the user can quit
                shown = Text(visible(str(error)), style="red")


def _shown(jobs: list[JobStatus], width: int, *, detailed: bool) -> RenderableType:
    if detailed:
        return painted_status("\n\n".join(status_lines(job, width) for job in jobs), no_wrap=True)
    return live_table(jobs, width)


_COLORS = {
    "running": "green", "finished": "green", "paused": "yellow", "stopping": "yellow", "stopped": "yellow", "incomplete": "red",
}  # fmt: skip
"""Colors of the states of jobs."""
_FAILED = "red"


def print_status(text: str) -> None:
    """Print the result of :func:`~skitter.cli.tables.status_lines` on a terminal."""
    Console().print(painted_status(text), soft_wrap=True)


def painted_status(text: str, *, no_wrap: bool = False) -> Text:
    """Return the result of :func:`~skitter.cli.tables.status_lines` in colors."""
    shown = Text(text, no_wrap=no_wrap)
    for state, color in _COLORS.items():
        shown.highlight_regex(rf"(?m)(?<=^state {{6}}){state}", color)
    shown.highlight_regex(r"(?m)^failed +[1-9].*|^violated .*|^unwritten .*", _FAILED)
    shown.highlight_regex(r"(?m)^waits .*|^elsewhere .*", "yellow")
    shown.highlight_regex(r"(?m)^WORKER .*", "bold")
    return shown


def live_table(jobs: list[JobStatus], width: int) -> Table:
    """Return jobs as a table of at most ``width`` characters, for ``skitter top``."""
    header, *rows = top_rows(jobs, width)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for place, column in enumerate(zip(header, *rows, strict=True)):
        longest = max(map(len, column))  # a long name of a job is cut, its numbers are not
        table.add_column(
            column[0],
            justify="left" if place < 2 else "right",
            no_wrap=True,
            min_width=min(longest, 12) if place == 0 else longest,
        )
    failed = header.index("FAILED") if "FAILED" in header else None
    for job, row in zip(jobs, rows, strict=True):
        cells = [Text(visible(cell)) for cell in row]
        cells[1].stylize(_COLORS.get(job.state, ""))
        if failed is not None and row[failed] not in {"0", "-"}:
            cells[failed].stylize(_FAILED)
        table.add_row(*cells, style="bold" if job.live else "")
    return table


@contextlib.contextmanager
def _keys(quit_requested: asyncio.Event) -> Iterator[None]:
    """Read single keys from the terminal, and restore its mode at the end."""
    if not sys.stdin.isatty():
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    loop = asyncio.get_running_loop()

    def read_key() -> None:
        key = os.read(descriptor, 1)
        if key in {b"q", b"Q", b"\x1b", b""}:
            quit_requested.set()

    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, read_key)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
