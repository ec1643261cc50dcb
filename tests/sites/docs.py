"""A real site: the HTML documentation of Python 3.11 from its Debian package."""

import os
import shutil
import subprocess
from pathlib import Path

PACKAGE = "python3.11-doc"
_HTML = Path("usr/share/doc/python3.11/html")
_PATIENCE_SECONDS = 120


class DocsUnavailable(Exception):
    """The package cannot be downloaded; the message gives the reason."""


def cache_folder():
    """Folder of downloaded packages that is kept between test runs: ``SKITTER_TEST_CACHE``, or a folder in the user's cache."""
    return Path(os.environ.get("SKITTER_TEST_CACHE") or Path.home() / ".cache" / "skitter-tests")


def docs_folder():
    """Return the folder with the unpacked HTML. Downloads it on first use. Needs no root permissions.

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
    # Unpack into a temporary folder and rename it, because two test runs may do this at the same time.
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
