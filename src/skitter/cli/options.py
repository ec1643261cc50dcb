"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Any

import click

from skitter.errors import UsageError

Command = Callable[..., Any]


@dataclass(frozen=True)
class JobOptions:
    """What a job is to do."""

    outputs: Sequence[str] = ()
    job: str | None = None
    frontier: str = "sqlite:"
    workers: int = 1
    queues: Sequence[str] = ()
    concurrency: int | None = None
    concurrency_per_slot: int | None = None
    delay: float | None = None
    robots: bool | None = None
    limit: int | None = None
    max_queued: int | None = None
    time_limit: float | None = None
    fresh: bool = False
    recrawl: bool = False
    keep_alive: bool | None = None
    seed_keys: Sequence[str] = ()
    settings: Sequence[str] = ()
    arguments: Sequence[str] = ()

    def all_settings(self) -> dict[str, Any]:
        """Return what ``-s`` and the named options set."""
        named = {
            "concurrency": self.concurrency,
            "concurrency_per_slot": self.concurrency_per_slot,
            "delay": self.delay,
            "robots": self.robots,
            "max_pages": self.limit,
            "max_queued": self.max_queued,
            "time_limit": self.time_limit,
            "wait_for_seeds": self.keep_alive,
            "seed_keys": list(self.seed_keys) or None,
        }
        return pairs("-s", self.settings) | given(named)

    def all_queues(self) -> dict[str, int]:
        """Return the queues that are served, each with the number of its own processes; 0: it has none of its own.

        Raises :class:`~skitter.errors.UsageError` for what is no queue.
        """
        return dict(_queue(text) for text in self.queues)

    def all_outputs(self, usual: Sequence[str] = ()) -> list[str]:
        """Return the outputs: the usual ones if none is named, and standard output if there are none."""
        return list(self.outputs) or list(usual) or ["-"]


@dataclass(frozen=True)
class ShowOptions:
    """What a run says of itself."""

    log_level: str = "warning"
    log_format: str = "text"
    quiet: bool = False
    summary: Path | None = None
    fail_on_errors: bool = False


workers_option = click.option(
    "--workers", "-w", type=click.IntRange(min=1), metavar="N", help="Processes on this machine; default 1."
)
setting_option = click.option(
    "--setting", "-s", "settings", multiple=True, metavar="NAME=VALUE", help="Any setting. Repeatable."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
job_argument = click.argument("job")
frontier_option = click.option(
    "--frontier", metavar="URL", help="Of a job on a shared frontier, begun on whichever machine."
)

_JOB_OPTIONS = (
    click.option(
        "--output", "-o", "outputs", multiple=True, metavar="OUT",
        help="Where items go: a name that ends in .jsonl or .csv (also .gz, .zst) or .db, or '-' for standard"
        " output. Repeatable. Without it items are printed to standard output as JSON lines.",
    ),
    click.option("--job", metavar="NAME", help="Name of the job."),
    click.option(
        "--frontier", metavar="URL", default="sqlite:",
        help="Where the job is kept: sqlite: (below .skitter; the default), sqlite:FILE, memory: (not at all), or a"
        " server that many machines share, such as redis://HOST/0, or nsq://HOST/TOPIC?state=redis://HOST/0 with its queue in a broker.",
    ),
    workers_option,
    click.option(
        "--queue", "queues", multiple=True, metavar="NAME[:N]",
        help="Serve only this queue; with a number, by so many processes of its own. Repeatable. Default: all queues.",
    ),
    click.option("--concurrency", type=int, metavar="N", help="Fetches in flight in each process; default 32."),
    click.option("--concurrency-per-slot", type=int, metavar="N", help="Fetches in flight per host; default 4."),
    click.option(
        "--delay", type=float, metavar="SECONDS",
        help="Between two fetches of a host; default: adapted to the server.",
    ),
    click.option("--robots/--no-robots", default=None, help="Obey robots.txt (the default), or do not."),
    click.option("--limit", type=int, metavar="PAGES", help="Stop after so many pages."),
    click.option(
        "--max-queued", type=int, metavar="N",
        help="Above so many requests in the frontier, workers keep further links on their own disks.",
    ),
    click.option("--time-limit", type=float, metavar="SECONDS", help="Stop this run after so long."),
    click.option("--fresh", is_flag=True, help="Forget what the job did before and replace its outputs."),
    click.option("--recrawl", is_flag=True, help="If the job is finished, begin again and visit its pages anew."),
    click.option(
        "--keep-alive", is_flag=True, default=None, help="Do not end: wait for seeds (`skitter add`, seed keys)."
    ),
    click.option(
        "--seed-key", "seed_keys", multiple=True, metavar="KEY",
        help="Take seeds from a list, set or sorted set on the Redis server of the frontier. Repeatable.",
    ),
    setting_option,
    click.option(
        "--argument", "-a", "arguments", multiple=True, metavar="NAME=VALUE",
        help="An argument of the spider. Repeatable.",
    ),
)  # fmt: skip

_SHOW_OPTIONS = (
    click.option(
        "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="warning",
        show_default=True, help="Least severity that is logged.",
    ),
    click.option(
        "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True,
        help="Form of the log and the progress.",
    ),
    click.option("--quiet", "-q", is_flag=True, help="No progress and no summary."),
    click.option(
        "--summary", type=click.Path(path_type=Path), metavar="FILE", help="Write the summary as JSON, too."
    ),
    click.option("--fail-on-errors", is_flag=True, help="Exit with 1 if requests were given up."),
)  # fmt: skip


def with_job_options(command: Command) -> Command:
    """Give a command the options of a job, which it gets as ``what``."""
    return _with(command, "what", JobOptions, _JOB_OPTIONS)


def with_show_options(command: Command) -> Command:
    """Give a command the options of a run, which it gets as ``show``."""
    return _with(command, "show", ShowOptions, _SHOW_OPTIONS)


def _with(
    command: Command, name: str, group: Any, options: Sequence[Callable[[Command], Command]]
) -> Command:
    @wraps(command)
    def run(**values: Any) -> Any:
        named = {field.name: values.pop(field.name) for field in fields(group)}
        return command(**values, **{name: group(**given(named))})

    decorated: Command = run
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


def _queue(text: str) -> tuple[str, int]:
    from skitter.queues import NAME_RULE, is_queue_name

    name, colon, number = text.partition(":")
    if not is_queue_name(name):
        raise UsageError(f"--queue {text!r} is no name of a queue", remedy=NAME_RULE)
    if colon and not (number.isdecimal() and int(number) > 0):
        raise UsageError(
            f"--queue {text!r} has no number of processes", remedy="write it like --queue detail:2"
        )
    return name, int(number) if colon else 0


def given(values: dict[str, Any]) -> dict[str, Any]:
    """Return the entries that were given at all."""
    return {name: value for name, value in values.items() if value is not None}


def pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Read ``NAME=VALUE`` texts; the last of a name counts. Raises :class:`~skitter.errors.UsageError`."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (equals and name.strip()):
            raise UsageError(f"{option} {text!r} has no value", remedy=f"write {option} NAME=VALUE")
        found[name.strip()] = value
    return found
