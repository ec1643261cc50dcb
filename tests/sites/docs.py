"""A real site: the HTML documentation of Python 3.11 as Debian packages it."""

import os
import shutil
import subprocess
from pathlib import Path

PACKAGE = "python3.11-doc"
_HTML = Path("usr/share/doc/python3.11/html")
_PATIENCE_SECONDS = 120


class DocsUnavailable(Exception):
    """The package cannot be had here; says why."""


def cache_folder():
    """Where fetched packages stay between test runs: ``SKITTER_TEST_CACHE``, or a folder of the user's."""
    return Path(os.environ.get("SKITTER_TEST_CACHE") or Path.home() / ".cache" / "skitter-tests")


def docs_folder():
    """Return the folder of the unpacked HTML, fetching it the first time. Needs no root.

    Raises :class:`DocsUnavailable`.
    """
    cache = cache_folder()
    folder = cache / PACKAGE / _HTML
    if not folder.is_dir():
        for tool in ("apt-get", "dpkg-deb"):
            if shutil.which(tool) is None:
                raise DocsUnavailable(f"{PACKAGE} cannot be fetched: this machine has no {tool}")
        _fetch(cache)
    return folder


def _fetch(cache):
    cache.mkdir(parents=True, exist_ok=True)
    # Unpacked beside its place and then renamed: two test runs may do this at once.
    work = cache / f"{PACKAGE}.{os.getpid()}"
    work.mkdir()
    try:
        _run(["apt-get", "download", PACKAGE], work)
        (deb,) = work.glob("*.deb")
        _run(["dpkg-deb", "-x", str(deb), "unpacked"], work)
        target = cache / PACKAGE
        if not target.exists():
            (work / "unpacked").rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _run(command, folder):
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=False
    )
    if done.returncode != 0:
        raise DocsUnavailable(f"{PACKAGE} cannot be fetched: {done.stderr.strip()[-300:]}")
