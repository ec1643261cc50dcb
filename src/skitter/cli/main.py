"""The command ``skitter``: combines the commands, and reports each user error on one line."""

from __future__ import annotations

# ruff: noqa: E402 - garbage collection is put off before the imports
import gc

# Modules create many objects but no garbage. Looking for cycles would take a tenth of their import time.
gc.set_threshold(1_000_000)

import errno
import os
import sys
from importlib import import_module
from pathlib import Path

import click

from skitter._version import VERSION
from skitter.cli.console import FAILED, INTERRUPTED, USAGE, complain
from skitter.errors import FetchError, SkitterError, UsageError, did_you_mean
from skitter.foreign_names import COMMANDS, OPTIONS

_MODULES = {
    "crawl": "crawl", "run": "crawl", "resume": "control", "status": "status", "top": "status", "stats": "status", "report": "status",
    "pause": "control", "stop": "control", "jobs": "control", "config": "control", "purge": "control", "repair": "control", "add": "add",
    "export": "export", "dedup": "dedup", "changes": "status", "failures": "failures", "fetch": "fetch", "shell": "shell", "parse": "parse", "check": "check", "list": "parse", "new": "new", "recipe": "recipe",
    "task": "task", "serve": "serve", "audit": "audit", "demo": "demo", "profile": "profile", "doctor": "doctor", "browser-rules": "control",
    "signing-key": "new",
}  # fmt: skip
"""The commands in the order of the help, each with the module of this package that contains it."""


class Commands(click.Group):
    """All commands. Each command is loaded on first use, so that it does not wait for the imports of the others."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command. Raises :class:`~skitter.errors.UsageError` for an unknown name."""
        is_mistyped = args and args[0] not in _MODULES and not args[0].startswith("-")
        if is_mistyped and not ctx.resilient_parsing:  # not while the Tab key completes the command
            remedy = COMMANDS.get(args[0]) or did_you_mean(args[0], _MODULES)
            raise UsageError(f"unknown command {args[0]!r}", remedy=remedy, field="command")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the signature is click's
        """Return the names of all commands, in the order of the help."""
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - the signature is click's
        """Load a command. Return ``None`` for an unknown name."""
        module = _MODULES.get(cmd_name)
        if module is None:
            return None
        loaded = import_module(f"skitter.cli.{module}")
        command = getattr(loaded, "list_spiders" if cmd_name == "list" else cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command


def _show_version(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(f"skitter {VERSION}")
        context.exit()


@click.group(
    name="skitter",
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 done; 1 failed, or dead letters with --fail-on-errors; 2 usage; 3 a monitor is violated; 130 interrupted.",
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


def _replace_closed_streams() -> None:
    """Open the null device for each standard stream that the caller has closed, as with ``2>&-``.

    Otherwise files and sockets of the crawl would get these numbers. libuv aborts the process when it closes such a socket,
    and items for standard output would go into a file of the job.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)  # read-only, so that it does not count as an output
            os.set_inheritable(number, True)
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - open as long as the process
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - open as long as the process


def main() -> None:
    """Run the command line, and exit with its status."""
    _replace_closed_streams()
    if any("=" in argument or "://" in argument for argument in sys.argv):
        from skitter.cli.argument_list import hide_secrets  # most commands have nothing to hide

        hide_secrets()
    code = run(sys.argv[1:])
    gc.freeze()  # the process ends: skip the search for cycles among all objects of the crawl
    sys.exit(code)


def _usage_remedy(error: click.UsageError, arguments: list[str]) -> str:
    option = error.option_name if isinstance(error, click.NoSuchOption) else ""
    # Click's parser does not set the context for an option without its value.
    path = error.ctx.command_path if error.ctx is not None else _command_path(arguments)
    commands = [argument for argument in arguments if argument in _MODULES]
    if option and path == "skitter" and commands:
        return f"write options after the command: `skitter {commands[0]} ... {option} ...`"
    if error.ctx is not None and isinstance(error.ctx.command, click.Group) and not option:
        return (
            f"its commands are {', '.join(error.ctx.command.list_commands(error.ctx))}; see `{path} --help`"
        )
    return _remedy_for_option(error) or f"see `{path} --help`"


def _remedy_for_option(error: click.UsageError) -> str:
    """Return what to write instead of an option of Scrapy, or of an option that is named like a setting."""
    option = error.option_name if isinstance(error, click.NoSuchOption) else ""
    takes_settings = error.ctx is not None and any("-s" in found.opts for found in error.ctx.command.params)
    if option in OPTIONS or not takes_settings:
        return OPTIONS.get(option, "")
    from skitter.settings import Settings, declarations

    name = option.lstrip("-").replace("-", "_")
    return f"it is a setting: write -s {name}=VALUE" if name in declarations(Settings) else ""


def _command_path(arguments: list[str]) -> str:
    """Return the command that the first arguments name, such as ``skitter failures list``."""
    path = "skitter"
    command: click.Command = skitter
    for argument in arguments:
        if not isinstance(command, click.Group):
            break
        inner = command.get_command(click.Context(command), argument)
        if inner is None:
            break
        path, command = f"{path} {argument}", inner
    return path


def _discard_output() -> None:
    """Let the interpreter flush standard output at its end without another error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def run(arguments: list[str]) -> int:
    """Run one command. Return its exit status."""
    try:
        code = skitter.main(arguments, prog_name="skitter", standalone_mode=False)
    except SkitterError as error:
        kind = f"{error.kind}: " if isinstance(error, FetchError) else ""
        complain(f"{kind}{error}", error.remedy)
        return FAILED if kind else USAGE
    except click.UsageError as error:
        is_known = bool(_remedy_for_option(error))  # then names of similar spelling would mislead
        text = error.message if is_known else error.format_message()
        complain(text.rstrip("."), _usage_remedy(error, arguments))
        return USAGE
    except (KeyboardInterrupt, click.Abort):
        complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # the reader of standard output has gone away, as with `| head`
        _discard_output()
        return 0
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        _discard_output()
        complain(f"cannot write {error.filename or 'standard output'}: {error.strerror}", "free some space")
        return FAILED
    return code if isinstance(code, int) else 0
