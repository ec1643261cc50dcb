"""Runs a test site in its own process, so that it outlives the crawlers that a test kills."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from skitter.errors import SkitterError
from skitter.testing.log import Hit, read_log
from skitter.testing.server import ServedOrigins

_STOP_TIMEOUT = 10.0


class SiteProcess(ServedOrigins):
    """Serves a site from its own process inside a ``with`` block.

    ``factory``
        ``module:name`` of the class or function that creates the site. It is called with ``arguments`` as keyword arguments.
    ``hosts``, ``ports``, ``port``, ``delay``
        See :class:`~skitter.testing.server.SiteServer`.
    ``search``
        Folders from which modules can be imported, in addition to the installed packages.

    The process ends with the block, or when the process that started it is killed. Raises
    :class:`~skitter.errors.SkitterError` if the site does not start.
    """

    def __init__(
        self,
        factory: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        hosts: int = 1,
        ports: int = 1,
        port: int = 0,
        delay: float = 0.0,
        search: Sequence[Path] = (),
    ) -> None:
        self._options = [
            factory,
            f"--arguments={json.dumps(dict(arguments or {}))}",
            f"--hosts={hosts}",
            f"--ports={ports}",
            f"--port={port}",
            f"--delay={delay}",
            "--until-stdin-closes",
        ]
        self._search = [str(folder) for folder in search]

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._process.pid

    def hits(self) -> list[Hit]:
        """Return all completed requests in the order of arrival."""
        return read_log(self._log)

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="skitter-site-")
        self._log = Path(self._folder.name, "hits.jsonl")
        search = os.pathsep.join([*self._search, *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", "skitter.testing", *self._options, f"--log={self._log}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": search},
            start_new_session=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._stop()
            raise SkitterError("the test site did not start", remedy="read its error message on stderr")
        self.origins = tuple(json.loads(line)["origins"])
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _stop(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()
