"""The command ``skitter``: puts the commands together, and turns every user's mistake into one line."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from skitter.cli import (
    add,
    control,
    crawl,
    demo,
    export,
    failures,
    fetch,
    new,
    recipe,
    serve,
    shell,
    steer,
    task,
    watch,
)
from skitter.cli.say import complain
from skitter.errors import SkitterError

USAGE = 2
INTERRUPTED = 130


def _show_version(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted:
        from skitter.settings import VERSION  # noqa: PLC0415 - no other command's start-up pays for it

        click.echo(f"skitter {VERSION}")
        context.exit()


@click.group(
    name="skitter",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 done; 1 failed, or requests given up with --fail-on-errors; 2 usage; 130 interrupted.",
)
@click.option(
    "--version",
    is_flag=True,
    callback=_show_version,
    expose_value=False,
    is_eager=True,
    help="Show the version.",
)
@click.pass_context
def skitter(context: click.Context) -> int:
    """Crawl the web, lose nothing, and know when it is done."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        return USAGE
    return 0


_COMMANDS: tuple[Any, ...] = (
    crawl.crawl, crawl.run, control.resume, watch.status, watch.top, control.pause, control.stop, control.jobs,
    add.add, steer.set_, steer.drop_host, steer.counters, export.export, failures.failures, fetch.fetch, shell.shell, new.new,
    recipe.recipe, task.task, serve.serve, demo.demo,
)  # fmt: skip
for command in _COMMANDS:
    skitter.add_command(command)


def main() -> None:
    """Run the command line and exit with its status."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command; returns its exit status."""
    try:
        code = skitter.main(arguments, prog_name="skitter", standalone_mode=False)
    except SkitterError as error:
        complain(str(error), error.remedy)
        return USAGE
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else "skitter"
        complain(error.format_message().rstrip("."), f"see `{path} --help`")
        return USAGE
    except (KeyboardInterrupt, click.Abort):
        complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # the reader of standard output has gone away, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    return code if isinstance(code, int) else 0
