"""ScriptEngine: runs scripts in a separate process, and the messages between the two processes.

The limits of QuickJS do not apply within its built-in functions: ``[].indexOf.call({length: 2**52})`` cannot be
interrupted. So the kernel kills the process when a script has used up its CPU time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from skitter._utils.limited_process import LimitedProcess, ProcessDied
from skitter.errors import SkitterError
from skitter.plugins import need

log = logging.getLogger("skitter.scripts")


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
        """Run a script that reads a page through ``ctx``, and return its results. Raises :class:`ScriptError`.

        Output to ``console`` goes to the log ``skitter.scripts``, unless the script exceeds its CPU time.
        """
        return self._run(ScriptCall(code, dict(variables), page))

    def fault_of(self, code: str, *, is_rule: bool) -> str:
        """Return the syntax error of a script without running it; empty if there is none."""
        try:
            self._run(ScriptCall(code, page=ScriptPage("", "") if is_rule else None, is_check=True))
        except ScriptError as error:
            return str(error)
        return ""

    def _run(self, call: ScriptCall) -> Any:
        try:
            result = msgspec.json.decode(self._process.call(call), type=ScriptResult)
        except ProcessDied as error:
            result = ScriptResult(error=str(error))
        for level, text in result.logs:
            log.log(logging.getLevelNamesMapping()[level.upper()], "%s", text)
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
    is_check: bool = False
    """Whether only the syntax of the script is checked."""


class ScriptPage(msgspec.Struct, omit_defaults=True):
    """A page that a rule reads."""

    url: str
    text: str
    status: int = 200
    kind: str = "html"
    """``html``, ``xml`` or ``json``."""
    method: str = "GET"
    priority: int = 0
    task: str = ""
    """Name of the recipe, which is the name of its task."""
    rules: list[str] = []
    """Names of all pages of the recipe."""


class ScriptResult(msgspec.Struct, omit_defaults=True):
    """The value or the error of a script."""

    value: Any = None
    error: str = ""
    logs: list[tuple[str, str]] = []
    """Level and text of each message that the script wrote to ``console``."""
