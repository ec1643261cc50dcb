"""Child: the process that runs scripts (``python -m skitter.frontends.scripting.child SECONDS BYTES``).

Ends with its standard input. The kernel ends it when one script has used up its seconds of CPU time.
"""

from __future__ import annotations

import signal
import sys
from importlib.resources import files
from typing import Any

import msgspec
import quickjs

from skitter.errors import SkitterError
from skitter.frontends.scripting.wire import Order, Page, Result, read_frame, write_frame

_STACK = 512 * 1024
_EXPRESSION = "(function({names}) {{\n return (\n{code}\n); }})"
_BODY = "(function({names}) {{\n{code}\n}})"


class Sandbox:
    """Runs one order in an engine made for it."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._prelude = (files("skitter.frontends.scripting") / "prelude.js").read_text("utf-8")

    def run(self, order: Order) -> Result:
        """Run a script; what it throws is an error of the result."""
        context = quickjs.Context()
        context.set_memory_limit(self._memory)
        context.set_max_stack_size(_STACK)
        try:
            return Result(self._run(context, order))
        except quickjs.JSException as error:
            return Result(error=_told(error))

    def _run(self, context: Any, order: Order) -> Any:
        words = dict(order.words)
        if order.page is not None:
            context.add_callable("__select", _Selecting(order.page).select)
            context.eval(self._prelude)
            words["__page"] = msgspec.to_builtins(order.page)
        names = [*words]
        values = msgspec.json.encode([words[name] for name in names]).decode()
        function = _compiled(context, order, names)
        context.set("__function", function)
        context.set("__values", values)
        if order.page is None:
            text = context.eval("JSON.stringify(__function(...JSON.parse(__values)))")
        else:
            context.set("__names", msgspec.json.encode(names).decode())
            text = context.eval("__run(__function, JSON.parse(__names), JSON.parse(__values))")
        return None if text is None else msgspec.json.decode(text)


def _compiled(context: Any, order: Order, names: list[str]) -> Any:
    given = "ctx" if order.page is not None else ", ".join(names)
    if order.page is None:
        try:
            return context.eval(_EXPRESSION.format(names=given, code=order.code))
        except quickjs.JSException as error:
            if not str(error).startswith("SyntaxError"):
                raise
    return context.eval(_BODY.format(names=given, code=order.code))


class _Selecting:
    """The one thing of ours that a rule can call: selectors over its own page."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._selector: Any = None

    def select(self, kind: str, query: str) -> str:
        """Return as JSON what a query finds, or why it cannot."""
        from skitter.html.selector import Selector, parsel_backed_selector  # noqa: PLC0415 - expressions do not need it

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


def _told(error: Exception) -> str:
    """Return what a script threw as one line, with the place in it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() not in {"", "undefined"}]
    if not lines or "out of memory" in lines[0] or lines[0] == "null":
        return "ran out of memory"
    return lines[0][:500]


def main() -> None:
    """Run orders until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the crawl, which ends us when it ends
    seconds, sandbox = float(sys.argv[1]), Sandbox(int(sys.argv[2]))
    decode = msgspec.json.Decoder(Order).decode
    orders, results = sys.stdin.buffer, sys.stdout.buffer
    while (frame := read_frame(orders)) is not None:
        order = decode(frame)
        if order.page is not None:
            import skitter.html.selector  # noqa: F401, PLC0415 - loading it is none of the script's time
        signal.setitimer(signal.ITIMER_PROF, seconds)
        result = sandbox.run(order)
        signal.setitimer(signal.ITIMER_PROF, 0)
        write_frame(results, result)


if __name__ == "__main__":
    main()
