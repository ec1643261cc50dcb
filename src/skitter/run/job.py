"""Job: the folder of one crawl on this machine, and what it was begun with."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import xxhash

from skitter.errors import FrontierError, UsageError
from skitter.frontier.embedded.lock import OwnerLock
from skitter.secrets import without_secrets

HOME = ".skitter"
"""Folder of all jobs, below the working directory."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_PROXIES = ("proxy", "proxies")
_LOGIN = re.compile(r"^([^\s:/@]+:\d{1,5}):[^\s:]+:\S+$")
"""``HOST:PORT:USER:PASSWORD``, as vendors write proxies."""
_FORMAT = 1
_LONGEST_SOCKET_PATH = 100
"""Bytes; the kernels allow 104 (macOS) to 108 (Linux)."""


class JobSpec(msgspec.Struct, kw_only=True):
    """Everything that a process needs to work on a job."""

    job: str
    spider: str
    """``FILE.py:Class`` or ``package.module:Class``."""
    arguments: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    """What was set on top of the spider's own settings."""
    outputs: list[str] = []
    frontier: str = "sqlite:"
    """Its URL; in the note of a job without its secrets, as are the outputs and proxies."""
    workers: int = 1
    queues: dict[str, int] = {}
    """Queues that are served, each with the number of worker processes that it has for itself; 0: ``workers`` serve
    it, with all other such queues. Empty: ``workers`` serve all queues."""
    home: str = HOME
    left_out: list[str] = []
    """In the note of a job: settings whose passwords were left out of it, and cannot come from elsewhere."""
    format: int = _FORMAT

    def teams(self) -> list[list[str]]:
        """Return for each worker process the queues that it serves; none: all."""
        common = [queue for queue, processes in self.queues.items() if not processes]
        teams = [common] * self.workers if common or not self.queues else []
        return teams + [[queue] for queue, processes in self.queues.items() for _ in range(processes)]


def is_job_name(name: str) -> bool:
    """Tell whether a job may be called so."""
    return _NAME.fullmatch(name) is not None


class JobFolder:
    """The folder of a job: frontier, part files, and a note of what the job is.

    Raises, when made, :class:`~skitter.errors.UsageError` for what cannot be the name of a job.
    """

    def __init__(self, job: str, home: str | Path = HOME) -> None:
        if not is_job_name(job):
            raise UsageError(
                f"{job!r} is no name for a job", remedy="use letters, digits, dots, dashes and underscores"
            )
        self.job = job
        self.path = Path(home) / job

    @property
    def note(self) -> Path:
        """File that says what the job was begun with."""
        return self.path / "job.json"

    @property
    def socket(self) -> Path:
        """Where the owner of the frontier listens while the job runs.

        A path that is too long for a socket (``sun_path``, unix(7)) is replaced by one in the folder for temporary
        files. Raises :class:`~skitter.errors.UsageError` if that belongs to another user.
        """
        path = self.path.resolve() / "owner.sock"
        if len(os.fsencode(path)) <= _LONGEST_SOCKET_PATH:
            return path
        folder = Path(tempfile.gettempdir()) / f"skitter-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid != os.getuid():
            raise UsageError(
                f"{folder} belongs to somebody else", remedy="use a job folder with a shorter path"
            )
        return folder / f"{xxhash.xxh3_64_hexdigest(os.fsencode(path))}.sock"

    def exists(self) -> bool:
        """Tell whether the job was ever begun."""
        return self.note.is_file()

    def read(self) -> JobSpec:
        """Return what the job was begun with.

        Raises :class:`~skitter.errors.UsageError` if there is no such job or its note cannot be read.
        """
        try:
            spec = msgspec.json.decode(self.note.read_bytes(), type=JobSpec)
        except FileNotFoundError:
            raise UsageError(
                f"there is no job {self.job!r} in {self.path.parent}", remedy="`skitter jobs` lists the jobs"
            ) from None
        except (OSError, msgspec.MsgspecError) as error:
            raise UsageError(
                f"{self.note} cannot be read: {error}", remedy="start the job anew with --fresh"
            ) from error
        if spec.format != _FORMAT:
            raise UsageError(
                f"job {self.job!r} has format {spec.format}, this skitter reads {_FORMAT}",
                remedy="use the skitter that began it, or start anew with --fresh",
            )
        return spec

    def write(self, spec: JobSpec) -> None:
        """Keep what the job was begun with, but for the secrets in the URLs of frontier, outputs and proxies.

        Raises :class:`~skitter.errors.UsageError` if the folder cannot be written.
        """
        kept = _kept(spec)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            draft = self.note.with_suffix(".tmp")
            draft.write_bytes(msgspec.json.format(msgspec.json.encode(kept)))
            draft.replace(self.note)
        except OSError as error:
            raise UsageError(
                f"{self.path} cannot be written: {error.strerror}",
                remedy="check the working directory and its permissions",
            ) from error

    def lock(self) -> OwnerLock:
        """Return the lock that the one process holds which runs or changes the job on this machine."""
        return OwnerLock(self.path / "job")

    def is_being_run(self) -> bool:
        """Tell whether a process on this machine runs or changes the job."""
        lock = self.lock()
        try:
            lock.acquire()
        except FrontierError:
            return True
        lock.release()
        return False

    def empty(self) -> None:
        """Delete everything the job kept here; its named outputs stay. Only for who holds the lock."""
        for entry in self.path.iterdir():
            if entry.name == "job.lock":
                continue  # whoever comes next must meet the same lock
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink(missing_ok=True)

    def check(self, spec: JobSpec) -> None:
        """Find out whether a run may go on with the job.

        Raises :class:`~skitter.errors.UsageError` if the job was begun with another spider, other arguments
        or on another frontier: going on would mix two crawls.
        """
        if self.exists():
            # A note of an older skitter may hold secrets.
            before, now = _kept(self.read()), _kept(spec)
            for what in ("spider", "arguments", "frontier"):
                if getattr(before, what) != getattr(now, what):
                    raise UsageError(
                        f"job {self.job!r} was begun with another {what.rstrip('s')}:"
                        f" {getattr(before, what)!r:.200}",
                        remedy="choose another name with --job, or start anew with --fresh",
                    )


def _kept(spec: JobSpec) -> JobSpec:
    """Return what may be kept of it on a disk."""
    proxies = {name: _plain(spec.settings[name]) for name in _PROXIES if name in spec.settings}
    return msgspec.structs.replace(
        spec,
        frontier=without_secrets(spec.frontier),
        outputs=[without_secrets(target) for target in spec.outputs],
        settings=spec.settings | proxies,
        left_out=[name for name, plain in proxies.items() if plain != spec.settings[name]],
    )


def _plain(value: Any) -> Any:
    """Return what a setting says of proxies without their passwords; who runs the job gives them again."""
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if not isinstance(value, str):
        return value
    return ",".join(_LOGIN.sub(r"\1", without_secrets(one)) for one in value.split(","))


def all_jobs(home: str | Path = HOME) -> Iterator[JobFolder]:
    """Give all jobs below a home, by name."""
    for note in sorted(Path(home).glob("*/job.json")):
        if is_job_name(note.parent.name):
            yield JobFolder(note.parent.name, home)
