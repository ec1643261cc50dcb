"""The command ``skitter``: puts the commands together, and turns every user's mistake into one line."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from skitter.cli import control, crawl, demo, failures, fetch, new, shell
from skitter.cli.say import complain
from skitter.errors import SkitterError

USAGE = 2
INTERRUPTED = 130

app = typer.Typer(
    name="skitter",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A web crawler that loses nothing and knows when it is done.",
)
for command in (
    crawl.crawl, crawl.run, control.status, control.pause, control.resume, control.stop, control.jobs,
):  # fmt: skip
    app.command()(command)
app.add_typer(failures.app, name="failures")
for command in (fetch.fetch, shell.shell, new.new, demo.demo):
    app.command()(command)

_UsageError: type[Exception] = typer.BadParameter.__mro__[2]
"""The base of all errors of the option parser, which Typer ships under different names."""


def _show_version(wanted: bool) -> None:
    if wanted:
        from skitter.settings import VERSION  # noqa: PLC0415 - no other command's start-up pays for it

        typer.echo(f"skitter {VERSION}")
        raise typer.Exit


@app.callback()
def _skitter(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line and exit with its status."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command; returns its exit status.

    0 done, 1 failed (or, with ``--fail-on-errors``, some requests were given up), 2 a mistake of the user,
    130 interrupted.
    """
    try:
        code = typer.main.get_command(app)(arguments, prog_name="skitter", standalone_mode=False)
    except SkitterError as error:
        complain(str(error), error.remedy)
        return USAGE
    except _UsageError as error:
        return _complain_of_usage(error)
    except (KeyboardInterrupt, typer.Abort):
        complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # the reader of standard output has gone away, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    return code if isinstance(code, int) else 0


def _complain_of_usage(error: BaseException) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "skitter"
    text = error.format_message() if hasattr(error, "format_message") else str(error)
    if not text:  # nothing was asked for: the help has been shown
        return USAGE
    complain(text.rstrip("."), f"see `{path} --help`")
    return USAGE
