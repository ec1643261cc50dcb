"""Options that several commands share."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click
import msgspec

from skitter.errors import UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from skitter.settings import Declaration

Command = Callable[..., Any]


class JobOptions(msgspec.Struct, frozen=True):
    """Options of a job, as given on the command line."""

    outputs: Sequence[str] = ()
    job: str | None = None
    frontier: str = "sqlite:"
    workers: int = 1
    queues: Sequence[str] = ()
    fresh: bool = False
    recrawl: bool = False
    settings: Sequence[str] = ()
    arguments: Sequence[str] = ()
    named: Mapping[str, Any] = {}
    """Settings that were given by their own options."""

    def all_settings(self) -> dict[str, Any]:
        """Return the settings from ``--setting`` and from their own options, which take precedence."""
        return pairs("-s", self.settings) | dict(self.named)

    def all_queues(self) -> dict[str, int]:
        """Return the queues to serve, each with the number of worker processes that serve only this queue (may be 0).

        Raises :class:`~skitter.errors.UsageError` for an invalid ``--queue``.
        """
        return dict(_queue(text) for text in self.queues)

    def all_outputs(self, usual: Sequence[str] = ()) -> list[str]:
        """Return the given outputs or, by default, the ``usual`` outputs or standard output."""
        return list(self.outputs) or list(usual) or ["-"]


class ShowOptions(msgspec.Struct, frozen=True):
    """Options for what a run displays and reports."""

    log_level: str = "warning"
    log_format: str = "text"
    quiet: bool = False
    summary: Path | None = None
    fail_on_errors: bool = False
    metrics: str | None = None
    console: bool = False


_MOST_WORKERS = 4
"""One process owns the queue in a file. About four workers at full speed keep it busy."""


class _WorkersType(click.IntRange):
    """A number of workers, or ``auto``: one for each processor but one, at most :data:`_MOST_WORKERS`."""

    name = "number of workers"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> int:
        if value == "auto":  # containers and taskset may allow fewer processors than the machine has
            usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
            return max(1, min(_MOST_WORKERS, usable - 1))
        number: int = super().convert(value, param, context)
        return number


workers_option = click.option(
    "--workers",
    "-w",
    type=_WorkersType(min=1),
    metavar="N|auto",
    help="Number of worker processes on this machine. `auto`: the number of processors less one, at most 4. [default: 1]",
)


def complete_setting(
    _context: click.Context, _parameter: click.Parameter, start: str, *, live: bool = False
) -> list[CompletionItem]:
    """Complete the name of a setting. ``live``: only settings that can change during a run."""
    from click.shell_completion import CompletionItem

    from skitter.settings import Settings, declarations

    found = declarations(Settings).items()
    return [
        CompletionItem(f"{name}=", help=declaration.setting.help)
        for name, declaration in found
        if name.startswith(start) and (declaration.setting.live or not live)
    ]


def read_pairs(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse an argument without ``=``, before click refuses the argument after it, as in ``-s concurrency 3``."""
    del context
    pairs(parameter.opts[-1], texts)
    return texts


setting_option = click.option(
    "--setting",
    "-s",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    callback=read_pairs,
    shell_complete=complete_setting,
    help="Value of a setting. Repeatable.",
)
argument_option = click.option(
    "--argument", "-a", "arguments", multiple=True, metavar="NAME=VALUE", callback=read_pairs,
    help="Argument of the spider, passed as a string. Repeatable.",
)  # fmt: skip
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


def _complete_job(_context: click.Context, _parameter: click.Parameter, start: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from skitter.run.job import all_jobs

    return [CompletionItem(folder.job) for folder in all_jobs() if folder.job.startswith(start)]


def complete_file(_context: click.Context, _parameter: click.Parameter, start: str) -> list[CompletionItem]:
    """Let the shell complete the name of a file."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(start, type="file")]


job_argument = click.argument("job", shell_complete=_complete_job)
frontier_option = click.option(
    "--frontier", metavar="URL", help="Frontier of the job, for a job that was not started on this machine."
)
frontier_of_jobs_option = click.option(
    "--frontier", metavar="URL", help="Shared frontier whose jobs are shown, instead of those in this folder."
)


def with_job(command: Command) -> Command:
    """Add JOB and ``--frontier`` to a command that takes the job as ``folder``. The command may be a coroutine function."""

    @wraps(command)
    def run(job: str, frontier: str | None, **values: Any) -> Any:
        from skitter.run.job_access import find_job

        result = command(folder=find_job(job, frontier), **values)
        return asyncio.run(result) if inspect.iscoroutine(result) else result

    return job_argument(frontier_option(run))


def with_storage(command: Command) -> Command:
    """Add the options that name the storage of a service."""
    store = click.option(
        "--store", metavar="URL", default="sqlite:", envvar="SKITTER_SERVE_STORE",
        help="Storage of jobs, recipes, frontiers and items: redis://HOST/0 for several nodes. [default: files in --folder]",
    )  # fmt: skip
    folder = click.option(
        "--folder", type=click.Path(path_type=Path, file_okay=False), default=Path(".skitter-service"), show_default=True,
        help="Folder for the files of a node.",
    )  # fmt: skip
    return store(folder(command))


_JOB_OPTIONS = (
    click.option(
        "--output", "-o", "outputs", multiple=True, metavar="OUT", shell_complete=complete_file,
        help="Output for items: a file name that ends in .jsonl, .json, .csv or .xml (also .gz, .zst), .parquet, .xlsx or .db, the URL of a database, or"
        " '-' for standard output. A name that ends in .warc.gz is an archive of all responses. Repeatable. [default: JSON lines on standard output]",
    ),
    click.option("--job", metavar="NAME", help="Name of the job. [default: named after the host or the spider]"),
    click.option(
        "--frontier", metavar="URL", default="sqlite:", show_default=True,
        help="Storage of the job's queue: sqlite: (a file below .skitter), sqlite:FILE, memory: (lost at the end of the run), or a"
        " server that many machines share, such as redis://HOST/0 or nsq://HOST/TOPIC?state=redis://HOST/0.",
    ),
    workers_option,
    click.option(
        "--queue", "queues", multiple=True, metavar="NAME[:N]",
        help="Queue to serve, optionally by N worker processes of its own. Repeatable. [default: all queues]",
    ),
    click.option("--fresh", is_flag=True, help="Delete the state of the job and replace its outputs before the run."),
    click.option("--recrawl", is_flag=True, help="Start a finished job again and refetch its pages."),
    setting_option,
    argument_option,
)  # fmt: skip

_SHOW_OPTIONS = (
    click.option(
        "--log-level", type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False), default="warning",
        show_default=True, help="Minimum severity of log messages.",
    ),
    click.option(
        "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True,
        help="Format of the log and of progress messages.",
    ),
    click.option("--quiet", "-q", is_flag=True, help="Hide progress and summary."),
    click.option(
        "--summary", type=click.Path(path_type=Path), metavar="FILE",
        help="File for the summary as JSON.",
    ),
    click.option("--fail-on-errors", is_flag=True, help="Exit with status 1 if there are dead letters."),
    click.option(
        "--metrics", metavar="[HOST:]PORT",
        help="Address at which to serve Prometheus metrics during the run. [default host: 127.0.0.1]",
    ),
    click.option(
        "--console", is_flag=True,
        help="Serve the web console on 127.0.0.1 during the run, and print its URL.",
    ),
)  # fmt: skip


def _setting_option(declared: Declaration, default: Any) -> Callable[[Command], Command]:
    names, _, metavar = declared.setting.cli.partition(" ")
    text = declared.setting.help.replace("`", "")
    kind = str(declared.type)
    if "bool" in kind:
        return click.option(names, declared.name, is_flag=True, default=None, help=text)
    if declared.is_list:
        return click.option(names, declared.name, multiple=True, metavar=metavar, help=f"{text} Repeatable.")
    if default not in {None, ""}:
        text += f" [default: {default}]"
    from skitter.settings import choices_of

    if (choices := choices_of(declared.type)) is not None:
        return click.option(names, declared.name, type=click.Choice(choices), help=text)
    number = float if "float" in kind else int if "int" in kind else str
    complete = complete_file if metavar == "FILE" else None
    return click.option(
        names, declared.name, type=number, metavar=metavar, shell_complete=complete, help=text
    )


def with_job_options(command: Command, defaults: Mapping[str, Any] = MappingProxyType({})) -> Command:
    """Add the options of a job and of its settings to a command that takes them as ``options``.

    ``defaults``: settings to which the command gives other defaults, for the help.
    """
    from skitter.settings import Settings, declarations

    declared = [declaration for declaration in declarations(Settings).values() if declaration.setting.cli]
    names = [name for name in JobOptions.__struct_fields__ if name != "named"]

    @wraps(command)
    def run(**values: Any) -> Any:
        job = _taken(values, names)
        named = {declaration.name: values.pop(declaration.name) for declaration in declared}
        job["named"] = {name: value for name, value in named.items() if value not in (None, ())}
        return command(**values, options=JobOptions(**job))

    setting_options = [_setting_option(one, defaults.get(one.name, one.default)) for one in declared]
    return _decorated(run, (*_JOB_OPTIONS, *setting_options))


def with_show_options(command: Command) -> Command:
    """Add the options for display and reporting to a command that takes them as ``show``."""

    @wraps(command)
    def run(**values: Any) -> Any:
        show = ShowOptions(**_taken(values, ShowOptions.__struct_fields__))
        return command(**values, show=show)

    return _decorated(run, _SHOW_OPTIONS)


def _decorated(command: Command, options: Sequence[Callable[[Command], Command]]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command


def _queue(text: str) -> tuple[str, int]:
    from skitter.queues import NAME_RULE, is_queue_name

    name, colon, number = text.partition(":")
    if not is_queue_name(name):
        raise UsageError(f"invalid queue name in --queue {text!r}", remedy=NAME_RULE, field="--queue")
    if colon and not (number.isdecimal() and int(number) > 0):
        raise UsageError(
            f"invalid number of worker processes in --queue {text!r}",
            remedy="write it like --queue detail:2",
            field="--queue",
        )
    return name, int(number) if colon else 0


def _taken(values: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Remove these options from the values of a command. Return the options that were given."""
    return {name: value for name in names if (value := values.pop(name)) is not None}


def pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Read ``NAME=VALUE`` texts. The last value of a name wins. Raises :class:`~skitter.errors.UsageError`."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (equals and name.strip()):
            raise UsageError(
                f"{option} {text!r} has no value", remedy=f"write {option} NAME=VALUE", field=option
            )
        found[name.strip()] = value
    return found


def job_name_for(text: str) -> str:
    """Return the name of a job for a host or a spider, without the characters that such a name may not have."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:100] or "job"
