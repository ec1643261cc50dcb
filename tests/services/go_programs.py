"""Servers that the tests build with Go from modules next to this file, once for all runs."""

import fcntl
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

BUILT = Path(__file__).parents[2] / ".cache"
GO_FOLDERS = ("/usr/local/go/bin", "/usr/lib/go/bin")


def find_go() -> str | None:
    """Return the Go command: the one on the path, or the one in the folder of Go's installer."""
    return shutil.which("go") or next(
        (found for folder in GO_FOLDERS if (found := shutil.which("go", path=folder))), None
    )


@cache
def go_program(module: str, name: str, packages: tuple[str, ...] = (".",), tags: str = "") -> str:
    """Return a program of a module. Builds it if needed, or skips the test with the reason.

    ``packages``: all packages that are built together, each a program.
    """
    folder = BUILT / module
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other test processes may build it at the same time
        if not (folder / name).is_file():
            _build(module, packages, tags)
    return str(folder / name)


def _build(module: str, packages: tuple[str, ...], tags: str) -> None:
    go = find_go()
    if go is None:
        pytest.skip(f"no {module}: install Go 1.22 or newer, with which the tests build it")
    done = subprocess.run(
        [go, "build", "-buildvcs=false", f"-tags={tags}", "-o", f"{BUILT / module}/", *packages],
        cwd=Path(__file__).with_name(module), check=False, capture_output=True, text=True,
        env={**os.environ, "CGO_ENABLED": "0"},
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"{module} could not be built: {done.stderr.strip()[-300:]}")
