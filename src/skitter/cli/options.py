"""Options that ``crawl``, ``run`` and ``resume`` share."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from skitter.errors import UsageError

_JOB = "The job"
_SHOW = "What it says"


class LogLevel(StrEnum):
    """Least severity that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """Form of a log record."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True)
class JobOptions:
    """What a job is to do."""

    outputs: Annotated[
        list[str],
        typer.Option(
            "--output", "-o", metavar="OUT", rich_help_panel=_JOB, show_default=False,
            help="Where items go: items.jsonl, .csv (also .gz, .zst), items.db, '-' for standard output. May be "
            "given several times. Without it items are printed to standard output as JSON lines.",
        ),
    ] = field(default_factory=list)  # fmt: skip
    job: Annotated[
        str | None, typer.Option("--job", metavar="NAME", rich_help_panel=_JOB, help="Name of the job.")
    ] = None
    frontier: Annotated[
        str,
        typer.Option(
            metavar="URL", rich_help_panel=_JOB,
            help="Where the job is kept: sqlite: (below .skitter), sqlite:FILE, or memory: (not at all).",
        ),
    ] = "sqlite:"  # fmt: skip
    workers: Annotated[
        int, typer.Option("--workers", "-w", min=1, metavar="N", rich_help_panel=_JOB, help="Processes.")
    ] = 1
    concurrency: Annotated[
        int | None,
        typer.Option(
            metavar="N", rich_help_panel=_JOB, help="Fetches in flight in each process; default 32."
        ),
    ] = None
    parallelism: Annotated[
        int | None,
        typer.Option(metavar="N", rich_help_panel=_JOB, help="Fetches in flight per host; default 4."),
    ] = None
    delay: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", rich_help_panel=_JOB,
            help="Between two fetches of a host; default: adapted to the server.",
        ),
    ] = None  # fmt: skip
    robots: Annotated[
        bool | None,
        typer.Option(
            "--robots/--no-robots", rich_help_panel=_JOB, show_default=False,
            help="Obey robots.txt (the default).",
        ),
    ] = None  # fmt: skip
    limit: Annotated[
        int | None, typer.Option(metavar="PAGES", rich_help_panel=_JOB, help="Stop after so many pages.")
    ] = None
    time_limit: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", rich_help_panel=_JOB, help="Stop this run after so long."),
    ] = None
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh", rich_help_panel=_JOB, help="Forget what the job did before and replace its outputs."
        ),
    ] = False
    settings: Annotated[
        list[str],
        typer.Option(
            "--setting", "-s", metavar="NAME=VALUE", rich_help_panel=_JOB, show_default=False,
            help="Any setting; the options above are stronger. May be given several times.",
        ),
    ] = field(default_factory=list)  # fmt: skip
    arguments: Annotated[
        list[str],
        typer.Option(
            "--argument", "-a", metavar="NAME=VALUE", rich_help_panel=_JOB, show_default=False,
            help="An argument of the spider. May be given several times.",
        ),
    ] = field(default_factory=list)  # fmt: skip

    def all_settings(self) -> dict[str, Any]:
        """Return what ``-s`` and the named options set."""
        named = {
            "concurrency": self.concurrency,
            "parallelism": self.parallelism,
            "delay": self.delay,
            "robots": self.robots,
            "max_pages": self.limit,
            "time_limit": self.time_limit,
        }
        return pairs("-s", self.settings) | given(named)

    def all_outputs(self) -> list[str]:
        """Return the outputs: standard output if none is named."""
        return self.outputs or ["-"]


@dataclass(frozen=True)
class ShowOptions:
    """What a run says of itself."""

    log_level: Annotated[LogLevel, typer.Option(rich_help_panel=_SHOW, help="Least severity.")] = (
        LogLevel.WARNING
    )
    log_format: Annotated[LogFormat, typer.Option(rich_help_panel=_SHOW, help="Of the log.")] = LogFormat.TEXT
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", rich_help_panel=_SHOW, help="No progress and no summary.")
    ] = False
    summary: Annotated[
        Path | None,
        typer.Option(metavar="FILE", rich_help_panel=_SHOW, help="Write the summary there too, as JSON."),
    ] = None
    fail_on_errors: Annotated[
        bool,
        typer.Option(
            "--fail-on-errors", rich_help_panel=_SHOW, help="Exit with 1 if requests were given up."
        ),
    ] = False


def given(values: dict[str, Any]) -> dict[str, Any]:
    """Return the entries that were given at all."""
    return {name: value for name, value in values.items() if value is not None}


def pairs(option: str, texts: list[str]) -> dict[str, str]:
    """Read ``NAME=VALUE`` texts; the last of a name counts. Raises :class:`~skitter.errors.UsageError`."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (equals and name.strip()):
            raise UsageError(f"{option} {text!r} has no value", remedy=f"write {option} NAME=VALUE")
        found[name.strip()] = value
    return found
