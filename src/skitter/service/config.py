"""The configuration of a node: its folder, its storage, the outputs of jobs, and the code that may be run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from skitter.errors import UsageError
from skitter.frontier.registry import CLUSTER_SCHEMES, SERVER_SCHEMES
from skitter.run.job import JobFolder, JobSpec
from skitter.service.errors import ApiError
from skitter.service.items import file_location, open_items, run_target, task_target
from skitter.service.models import JobRecord, JobRun, is_name
from skitter.service.storage import AppendLog, KeyValueStore
from skitter.service.storage.redis import RedisAppendLog, RedisKeyValueStore
from skitter.service.storage.sqlite import SqliteAppendLog, SqliteKeyValueStore
from skitter.settings import api_settings

AUTH_VARIABLE = "SKITTER_SERVE_TOKEN"
"""Environment variable with the token of the API; it is not passed on to the processes of runs."""
TASK_ITEMS = "items"
"""Name of the task output that every service has: a list of the task's items, readable through the API."""
_LARGEST_INTEGER = 2**53
"""Limit of the integers that every JSON reader represents exactly."""


class RunFolder(JobFolder):
    """The folder of a run on this node. The storage of the service describes the run, so the folder may be missing."""

    def __init__(self, spec: JobSpec) -> None:
        super().__init__(spec.job, spec.home)
        self._spec = spec

    def read(self) -> JobSpec:
        """Return the description of the run."""
        return self._spec

    def is_being_run(self) -> bool:
        """Return whether a process of this node runs it."""
        return self.exists() and super().is_being_run()


class ServiceConfig(msgspec.Struct, frozen=True):
    """The configuration of a node."""

    folder: Path
    """Absolute path of the folder of this node. Nodes do not share folders."""
    store: str = "sqlite:"
    """Storage: ``sqlite:`` for files in the folder (one node), or the URL of a Valkey or Redis server (any number of nodes)."""
    spiders: Path | None = None
    """Folder of the Python spiders that may be run; ``None`` allows no Python spiders."""
    outputs: tuple[str, ...] = ()
    """Additional outputs of every job. ``{job}`` is replaced by the name of the job, ``{run}`` by the id of the run."""
    task_outputs: dict[str, str] = {}
    """Outputs that callers may choose for a task, by name. ``{task}`` is also replaced, by the name of the task."""
    allow_networks: tuple[str, ...] = ()
    """Networks outside the public internet to which jobs may connect, whatever their seeds and spiders say."""
    signing_key: str = ""
    """Reference to the key that signs the requests of all jobs; empty: requests are not signed."""
    signature_agent: str = ""
    """Address of the host that publishes the key."""
    max_jobs: int = 1000
    """Maximum number of jobs, and of recipes."""
    max_processes: int = 256
    """Maximum number of worker processes on this node, for all jobs together."""
    log_size: int = 1 << 20
    """Approximate maximum size of the log of a run, in bytes. The oldest lines are dropped."""
    log_runs: int = 5
    """Number of the newest runs of a job whose logs are kept."""

    @property
    def is_shared(self) -> bool:
        """Whether several nodes can share the storage."""
        return not self.store.startswith("sqlite:")

    def key_value_store(self) -> KeyValueStore:
        """Return the store of the records, which is not open yet. Raises :class:`~skitter.errors.SkitterError` for an invalid URL."""
        if self.store == "sqlite:":
            return SqliteKeyValueStore(self.folder / "service.db")
        scheme = self.store.partition(":")[0]
        if scheme.lower() not in {*SERVER_SCHEMES, *CLUSTER_SCHEMES}:
            raise UsageError(
                f"unknown kind of store: {scheme!r}",
                remedy="omit --store for a single node, or use redis://HOST/0 or redis+cluster://HOST:PORT/",
                field="store",
            )
        return RedisKeyValueStore(self.store)

    def items(self, run: str) -> AppendLog:
        """Return the log with the items of a run. Each task that has its own list of items is a group of the log."""
        return open_items(self.items_location(run), run)

    def items_location(self, run: str) -> str:
        """Return where the items of a run are stored, for its processes."""
        return self.store if self.is_shared else file_location(self.runs / run / "items.log")

    def log(self, run: str, writer: str = "") -> AppendLog:
        """Return the log of a run. ``writer`` is the node that appends to it."""
        if self.is_shared:  # without waiting: a writer retries later, and a reader gets the error
            return RedisAppendLog(
                self.store, run, "log", max_bytes=self.log_size, writer=writer, outage_timeout=0.0
            )
        return SqliteAppendLog(self.logs / f"{run}.log", self.log_size)

    def audit(self, writer: str = "") -> AppendLog:
        """Return the audit log. ``writer`` is the node that appends to it. Its size is unlimited: nothing is removed."""
        if self.is_shared:
            return RedisAppendLog(self.store, "", "audit", writer=writer, outage_timeout=0.0)
        return SqliteAppendLog(self.folder / "audit.log")

    @property
    def operator_settings(self) -> dict[str, Any]:
        """The settings of every job that only the operator decides."""
        networks = {"seeds_open_networks": False, "allow_networks": list(self.allow_networks)}
        return networks | {"signing_key": self.signing_key, "signature_agent": self.signature_agent}

    def spec(self, job: JobRecord, run: JobRun) -> JobSpec:
        """Return the description of a run for its processes. Raises :class:`ApiError` for a spider that is not allowed."""
        outputs = [run_target(self.items_location(run.id))]
        outputs += [_with_names(output, job, run) for output in self.outputs]
        arguments = job.arguments
        if job.tasks:
            arguments = {"task_file": str(self.task_file(run)), "watch": "yes", "recrawls": "given"}
        return JobSpec(
            job=run.id, spider=self._spider(job, run), arguments=arguments,
            settings=job.settings | self.operator_settings,
            outputs=outputs, frontier=self.store, workers=job.workers, queues=job.queues, home=str(self.runs),
            reads_references=False,
        )  # fmt: skip

    @property
    def runs(self) -> Path:
        """Folder with the folders of the runs."""
        return self.folder / "runs"

    @property
    def logs(self) -> Path:
        """Folder with the logs of the runs, if the storage is not shared."""
        return self.folder / "logs"

    @property
    def sources(self) -> Path:
        """Folder with the recipes and task files that the processes of a run read."""
        return self.folder / "sources"

    def task_file(self, run: JobRun) -> Path:
        """Return the path of the task file of a run."""
        return self.sources / f"{run.id}.book"

    def recipe_file(self, run: JobRun) -> Path:
        """Return the path of the recipe of a run."""
        assert run.recipe is not None
        return self.sources / f"{run.id}.{run.recipe.syntax}"

    def outputs_of_task(
        self, task: str, names: Sequence[str], job: JobRecord, run: JobRun | None
    ) -> list[str]:
        """Return the outputs that were chosen for a task by name: its own list, and outputs of the operator.

        Without a run, the names are only checked. Raises :class:`ApiError` for a name that this node does not have, and
        for a task whose name is unsafe as part of an output.
        """
        found = [task_target(task)] if names else []
        for name in names:
            if name == TASK_ITEMS:
                continue
            if name not in self.task_outputs:
                raise ApiError(
                    f"this node has no task output named {name!r:.80}",
                    remedy=f"choose one of: {', '.join([TASK_ITEMS, *sorted(self.task_outputs)])}",
                    field="outputs",
                )
            output = self.task_outputs[name]
            if "{task}" in output and not is_name(task):
                raise ApiError(
                    f"task {task!r:.80} cannot use output {name}, because the name of the task is part of it",
                    remedy="use only letters, digits, dashes and underscores in the name of the recipe",
                    field="outputs",
                )
            if run is not None:
                found.append(_with_names(output, job, run).replace("{task}", task))
        return found

    def _spider(self, job: JobRecord, run: JobRun) -> str:
        if run.recipe is not None:
            return f"{self.recipe_file(run)}:Recipe"
        if job.spider:
            return self.allowed_spider(job.spider)
        return "skitter.frontends.tasks:TaskFileSpider"

    def allowed_spider(self, name: str) -> str:
        """Return the full name of a spider in the allowed folder. Raises :class:`ApiError` for any other name."""
        if self.spiders is None:
            raise ApiError(
                "this node runs no Python spiders",
                remedy="use a recipe, or start the node with --spiders",
                field="spider",
            )
        file, colon, kind = name.partition(":")
        folder = self.spiders.resolve()
        try:
            path = (folder / file).resolve(strict=True)
            is_allowed = path.is_file() and path.is_relative_to(folder) and path.suffix == ".py"
        except (OSError, ValueError, RuntimeError):
            is_allowed = False
        if not is_allowed or (colon and not kind.isidentifier()) or Path(file).is_absolute():
            raise ApiError(
                f"not a spider in the allowed folder: {name!r:.200}",
                remedy="name a file below the folder, such as shop.py or shop.py:Shop",
                field="spider",
            )
        return f"{path}{colon}{kind}"


def _with_names(output: str, job: JobRecord, run: JobRun) -> str:
    return output.replace("{job}", job.name).replace("{run}", run.id)


def child_environment() -> dict[str, str]:
    """Return the environment for processes that run the code of callers. It does not contain the tokens of the API."""
    return {name: value for name, value in os.environ.items() if name != AUTH_VARIABLE}


def check_settings(settings: Mapping[str, object], field: str) -> None:
    """Check that callers may set these settings. Raises :class:`ApiError`."""
    allowed = api_settings()
    for name, value in settings.items():
        if name not in allowed:
            raise ApiError(
                f"setting {name!r:.80} cannot be set through the API",
                remedy=f"use one of: {', '.join(sorted(allowed))}",
                field=f"{field}.{name}"[:100],
            )
        highest = allowed[name]
        if name == "queues" and isinstance(value, Mapping):
            highest = allowed["concurrency"]
            numbers = [queue.get("concurrency") for queue in value.values() if isinstance(queue, Mapping)]
        else:
            numbers = [value]
        highest = _LARGEST_INTEGER - 1 if highest is None else highest
        if any(isinstance(number, int | float) and abs(number) > highest for number in numbers):
            raise ApiError(
                f"setting {name} is too large: {value!r:.80}",
                remedy=f"use at most {highest}",
                field=f"{field}.{name}",
            )
        rules = value if name == "fetcher_rules" and isinstance(value, list | tuple) else ()
        if any(isinstance(rule, Mapping) and ":" in str(rule.get("fetcher", "")) for rule in rules):
            raise ApiError(
                "a fetcher rule names a fetcher by its path, which only the operator of the service may choose",
                remedy="use http, browser, adaptive, or the name of an installed fetcher",
                field=f"{field}.{name}",
            )
