"""Engine: runs scripts in a process of its own, which ends itself when a script does not.

QuickJS has limits of its own, but they do not hold within its built-in functions: ``[].indexOf.call({length: 2**52})``
cannot be interrupted. So the kernel ends the process when a script has used up its CPU time; the next script gets a
new process. An engine that crashes takes nothing else along.
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
    """A script that failed, or ran out of time or memory. The page's request fails with it."""


class ScriptEngine:
    """A sandbox for JavaScript. Calls block, so they belong into a thread; they are made one after the other.

    ``seconds``
        CPU time of one script; default 1.
    ``memory``
        Bytes for one script; default 64 MB.

    Each script begins with nothing left over from others. Raises :class:`~skitter.errors.UsageError` where the
    engine is not installed.
    """

    def __init__(self, *, seconds: float = 1.0, memory: int = 64 * 1024 * 1024) -> None:
        need("quickjs", "scripts", "scripts")
        self._seconds = seconds
        self._memory = memory
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None

    def evaluate(self, code: str, words: Mapping[str, Any]) -> Any:
        """Return the value of an expression, or of a function's body that returns one.

        ``words`` are its variables: what JSON can carry; dates become texts. Raises :class:`ScriptError`.
        """
        return self._run(ScriptCall(code, dict(words)))

    def run_rule(self, code: str, page: ScriptPage, words: Mapping[str, Any]) -> Any:
        """Run a script that reads a page by ``ctx``; returns what it gave. Raises :class:`ScriptError`."""
        return self._run(ScriptCall(code, dict(words), page))

    def _run(self, order: ScriptCall) -> Any:
        with self._lock:
            result = self._ask(order)
        if result.error:
            raise ScriptError(f"script: {result.error}", remedy="correct the script")
        return result.value

    def _ask(self, order: ScriptCall) -> ScriptResult:
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            write_frame(process.stdin, order)
            answer = read_frame(process.stdout)
        except OSError:
            answer = None
        if answer is None:
            return ScriptResult(error=self._last_words())
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

    def _last_words(self) -> str:
        """Say why the process has ended, and forget it."""
        process = self._process
        assert process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        code = process.returncode
        self._close()
        if code == -signal.SIGPROF:
            return f"ran longer than {self._seconds:g} s"
        return f"the engine has died ({code})"

    def close(self) -> None:
        """End the process. A later script would start another."""
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
            with contextlib.suppress(OSError):  # what was not sent yet
                stream.close()


class ScriptCall(msgspec.Struct, omit_defaults=True):
    """Run something. ``words`` are what the script sees by name."""

    code: str
    words: dict[str, Any] = {}
    page: ScriptPage | None = None
    """Given for a rule, which reads a page; none for an expression."""


class ScriptPage(msgspec.Struct, omit_defaults=True):
    """The page that a rule reads."""

    url: str
    text: str
    status: int = 200
    kind: str = "html"
    """``html``, ``xml`` or ``json``."""


class ScriptResult(msgspec.Struct, omit_defaults=True):
    """What came of it."""

    value: Any = None
    error: str = ""


def write_frame(stream: IO[bytes], message: msgspec.Struct) -> None:
    """Send a message. Raises OSError if nobody is there."""
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
