"""Serve a test site: ``python -m skitter.testing MODULE:NAME [--arguments JSON] [--hosts N] ...``.

Prints one JSON line with the origins when the site is ready, and serves it until interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from skitter.errors import SkitterError, UsageError
from skitter.testing.answer import Site
from skitter.testing.log import LogFile, RequestLog
from skitter.testing.server import SiteServer


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until the first SIGINT or SIGTERM or, if requested, until stdin is closed. Print a usage error on one line."""
    parser = _parser()
    try:
        _serve(parser.parse_args(arguments))
    except SkitterError as error:
        parser.exit(2, f"{parser.prog}: {error}; {error.remedy}\n")


def _serve(options: argparse.Namespace) -> None:
    if not options.until_stdin_closes:
        # Block the signals before any thread starts, so that all threads leave them to sigwait.
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    log_file = LogFile(options.log) if options.log else None
    server = SiteServer(
        make_site(options.site, options.arguments),
        hosts=options.hosts,
        ports=options.ports,
        port=options.port,
        delay=options.delay,
        log=RequestLog(log_file),
    )
    with server:
        sys.stdout.write(json.dumps({"origins": server.origins, "pid": os.getpid()}) + "\n")
        sys.stdout.flush()
        if options.until_stdin_closes:
            sys.stdin.read()
        else:
            signal.sigwait(_ENDING)
    if log_file is not None:
        log_file.close()


_ENDING = {signal.SIGINT, signal.SIGTERM}


def make_site(factory: str, arguments: dict[str, object]) -> Site:
    """Import ``module:name`` and call it. Raises :class:`~skitter.errors.UsageError` if it cannot be imported."""
    module, _, name = factory.partition(":")
    try:
        make: Callable[..., Site] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            f"cannot import the site {factory!r}: {error}",
            remedy="write MODULE:NAME, such as skitter.testing.demo_site:DemoSite",
            field="site",
        ) from error
    try:
        return make(**arguments)
    except TypeError as error:
        raise UsageError(
            f"cannot create the site {factory!r}: {error}",
            remedy="name a class or function that returns the site, such as `def make(): return site`, and give its"
            " arguments with --arguments",
            field="site",
        ) from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m skitter.testing", description=__doc__)
    parser.add_argument("site", metavar="MODULE:NAME", help="class or function that creates the site")
    parser.add_argument(
        "--arguments", type=json.loads, default={}, metavar="JSON", help="keyword arguments of the site"
    )
    parser.add_argument(
        "--hosts",
        type=int,
        default=1,
        help="number of hosts, on the addresses 127.0.0.1, 127.0.0.2 ... [default: 1]",
    )
    parser.add_argument("--ports", type=int, default=1, help="number of ports of each host [default: 1]")
    parser.add_argument("--port", type=int, default=0, help="first port [default: a free port]")
    parser.add_argument(
        "--delay", type=float, default=0.0, help="delay before each response, in seconds [default: 0]"
    )
    parser.add_argument(
        "--log", type=Path, help="file to which each completed request is appended as a JSON line"
    )
    parser.add_argument(
        "--until-stdin-closes",
        action="store_true",
        help="stop when stdin is closed, that is, when the parent process ends",
    )
    return parser


if __name__ == "__main__":
    main()
