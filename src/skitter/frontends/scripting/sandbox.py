"""The process that runs scripts: ``python -m skitter.frontends.scripting.sandbox SECONDS BYTES``.

The process ends at the end of its standard input. The kernel kills it when a script has used up its CPU time.
"""

from __future__ import annotations

import sys
from importlib.resources import files
from typing import Any

import msgspec
import quickjs

from skitter._utils.limited_process import limit_memory, serve
from skitter.errors import SkitterError
from skitter.frontends.scripting.engine import ScriptCall, ScriptPage, ScriptResult
from skitter.html.selector import Selector, parsel_backed_selector

_STACK = 512 * 1024
_PAGE_MEMORY = 1 << 30
"""Memory for the page and its selectors in bytes, in addition to the memory of the script."""
_MAX_LOG_LINES = 100
_MAX_LOG_LINE = 2_000
"""Maximum number of characters of a message that are kept."""
_EXPRESSION = "(function({names}) {{\n return (\n{code}\n); }})"
_BODY = "(function({names}) {{\n{code}\n}})"


class Sandbox:
    """Runs each call in a new engine."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._prelude = (files("skitter.frontends.scripting") / "prelude.js").read_text("utf-8")

    def run(self, call: ScriptCall) -> ScriptResult:
        """Run a script. An exception in it becomes the error of the result."""
        context = quickjs.Context()
        context.set_memory_limit(self._memory)
        context.set_max_stack_size(_STACK)
        result = ScriptResult(logs=[])
        try:
            result.value = self._run(context, call, result.logs)
        except quickjs.JSException as error:
            result.error = _describe(error)
        except MemoryError:
            result.error = "ran out of memory"
        return result

    def _run(self, context: Any, call: ScriptCall, logs: list[tuple[str, str]]) -> Any:
        def write_log(level: str, text: str) -> None:
            if len(logs) < _MAX_LOG_LINES:
                logs.append((level, text[:_MAX_LOG_LINE]))

        variables = dict(call.variables)
        if call.is_check:
            return _check(context, call)
        if call.page is not None:
            context.add_callable("__select", _PageSelector(call.page).select)
            context.add_callable("__log", write_log)
            context.eval(self._prelude)
            variables["__page"] = msgspec.to_builtins(call.page)
        names = [*variables]
        values = msgspec.json.encode([variables[name] for name in names]).decode()
        function = _compile(context, call, names)
        context.set("__function", function)
        context.set("__values", values)
        if call.page is None:
            text = context.eval("JSON.stringify(__function(...JSON.parse(__values)))")
        else:
            context.set("__names", msgspec.json.encode(names).decode())
            text = context.eval("__run(__function, JSON.parse(__names), JSON.parse(__values))")
        return None if text is None else msgspec.json.decode(text)


def _compile(context: Any, call: ScriptCall, names: list[str]) -> Any:
    parameters = "ctx" if call.page is not None else ", ".join(names)
    if call.page is None:
        try:
            return context.eval(_EXPRESSION.format(names=parameters, code=call.code))
        except quickjs.JSException as error:
            if not str(error).startswith("SyntaxError"):
                raise
    return context.eval(_BODY.format(names=parameters, code=call.code))


def _check(context: Any, call: ScriptCall) -> None:
    """Raise the syntax error of a script. Compiling it as for a call would run code after the end of its function."""
    sources = [call.code] if call.page is not None else [f"return (\n{call.code}\n)", call.code]
    context.set("__sources", msgspec.json.encode(sources).decode())
    context.eval("""{
        const sources = JSON.parse(__sources);
        let fault = null;
        for (const source of sources) {
            try { new Function("ctx", source); fault = null; break; } catch (error) { fault = error; }
        }
        if (fault) throw fault;
    }""")


class _PageSelector:
    """Selectors for the page of a rule. This is the only Python function that a script can call."""

    def __init__(self, page: ScriptPage) -> None:
        self._page = page
        self._selector: Any = None

    def select(self, kind: str, query: str) -> str:
        """Return the matches of a query, or an error, as JSON."""
        try:
            if self._selector is None:
                html = self._page.kind == "html"
                text = self._page.text
                self._selector = Selector(text) if html else parsel_backed_selector(text, self._page.kind)
            if kind not in {"css", "xpath", "jmespath"}:
                return '{"error": "unknown selector"}'
            found = getattr(self._selector, kind)(query).getall()
        except SkitterError as error:
            return msgspec.json.encode({"error": str(error)}).decode()
        return msgspec.json.encode({"found": found}).decode()


def _describe(error: Exception) -> str:
    """Return an exception of a script as one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() not in {"", "undefined"}]
    if not lines or "out of memory" in lines[0] or lines[0] == "null":
        return "ran out of memory"
    return lines[0][:500]


def main() -> None:
    """Run calls until the end of the input."""
    memory = int(sys.argv[2])
    limit_memory(memory + _PAGE_MEMORY)
    sandbox = Sandbox(memory)
    decode = msgspec.json.Decoder(ScriptCall).decode
    serve(lambda call: sandbox.run(decode(call)))


if __name__ == "__main__":
    main()
