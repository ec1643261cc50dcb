"""Ground: what a node stands on: its folder, the store it shares, where jobs are kept and what may be run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from skitter.errors import UsageError
from skitter.frontier.redis.connect import SCHEMES
from skitter.run.job import JobFolder, JobSpec
from skitter.service.errors import Refusal
from skitter.service.items import Pages, RedisPages, SqlitePages, store_of, task_target
from skitter.service.nouns import Job, Run, is_name
from skitter.service.records import Records
from skitter.service.redis_records import RedisRecords
from skitter.service.run_logs import RedisLog, RunLog, SqliteLog
from skitter.service.sqlite_records import SqliteRecords

SAFE_SETTINGS = frozenset({
    "concurrency", "concurrency_per_slot", "delay", "jitter", "rates", "slot", "limit_rules", "robots", "robots_ttl",
    "crawl_delay_cap", "user_agent", "headers", "connect_timeout", "read_timeout", "timeout", "max_body",
    "keep_alive", "http2", "max_redirects", "allowed_statuses", "max_retries", "max_throttled", "retry_delay",
    "retry_delay_cap", "retry_failed_at_end", "fingerprint_keys", "item_meta_fields", "depth_limit",
    "max_url_length", "allow", "deny", "scope", "max_pages", "max_items", "max_errors", "max_bytes", "time_limit",
    "queue_order", "visited_ttl", "failed_stay_known", "lease_seconds", "max_worker_crashes", "max_queued", "wait_for_seeds",
    "group_key", "queues",
})  # fmt: skip
"""Settings that a caller of the API, or a recipe that came from one, may set. The others name files, code, proxies or
keys on servers: they belong to whoever runs the nodes."""


LIST = "items"
"""Name of the output of a task that every service has: a list of its items alone, which callers can read."""
_TOO_LARGE = 2**53
"""What not every reader of a record takes for a whole number."""


class RunFolder(JobFolder):
    """The folder of a run on this node. What the run is stands in the store, so nothing of it need be here."""

    def __init__(self, spec: JobSpec) -> None:
        super().__init__(spec.job, spec.home)
        self._spec = spec

    def read(self) -> JobSpec:
        """Return what the run was begun with."""
        return self._spec

    @property
    def is_of_one_node(self) -> bool:
        """Whether its frontier is a file of this node."""
        return self._spec.frontier.startswith("sqlite:")

    def is_being_run(self) -> bool:
        """Tell whether a process of this node runs it."""
        return self.exists() and super().is_being_run()


class Ground(msgspec.Struct, frozen=True):
    """See :mod:`skitter.service.ground`."""

    folder: Path
    """Of this node alone; absolute."""
    store: str = "sqlite:"
    """``sqlite:``: in the folder, for one node; or the URL of a Valkey or Redis server, for any number."""
    spiders: Path | None = None
    """Folder of the spiders in Python that may be run; ``None``: none."""
    outputs: tuple[str, ...] = ()
    """Where the items of every job go besides; ``{job}`` and ``{run}`` stand for names."""
    task_outputs: dict[str, str] = {}
    """Places that a caller may name as those of a task, by name; ``{task}`` stands for its name, too."""
    log_size: int = 1 << 20
    """Bytes of the log of a run, about; the oldest lines go."""
    log_runs: int = 5
    """Runs of a job whose logs are kept."""

    @property
    def is_shared(self) -> bool:
        """Whether there can be several nodes."""
        return not self.store.startswith("sqlite:")

    def records(self) -> Records:
        """Return the store, not yet open. Raises :class:`~skitter.errors.SkitterError` for one of no known kind."""
        if self.store == "sqlite:":
            return SqliteRecords(self.folder / "service.db")
        if self.store.partition(":")[0].lower() not in SCHEMES:
            raise UsageError(
                f"store {self.store.partition(':')[0]!r} is of no known kind",
                remedy="leave --store out for one node, or write redis://HOST/0 or redis+cluster://HOST:PORT/",
            )
        return RedisRecords(self.store)

    def spec(self, job: Job, run: Run) -> JobSpec:
        """Return what the processes of a run are told. Raises :class:`Refusal` for a spider that is not allowed."""
        return JobSpec(
            job=run.id, spider=self._spider(job, run), arguments=self._arguments(job, run), settings=job.settings,
            outputs=[self._items(run.id), *(self._named(output, job, run) for output in self.outputs)],
            frontier=self.store, workers=job.workers, queues=job.queues, home=str(self.runs),
        )  # fmt: skip

    @property
    def runs(self) -> Path:
        """Where the folders of the runs are."""
        return self.folder / "runs"

    @property
    def logs(self) -> Path:
        """Where the logs of the runs are, if the store is not shared."""
        return self.folder / "logs"

    @property
    def sources(self) -> Path:
        """Where recipes and books of tasks are written down for the processes of a run."""
        return self.folder / "sources"

    def book_file(self, run: Run) -> Path:
        """Return where the book of tasks of a run is."""
        return self.sources / f"{run.id}.book"

    def recipe_file(self, run: Run) -> Path:
        """Return where the recipe of a run is."""
        assert run.recipe is not None
        return self.sources / f"{run.id}.{run.recipe.syntax}"

    def pages(self, run: str, task: str = "") -> Pages:
        """Return the kept items of a run, or those of one task that has a list of its own."""
        if self.is_shared:
            return RedisPages(self.store, run, task)
        return SqlitePages(self._items_file(run), task)

    def log(self, run: str, node: str = "") -> RunLog:
        """Return the log of a run; ``node``: who writes into it."""
        if self.is_shared:
            return RedisLog(self.store, run, self.log_size, node)
        return SqliteLog(self.logs / f"{run}.log", self.log_size)

    def store_of_items(self, run: str) -> str:
        """Return where the items of a run are kept, for its processes."""
        return store_of(self.store if self.is_shared else "", self._items_file(run))

    def outputs_of_task(self, task: str, names: Sequence[str], job: Job, run: Run | None) -> list[str]:
        """Return where the items of a task go that names outputs: to its list, and to those of the operator.

        Without a run it is only looked whether they can. Raises :class:`Refusal` for a name that this node does not
        have, and for a task whose name could lead elsewhere.
        """
        found = [task_target(task)] if names else []
        for name in names:
            if name == LIST:
                continue
            if name not in self.task_outputs:
                raise Refusal(
                    f"this node has no output {name!r:.80} for tasks",
                    remedy=f"these are there: {', '.join([LIST, *sorted(self.task_outputs)])}",
                    field="outputs",
                )
            place = self.task_outputs[name]
            if "{task}" in place and not is_name(task):
                raise Refusal(
                    f"task {task!r:.80} cannot have output {name}, which is called after its task",
                    remedy="give the recipe a name of letters, digits, dashes and underscores",
                    field="outputs",
                )
            if run is not None:
                found.append(self._named(place, job, run).replace("{task}", task))
        return found

    def _items(self, run: str) -> str:
        if self.is_shared:
            return f"skitter.service.items:redis_items:{self.store}"
        return f"skitter.service.items:sqlite_items:{self._items_file(run)}"

    def _items_file(self, run: str) -> Path:
        return self.runs / run / "items.pages"

    @staticmethod
    def _named(output: str, job: Job, run: Run) -> str:
        return output.replace("{job}", job.name).replace("{run}", run.id)

    def _spider(self, job: Job, run: Run) -> str:
        if run.recipe is not None:
            return f"{self.recipe_file(run)}:Recipe"
        return self.allowed_spider(job.spider) if job.spider else "skitter.frontends.tasks:TaskFileSpider"

    def _arguments(self, job: Job, run: Run) -> dict[str, object]:
        if job.tasks:
            return {"task_file": str(self.book_file(run)), "watch": "yes", "recrawls": "given"}
        return job.arguments

    def allowed_spider(self, name: str) -> str:
        """Return the full name of a spider in the allowed folder. Raises :class:`Refusal` for any other."""
        if self.spiders is None:
            raise Refusal(
                "this node runs no spiders in Python",
                remedy="use a recipe, or start it with --spiders",
                field="spider",
            )
        place, colon, kind = name.partition(":")
        folder = self.spiders.resolve()
        try:
            path = (folder / place).resolve(strict=True)
            allowed = path.is_file() and path.is_relative_to(folder) and path.suffix == ".py"
        except (OSError, ValueError, RuntimeError):
            allowed = False
        if not allowed or (colon and not kind.isidentifier()) or Path(place).is_absolute():
            raise Refusal(
                f"{name!r:.200} is no spider in the allowed folder",
                remedy="name a file below it, as in shop.py or shop.py:Shop",
                field="spider",
            )
        return f"{path}{colon}{kind}"


def check_settings(settings: Mapping[str, object], field: str) -> None:
    """Refuse settings that a caller may not set. Raises :class:`Refusal`."""
    for name in settings:
        if name not in SAFE_SETTINGS:
            raise Refusal(
                f"setting {name!r:.80} cannot be set over the API",
                remedy=f"these can: {', '.join(sorted(SAFE_SETTINGS))}",
                field=f"{field}.{name}"[:100],
            )
        value = settings[name]
        if isinstance(value, int) and abs(value) >= _TOO_LARGE:
            raise Refusal(
                f"setting {name} is {value}", remedy="give a smaller number", field=f"{field}.{name}"
            )
