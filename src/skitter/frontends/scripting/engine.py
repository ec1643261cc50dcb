"""ScriptEngine: runs scripts in a separate process, and the messages between the two processes.

The limits of QuickJS do not apply within its built-in functions: ``[].indexOf.call({length: 2**52})`` cannot be
interrupted. So the kernel kills the process when a script has used up its CPU time, and the next script gets a new
process. A crash of the engine affects nothing else.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from typing import IO, Any

import msgspec

from skitter.errors import SkitterError
from skitter.plugins import need


class ScriptError(SkitterError):
    """A script that failed, or exceeded its time or memory. The request of the page fails with this error."""


class ScriptEngine:
    """A sandbox for JavaScript. Calls block, so make them in a thread. Scripts run one after the other.

    ``seconds``
        CPU time of one script; default 1.
    ``memory``
        Memory of one script in bytes; default 64 MB.

    Scripts share no state. Raises :class:`~skitter.errors.UsageError` if QuickJS is not installed.
    """

    def __init__(self, *, seconds: float = 1.0, memory: int = 64 * 1024 * 1024) -> None:
        need("quickjs", "scripts", "scripts")
        self._seconds = seconds
        self._memory = memory
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None

    def evaluate(self, code: str, variables: Mapping[str, Any]) -> Any:
        """Return the value of an expression, or of a function body that returns a value.

        ``variables`` must be encodable as JSON; dates become strings. Raises :class:`ScriptError`.
        """
        return self._run(ScriptCall(code, dict(variables)))

    def run_rule(self, code: str, page: ScriptPage, variables: Mapping[str, Any]) -> Any:
        """Run a script that reads a page through ``ctx``, and return its results. Raises :class:`ScriptError`."""
        return self._run(ScriptCall(code, dict(variables), page))

    def _run(self, call: ScriptCall) -> Any:
        with self._lock:
            result = self._ask(call)
        if result.error:
            raise ScriptError(f"script: {result.error}", remedy="correct the script", field="script")
        return result.value

    def _ask(self, call: ScriptCall) -> ScriptResult:
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            write_frame(process.stdin, call)
            answer = read_frame(process.stdout)
        except OSError:
            answer = None
        if answer is None:
            return ScriptResult(error=self._exit_reason())
        return msgspec.json.decode(answer, type=ScriptResult)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            command = [
                sys.executable,
                "-m",
                "skitter.frontends.scripting.sandbox",
                str(self._seconds),
                str(self._memory),
            ]
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            self._finalizer = weakref.finalize(self, _end, self._process)
        return self._process

    def _exit_reason(self) -> str:
        """Return the reason why the process ended, and drop it."""
        process = self._process
        assert process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        code = process.returncode
        self._close()
        if code == -signal.SIGPROF:
            return f"ran longer than {self._seconds:g} s"
        return f"the script process died with exit code {code}"

    def close(self) -> None:
        """End the process. The next script starts a new one."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._finalizer is not None:
            self._finalizer()
        self._process = self._finalizer = None


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):  # unsent data
                stream.close()


class ScriptCall(msgspec.Struct, omit_defaults=True):
    """A script to run. ``variables`` are visible to the script by name."""

    code: str
    variables: dict[str, Any] = {}
    page: ScriptPage | None = None
    """The page of a rule; ``None`` for an expression."""


class ScriptPage(msgspec.Struct, omit_defaults=True):
    """A page that a rule reads."""

    url: str
    text: str
    status: int = 200
    kind: str = "html"
    """``html``, ``xml`` or ``json``."""


class ScriptResult(msgspec.Struct, omit_defaults=True):
    """The value or the error of a script."""

    value: Any = None
    error: str = ""


def write_frame(stream: IO[bytes], message: msgspec.Struct) -> None:
    """Send a message as JSON with its length in front. Raises OSError if the reader is gone."""
    encoded = msgspec.json.encode(message)
    stream.write(len(encoded).to_bytes(4, "big") + encoded)
    stream.flush()


def read_frame(stream: IO[bytes]) -> bytes | None:
    """Return the next message, or ``None`` at the end of the stream."""
    head = stream.read(4)
    if len(head) < 4:
        return None
    length = int.from_bytes(head, "big")
    body = stream.read(length)
    return body if len(body) == length else None
