"""Tries a caller's recipe on one page, in a process with limits (``python -m skitter.service.recipe_trial``)."""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from skitter._utils.limited_process import limit_memory
from skitter.errors import FetchError, SkitterError
from skitter.request import Request
from skitter.run.job import JobSpec
from skitter.run.page_fetcher import try_callback
from skitter.service.config import child_environment
from skitter.service.errors import ApiError

_CPU_SECONDS = 10.0
_SECONDS = 45.0
"""Time that a trial may take, including fetches, in seconds."""
_MEMORY = 1 << 30
"""Memory that the process may use in addition to its code, in bytes."""
_MAX_FOUND = 200
"""Maximum number of returned items, and of returned requests."""
_AT_ONCE = asyncio.Semaphore(2)
"""Maximum concurrent trials of a node."""


class TrialCommand(msgspec.Struct):
    """What to try."""

    text: str
    syntax: str
    arguments: dict[str, Any]
    url: str | None
    """``None``: the first start URL."""
    page: str
    """Kind of the page: a name below ``pages``; empty: the first kind."""
    settings: dict[str, Any]
    """The settings that the operator decides."""


class TrialResult(msgspec.Struct):
    """The result of a trial."""

    url: str = ""
    status: int = 0
    items: list[msgspec.Raw] = []
    requests: list[dict[str, str]] = []
    total_items: int = 0
    total_requests: int = 0
    error: str = ""
    """Why there is no result; empty if there is one."""
    remedy: str = ""


async def run_trial(command: TrialCommand) -> TrialResult:
    """Run a trial in a separate process. Raises :class:`ApiError` if the process exceeds its limits."""
    async with _AT_ONCE:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "skitter.service.recipe_trial", env=child_environment(),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            async with asyncio.timeout(_SECONDS):
                output, _ = await process.communicate(msgspec.json.encode(command))
        except TimeoutError:
            output = b""
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    try:
        return msgspec.json.decode(output, type=TrialResult)
    except msgspec.MsgspecError:
        raise ApiError(
            f"the trial exceeded its limits ({_SECONDS:g} s, {_CPU_SECONDS:g} s of CPU time, 1 GB of memory)",
            remedy="make the recipe simpler, or choose a smaller page",
            field="recipe",
        ) from None


# --- in the process ------------------------------------------------------------------------------------------


async def _try(command: TrialCommand, folder: Path) -> TrialResult:
    path = folder / f"recipe.{command.syntax}"
    path.write_text(command.text, "utf-8")
    spec = JobSpec(
        job="trial",
        spider=f"{path}:Recipe",
        arguments=command.arguments,
        settings=command.settings,
        reads_references=False,
    )
    cb_kwargs = {"page": command.page} if command.page else {}
    request = None if command.url is None else Request(command.url, cb_kwargs=cb_kwargs)
    try:
        response, items, requests = await try_callback(spec, request)
    except FetchError as error:
        return TrialResult(error=f"{error.kind}: {error}", remedy=error.remedy)
    except SkitterError as error:
        return TrialResult(error=str(error).replace(f"{path}", "recipe"), remedy=error.remedy)
    return TrialResult(
        url=response.url, status=response.status, items=items[:_MAX_FOUND],
        requests=[found._asdict() for found in requests[:_MAX_FOUND]],
        total_items=len(items), total_requests=len(requests),
    )  # fmt: skip


def main() -> None:
    """Try the recipe that standard input names, and print the result as JSON."""
    limit_memory(_MEMORY)
    command = msgspec.json.decode(sys.stdin.buffer.read(), type=TrialCommand)
    signal.setitimer(signal.ITIMER_PROF, _CPU_SECONDS)
    with tempfile.TemporaryDirectory() as folder:
        result = asyncio.run(_try(command, Path(folder)))
    sys.stdout.buffer.write(msgspec.json.encode(result))


if __name__ == "__main__":
    main()
