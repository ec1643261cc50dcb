"""JobFolder and JobSpec: the folder of a job on this machine, and its specification."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import resource
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import xxhash

from skitter.errors import FrontierError, UsageError, close_names
from skitter.frontier.embedded.lock import OwnerLock
from skitter.secrets import is_secret_name, stored_arguments, stored_settings, without_secrets

log = logging.getLogger("skitter.crawl")

if TYPE_CHECKING:
    SpiderName = Any
    """A string. The constructor also accepts a class, but the field itself is always a string."""
    TextOrPath = Any
    """A string. The constructor also accepts a path."""
else:
    SpiderName = TextOrPath = str

HOME = ".skitter"
"""Folder of all jobs, in the working directory."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_FORMAT = 1
RECIPES = (".yaml", ".yml", ".toml")
"""Suffixes of recipe files."""
_MIN_WORKER_MEMORY = 10_000_000
"""Bytes. An idle worker process was measured to have 14 MB of its own."""
_FILES_PER_WORKER = 4
"""Files that the owner of a job opens for each worker process: two pipes, a handle and a connection."""
_MAX_SOCKET_PATH = 100
"""Maximum length of a socket's path in bytes. Kernels allow 104 (macOS) to 108 (Linux)."""


class JobSpec(msgspec.Struct, kw_only=True):
    """The specification of a job: everything that a process needs to work on it."""

    job: str
    origin: str = ""
    """The name under which the job was created, if its folder was renamed later. Empty: ``job``."""
    spider: SpiderName
    """``FILE.py:Class`` or ``package.module:Class``. A class is replaced by its name."""
    spider_title: str = ""
    """The name of the spider for display, if another program runs the job. Empty: ``spider``."""
    arguments: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    """Settings that override the settings of the spider."""
    outputs: list[TextOrPath] = []
    frontier: str = "sqlite:"
    """The URL of the frontier. It is stored without secrets, like the URLs of outputs and proxies."""
    workers: int = 1
    queues: dict[str, int] = {}
    """The queues to serve, each with the number of its own worker processes. Queues with 0 share the ``workers``.
    Empty: the ``workers`` serve all queues."""
    home: TextOrPath = HOME
    reads_references: bool = True
    """Whether ``env:NAME`` and ``file:PATH`` in arguments, headers and proxies are replaced by the secrets they refer to. A
    service does not allow this, because its callers could read its environment and its files."""
    left_out: list[str] = []
    """In a stored specification: arguments and settings that are stored without their secrets."""
    left_streams: dict[str, int] = {}
    """The streams of former outputs, each with the number of items that the job had found at the end of its last run with
    that stream."""
    fingerprint_seed: int | None = None
    """The secret in the ids of items, so that a frontier that has lost the job creates it with the same ids."""
    format: int = _FORMAT

    def __post_init__(self) -> None:
        if isinstance(self.spider, type):
            self.spider = f"{self.spider.__module__}:{self.spider.__qualname__}"
        outputs: Any = self.outputs
        if isinstance(outputs, (str, os.PathLike)):
            raise UsageError(
                f"outputs of job {self.job!r} is not a list: {str(outputs)!r:.80}",
                remedy=f"write outputs=[{str(outputs)!r:.80}]",
                field="outputs",
            )
        if not isinstance(self.workers, int) or self.workers < 1:
            raise UsageError(
                f"workers of job {self.job!r} is {self.workers!r}",
                remedy="give an integer, 1 or more",
                field="workers",
            )
        # A program may pass paths.
        self.outputs, self.spider, self.home = [*map(str, outputs)], str(self.spider), str(self.home)
        if is_embedded(self.frontier):  # otherwise the frontier of SQLite: would be in memory
            scheme, _, path = self.frontier.partition(":")
            self.frontier = f"{scheme.lower()}:{path}"

    @property
    def created_as(self) -> str:
        """The name of the job in the ids of its items and on servers. It stays the same when the folder is renamed."""
        return self.origin or self.job

    @property
    def is_in_memory(self) -> bool:
        """Whether the frontier is lost when the run ends."""
        return self.frontier.startswith("memory:")

    def queues_per_worker(self) -> list[list[str]]:
        """Return the queues that each worker process serves; empty: all."""
        return queues_per_worker(self.workers, self.queues)


def is_embedded(frontier: str) -> bool:
    """Return whether a frontier belongs to one machine."""
    return frontier.partition(":")[0].lower() in {"memory", "sqlite"}


def queues_per_worker(workers: int, queues: Mapping[str, int]) -> list[list[str]]:
    """Return the queues that each worker process serves; empty: all. ``queues``: see :attr:`JobSpec.queues`.

    Raises :class:`~skitter.errors.UsageError` for more processes than this machine can run.
    """
    number = workers + sum(queues.values())
    if number > (most := _max_workers()):
        raise UsageError(
            f"{number:,} worker processes are more than the {most:,} for which this machine has memory and open files",
            remedy="start fewer (one for each processor is enough), or raise `ulimit -n` if it is the limit",
            field="workers",
        )
    common = [queue for queue, processes in queues.items() if not processes]
    lists = [common] * workers if common or not queues else []
    return lists + [[queue] for queue, processes in queues.items() for _ in range(processes)]


def _max_workers() -> int:
    """Return the number of worker processes that fit on this machine even if they fetch nothing."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _MIN_WORKER_MEMORY
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return memory if files == resource.RLIM_INFINITY else min(memory, files // _FILES_PER_WORKER)


def split_reference(spider: str) -> tuple[str, str]:
    """Split ``FILE:Class`` or ``MODULE:Class`` into file or module and class, which may be empty."""
    place, colon, name = spider.rpartition(":")
    return (place, name) if colon and name.isidentifier() else (spider, "")


def is_file(place: str) -> bool:
    """Return whether a spider is in a file, a Python file or a recipe, and not in a module."""
    return place.endswith((".py", *RECIPES))


def is_job_name(name: str) -> bool:
    """Return whether a job may have this name."""
    return _NAME.fullmatch(name) is not None


class JobFolder:
    """The folder of a job: frontier, part files and specification.

    Raises :class:`~skitter.errors.UsageError` for an invalid name of a job.
    """

    def __init__(self, job: str, home: str | Path = HOME) -> None:
        if not is_job_name(job):
            raise UsageError(
                f"invalid job name: {job!r:.120}",
                remedy="use at most 100 letters, digits, dots, dashes and underscores; the first is a letter or a digit",
                field="job",
            )
        self.job = job
        self.path = Path(home) / job

    @property
    def spec_path(self) -> Path:
        """The file with the specification of the job."""
        return self.path / "job.json"

    @property
    def socket(self) -> Path:
        """The socket on which the owner of the frontier listens while the job runs.

        If the path is too long for a socket (``sun_path``, unix(7)), the socket is in a folder in the folder for temporary
        files. Raises :class:`~skitter.errors.UsageError` if other users can change the folder: one of them has created it.
        """
        path = self.path.resolve() / "owner.sock"
        if len(os.fsencode(path)) <= _MAX_SOCKET_PATH:
            return path
        import tempfile  # noqa: PLC0415 - few jobs need it

        folder = Path(tempfile.gettempdir()) / f"skitter-{os.getuid()}"
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()  # do not follow a link
        is_private = stat.S_ISDIR(found.st_mode) and not found.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
        if not is_private or found.st_uid != os.getuid():
            raise UsageError(
                f"{folder} is not a folder that only you can use",
                remedy="remove it, or use a job folder with a shorter path",
            )
        return folder / f"{xxhash.xxh3_64_hexdigest(os.fsencode(path))}.sock"

    def exists(self) -> bool:
        """Return whether the job exists."""
        return self.spec_path.is_file()

    def read(self) -> JobSpec:
        """Return the specification of the job.

        Raises :class:`~skitter.errors.UsageError` if the job does not exist, or if the file cannot be read.
        """
        try:
            spec = msgspec.json.decode(self.spec_path.read_bytes(), type=JobSpec)
        except FileNotFoundError:
            jobs = [folder.job for folder in all_jobs(self.path.parent)]
            near = close_names(self.job, jobs)
            raise UsageError(
                f"there is no job {self.job!r} in {self.path.parent}",
                remedy=f"did you mean {near[0]}?"
                if near
                else "list the jobs here with `skitter jobs`, or name the server of the job with --frontier",
            ) from None
        except (OSError, msgspec.MsgspecError) as error:
            raise UsageError(
                f"{self.spec_path} cannot be read: {error}",
                remedy="delete this file and repeat the command that started the job, which writes it again",
            ) from error
        if spec.job != self.job:
            spec.origin, spec.job = spec.created_as, self.job
        spec.home = str(self.path.parent)
        spec.spider = self._absolute(spec.spider, self._base)
        if spec.format != _FORMAT:
            raise UsageError(
                f"job {self.job!r} has format {spec.format}; this version of skitter reads format {_FORMAT}",
                remedy="use the version of skitter that created it, or start again with --fresh",
            )
        return spec

    def how_to_continue(self) -> str:
        """Return what continues a stopped job, for messages: a command, or the next run of the program that runs the job."""
        program = self.read().spider_title
        return f"the next run of {program}" if program else f"`skitter resume {self.job}`"

    def write(self, spec: JobSpec) -> None:
        """Store the specification of the job, without secrets; references to them are kept.

        Raises :class:`~skitter.errors.UsageError` if the folder cannot be written, or a path is not valid Unicode.
        """
        kept = msgspec.structs.replace(_kept(spec), spider=self._portable(spec.spider))
        try:
            content = msgspec.json.format(msgspec.json.encode(kept))
        except UnicodeEncodeError as error:  # a file name in another encoding than that of the locale
            raise UsageError(
                f"the spider or an output has a file name that is not valid Unicode: {error.object!a}",
                remedy="rename the file, or choose a locale with UTF-8",
            ) from None
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary = self.spec_path.with_suffix(".tmp")
            temporary.write_bytes(content)
            temporary.replace(self.spec_path)
        except OSError as error:
            raise UsageError(
                f"{self.path} cannot be written: {error.strerror}",
                remedy="check the working directory and its permissions",
            ) from error

    def lock(self) -> OwnerLock:
        """Return the lock of the process that runs or changes the job on this machine."""
        return OwnerLock(
            self.path / "job",
            folder_remedy="check the folder and its permissions, or start the job in a folder that you may write:"
            " every job needs a folder, whatever its frontier",
        )

    def is_being_run(self) -> bool:
        """Return whether a process on this machine runs or changes the job."""
        lock = self.lock()
        try:
            lock.acquire()
        except FrontierError:
            return True
        lock.release()
        return False

    def empty(self) -> None:
        """Delete everything in the folder. The outputs of the job stay. The caller must hold the lock."""
        import shutil  # noqa: PLC0415 - for --fresh

        for entry in self.path.iterdir():
            if entry.name == "job.lock":
                continue  # the next process must use the same lock file
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink(missing_ok=True)

    def check(self, spec: JobSpec) -> None:
        """Check whether a run may continue the job.

        A spider of the same name continues the job if the file of the old spider no longer exists, because it was moved.
        Raises :class:`~skitter.errors.UsageError` if the job was started with another spider, other arguments or another
        frontier, because the run would mix two crawls.
        """
        if not self.exists():
            return
        # Older versions of skitter stored secrets.
        before, now = _kept(self.read()), _kept(spec)
        spider = self._absolute(spec.spider, Path.cwd())
        if before.spider != spider:
            self._check_moved(before.spider, spider)
        for field, difference, remedy in (
            ("arguments", "other arguments", f"continue it with these by `skitter resume {self.job}`"),
            ("frontier", "another frontier", "write --frontier as before"),
        ):
            if _compared(before, field) != _compared(now, field):
                value = getattr(before, field)
                raise UsageError(
                    f"job {self.job!r} was started with {difference}: {f'{value!r:.200}' if value else 'none'}",
                    remedy=f"{remedy}, or choose another name with --job to start another job",
                    field=field,
                )
        if before.frontier.startswith("sqlite:"):
            self._check_frontier_file(before.frontier)

    def check_frontier_owner(self, spec: JobSpec) -> None:
        """Check that the frontier file that a specification names does not belong to another job.

        The frontier checks it too, but only after ``--fresh`` has emptied the folder of the job, and not while another
        job is using the file. Raises :class:`~skitter.errors.FrontierError`.
        """
        if spec.frontier.startswith("sqlite:") and spec.frontier != "sqlite:":
            from skitter.frontier.embedded.tables import check_owner, file_of  # noqa: PLC0415 - most jobs name no file

            check_owner(file_of(spec.frontier, self.path), spec.created_as)

    def _check_frontier_file(self, frontier: str) -> None:
        """Check that the frontier file of a started job exists. With a new file, the job would silently start over."""
        from skitter.frontier.embedded.tables import file_of  # noqa: PLC0415 - reading a job does not need it

        path = file_of(frontier, self.path)
        files = (path, path.with_name(f"{path.name}-wal"))
        if not any(file.exists() and file.stat().st_size for file in files):
            raise UsageError(
                f"the frontier of job {self.job!r} is missing or empty: {path}",
                remedy="restore the file, or start the job again with --fresh, which replaces its outputs",
                field="frontier",
            )

    def _check_moved(self, before: str, now: str) -> None:
        """Check whether the spider ``now`` is the spider ``before`` after a move."""
        (old_place, old_class), (_, new_class) = split_reference(before), split_reference(now)
        if old_class == new_class and is_file(old_place) and not Path(old_place).exists():
            log.info("the spider of job %s has moved from %s to %s", self.job, before, now)
            return
        raise UsageError(
            f"job {self.job!r} was started with another spider: {before}",
            remedy=f"if this spider should continue it, run `skitter resume {self.job} --spider {now}`;"
            " to start another job, choose another name with --job",
            field="spider",
        )

    def adopt(self, spec: JobSpec) -> None:
        """Copy the first name, the former outputs and the secret of the job in this folder to a specification."""
        if self.exists():
            before = self.read()
            spec.origin, spec.left_streams = before.origin, before.left_streams
            spec.fingerprint_seed = before.fingerprint_seed

    @property
    def _base(self) -> Path:
        """The folder that moves together with the job: the parent of the job's home."""
        return self.path.parent.resolve().parent

    def _portable(self, spider: str) -> str:
        """Return a spider as it is stored: relative to the folder that moves together with the job."""
        place, name = split_reference(self._absolute(spider, Path.cwd()))
        if is_file(place) and Path(place).is_relative_to(self._base):
            place = str(Path(place).relative_to(self._base))
        return f"{place}:{name}" if name else place

    @staticmethod
    def _absolute(spider: str, base: Path) -> str:
        place, name = split_reference(spider)
        if is_file(place):
            place = str((base / place).resolve())
        return f"{place}:{name}" if name else place


def _kept(spec: JobSpec) -> JobSpec:
    """Return the specification without secrets. The next run must supply them again."""
    arguments, settings = stored_arguments(spec.arguments), stored_settings(spec.settings)
    lost = [f"argument {name}" for name, value in spec.arguments.items() if arguments[name] != value]
    lost += [name for name, value in spec.settings.items() if settings[name] != value]
    return msgspec.structs.replace(
        spec,
        frontier=without_secrets(spec.frontier),
        outputs=[without_secrets(target) for target in spec.outputs],
        arguments=arguments,
        settings=settings,
        left_out=lost,
    )


def _compared(spec: JobSpec, field: str) -> Any:
    """Return a field that a run has to repeat, without its secrets: they may change, or become references."""
    if field == "frontier":
        from skitter.frontier.registry import location_of  # noqa: PLC0415 - a worker of the owner needs no frontiers

        return location_of(spec.frontier)
    value = getattr(spec, field)
    if field != "arguments":
        return value
    plain = {k: v for k, v in value.items() if not is_secret_name(k)}
    # A program may pass dates and tuples, which are stored as JSON.
    return msgspec.json.decode(msgspec.json.encode(plain, enc_hook=repr))


def all_jobs(home: str | Path = HOME) -> Iterator[JobFolder]:
    """Yield all jobs in a folder, by name."""
    for spec_path in sorted(Path(home).glob("*/job.json")):
        if is_job_name(spec_path.parent.name):
            yield JobFolder(spec_path.parent.name, home)
