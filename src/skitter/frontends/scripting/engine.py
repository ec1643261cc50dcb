"""ScriptEngine: runs scripts in a separate process, and the messages between the two processes.

The limits of QuickJS do not apply within its built-in functions: ``[].indexOf.call({length: 2**52})`` cannot be
interrupted. So the kernel kills the process when a script has used up its CPU time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from skitter._utils.limited_process import LimitedProcess, ProcessDied
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
        self._process = LimitedProcess("skitter.frontends.scripting.sandbox", seconds, str(memory))

    def evaluate(self, code: str, variables: Mapping[str, Any]) -> Any:
        """Return the value of an expression, or of a function body that returns a value.

        ``variables`` must be encodable as JSON; dates become strings. Raises :class:`ScriptError`.
        """
        return self._run(ScriptCall(code, dict(variables)))

    def run_rule(self, code: str, page: ScriptPage, variables: Mapping[str, Any]) -> Any:
        """Run a script that reads a page through ``ctx``, and return its results. Raises :class:`ScriptError`."""
        return self._run(ScriptCall(code, dict(variables), page))

    def _run(self, call: ScriptCall) -> Any:
        try:
            result = msgspec.json.decode(self._process.call(call), type=ScriptResult)
        except ProcessDied as error:
            result = ScriptResult(error=str(error))
        if result.error:
            raise ScriptError(f"script: {result.error}", remedy="correct the script", field="script")
        return result.value

    def close(self) -> None:
        """End the process. The next script starts a new one."""
        self._process.close()


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
