"""Monitors: rules about the figures of a pass, such as ``items >= 0.8 * median(items, 5)``.

A rule is a condition in a small language. Python's parser parses it, and only an allowed subset of the syntax is accepted.
No code is executed. The guide on monitors contains the reference of the language.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import msgspec

from skitter.errors import SettingsError, close_names, did_you_mean

MAX_RULES = 100
MAX_LENGTH = 500
"""Maximum characters of a rule."""
_MAX_NODES = 200
_MAX_PASSES = 1000
"""Maximum number of earlier passes that a rule may use."""

PLAIN_FIGURES = (
    "pages", "items", "bytes", "links", "redirects", "responses", "failed", "retried", "refused", "invalid", "duration",
)  # fmt: skip
"""Figures without an argument. They are stored for every finished pass."""
FIGURES_OF = ("coverage", "new_values", "status", "failed", "retried", "refused", "invalid", "stat")
"""Figures with one argument: a field, a status, a kind of error, a reason or the name of a counter."""


def _median(values: Sequence[float]) -> float:
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


_HISTORY: dict[str, Callable[[Sequence[float]], float]] = {
    "median": _median, "mean": lambda values: math.fsum(values) / len(values), "min": min, "max": max,
    "previous": lambda values: values[0],
}  # fmt: skip
"""Functions over the values of earlier passes, newest first."""
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
# Compiled at its first use.
_TEXT_OR_TIME = r"""(["'])(?:\\.|(?!\1).)*\1|(?<![\w.])(\d+(?:\.\d+)?)(ms|s|min|m|h|d)\b"""
_KNOWN = tuple(dict.fromkeys((*PLAIN_FIGURES, *FIGURES_OF, *_HISTORY)))
_ERROR_KINDS = (
    "aborted", "action", "archive", "browser", "callback", "connect", "crash", "disconnected", "dns", "encoding", "fetch", "file",
    "forbidden", "hook", "internal", "invalid", "late", "lost", "page_limit", "protocol", "proxy", "record", "redirect",
    "request", "robots", "seed", "status", "store", "timeout", "tls", "too_complex", "too_large",
)  # fmt: skip
"""The kinds of skitter's own errors. Fetchers of other packages may add kinds."""

Figures = Mapping[str, float]
"""Values of figures by name, such as ``items`` and ``coverage(price)``."""
_Evaluate = Callable[["_Pass"], float | None]


class MonitorRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rule that every pass of a job has to satisfy."""

    rule: str
    """Condition, such as ``failed / pages <= 0.02``."""
    name: str = ""
    """Name in reports. Default: the rule."""
    during: Literal["", "warn", "stop"] = ""
    """What to do as soon as the rule is violated during the run: only report it, or also stop the job. Empty: the rule is
    judged only at the end."""
    after: int = 100
    """Minimum number of pages before the rule is judged during the run."""

    @property
    def title(self) -> str:
        """The name of the monitor or, without a name, the rule."""
        return self.name or self.rule


class Figure(NamedTuple):
    """A figure that a rule uses."""

    name: str
    argument: str = ""

    def __str__(self) -> str:
        return f"{self.name}({self.argument})" if self.argument else self.name


class Verdict(msgspec.Struct, frozen=True):
    """The result of one monitor."""

    monitor: str
    rule: str
    passed: bool | None
    """``None``: not judged, because a figure is missing, for example without an earlier pass."""
    values: dict[str, float] = {}
    """The figures that the rule used."""
    at: float = 0.0
    """Unix time of a violation during the run; 0 for the verdict at the end."""


class _Pass(NamedTuple):
    """The data that a rule is evaluated with."""

    figures: Figures
    history: Sequence[Figures]
    """Earlier passes, newest first."""
    used: dict[str, float]
    """Collects the values that were used."""


class CompiledMonitor:
    """A compiled rule.

    Raises :class:`~skitter.errors.SettingsError` with the position of the mistake.
    """

    def __init__(self, monitor: MonitorRule, field: str = "monitors") -> None:
        self.monitor = monitor
        self._field = field
        self._text = " ".join(monitor.rule.splitlines())
        self.figures: set[Figure] = set()
        """The figures that the rule uses."""
        self.passes = 0
        """Number of earlier passes that the rule uses."""
        self._times: dict[int, float] = {}
        """The times in the rule, in seconds, by offset."""
        root = self._parse()
        is_not = isinstance(root, ast.UnaryOp) and isinstance(root.op, ast.Not)
        if not is_not and not isinstance(root, (ast.Compare, ast.BoolOp)):
            raise self._error(root, "the rule is not a condition", "compare two values, as in items >= 100")
        self._evaluate = self._condition(root)

    @property
    def fields_with_values(self) -> list[str]:
        """The fields whose values have to be counted."""
        return [figure.argument for figure in self.figures if figure.name == "new_values"]

    def judge(self, figures: Figures, history: Sequence[Figures] = (), at: float = 0.0) -> Verdict:
        """Judge the figures of a pass. ``history``: figures of earlier passes, newest first."""
        used: dict[str, float] = {}
        found = self._evaluate(_Pass(figures, history, used))
        passed = None if found is None else bool(found)
        shown = {name: value for name, value in used.items() if math.isfinite(value)}
        return Verdict(self.monitor.title, self._text, passed, shown, at)

    # --- parsing -----------------------------------------------------------------------------------------

    def _parse(self) -> ast.expr:
        text = self._text
        if len(text) > MAX_LENGTH:
            raise self._refusal(f"a rule of {len(text)} characters", f"use at most {MAX_LENGTH}")
        replaced = re.sub(_TEXT_OR_TIME, self._take_time, text)
        try:
            # The parser skips leading blanks, but counts them in its offsets. Offsets are in bytes of UTF-8.
            tree = ast.parse(replaced.strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            column = error.offset if isinstance(error, SyntaxError) and error.offset else 1
            where = min(column, len(text.strip())) if text.strip() else 1
            reason = error.msg if isinstance(error, SyntaxError) else "too complex"
            raise self._refusal(
                f"{reason}, at character {where}", "write a condition such as items >= 100"
            ) from None
        if sum(1 for _ in ast.walk(tree)) > _MAX_NODES:
            raise self._refusal("the rule is too complex", "split it into several monitors")
        return tree.body

    def _take_time(self, match: re.Match[str]) -> str:
        """Replace a time such as ``2h`` by a name of the same length, so that positions do not change. Texts in quotes stay."""
        if match[1]:
            return match[0]
        start = len(self._text[: match.start()].lstrip().encode())
        self._times[start] = float(match[2]) * _UNITS[match[3]]
        return "_" * len(match[0])

    def _refusal(self, problem: str, remedy: str) -> SettingsError:
        text = self._text if len(self._text) <= 80 else f"{self._text[:77]}..."
        return SettingsError(f"monitor {text!r}: {problem}", remedy=remedy, field=self._field)

    def _error(self, node: ast.expr, problem: str, remedy: str) -> SettingsError:
        at = len(self._text.strip().encode()[: node.col_offset].decode(errors="ignore")) + 1
        return self._refusal(f"{problem}, at character {at}", remedy)

    def _condition(self, node: ast.expr) -> _Evaluate:
        if isinstance(node, ast.BoolOp):
            parts = [self._condition(part) for part in node.values]
            return _joined(parts, 0.0 if isinstance(node.op, ast.And) else 1.0)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self._condition(node.operand)
            return lambda seen: None if (found := inner(seen)) is None else float(not found)
        if isinstance(node, ast.Compare):
            sides = [self._value(side) for side in (node.left, *node.comparators)]
            signs = [_COMPARISONS.get(type(sign)) for sign in node.ops]
            if None in signs:
                raise self._error(node, "unknown comparison", "use one of < <= > >= == !=")
            pairs = [
                _combined(sign, *pair) for sign, pair in zip(signs, pairwise(sides), strict=True) if sign
            ]
            return _joined(pairs, 0.0)
        raise self._error(node, "not a condition", "compare two values, as in items >= 100")

    def _value(self, node: ast.expr) -> _Evaluate:
        if isinstance(node, ast.Constant) and (number := _number(node.value)) is not None:
            return lambda _: number
        if isinstance(node, ast.Name) and (seconds := self._times.get(node.col_offset)) is not None:
            return lambda _: seconds
        if isinstance(node, ast.Name) and node.id in PLAIN_FIGURES:
            return self._figure(Figure(node.id))
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self._value(node.operand)
            return lambda seen: None if (found := inner(seen)) is None else -found
        if isinstance(node, ast.BinOp) and (act := _ARITHMETIC.get(type(node.op))) is not None:
            return _combined(act, self._value(node.left), self._value(node.right))
        if isinstance(node, ast.Name):
            raise self._error(node, f"unknown figure {node.id!r}", self._closest(node.id))
        raise self._error(node, "not allowed here", "use figures, numbers, times such as 2h, and + - * /")

    def _closest(self, name: str) -> str:
        if name in _KNOWN:
            return f"write {name}(...)"
        return did_you_mean(name, _KNOWN)

    def _call(self, node: ast.Call) -> _Evaluate:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in FIGURES_OF and name not in _HISTORY:
            raise self._error(node, f"unknown function {ast.unparse(node.func):.40}", self._closest(name))
        if node.keywords or not node.args:
            raise self._error(node, f"wrong arguments of {name}", f"write {name}(...) with plain arguments")
        if name in _HISTORY:
            return self._of_history(name, node)
        if len(node.args) != 1:
            raise self._error(node, f"{name} takes one argument", f"write {name}(NAME)")
        argument = self._argument(node.args[0])
        self._check_argument(node.args[0], name, argument)
        return self._figure(Figure(name, argument))

    def _check_argument(self, node: ast.expr, name: str, argument: str) -> None:
        """Refuse a status or a kind of error that never occurs, because such a rule would never be violated."""
        if name == "status" and not re.fullmatch("[1-9](?:[0-9]{0,2}|xx)", argument):
            raise self._error(
                node, f"{argument!r} is not a status", 'write status(404), or status("5xx") for a class'
            )
        if name not in {"failed", "retried"}:
            return
        kind, _, detail = argument.partition("/")
        if kind == "status" and detail and not re.fullmatch("[1-9][0-9]{2}", detail):
            raise self._error(
                node, f"{detail!r} is not a status", f'write {name}("status/404"), or {name}(status) for all'
            )
        if kind not in _ERROR_KINDS and (near := close_names(kind.lower(), _ERROR_KINDS, cutoff=0.8)):
            raise self._error(node, f"unknown kind of error {kind!r}", f"did you mean {near[0]}?")

    def _argument(self, node: ast.expr) -> str:
        """Return the text of a field, a status, or the name of a counter."""
        if isinstance(node, ast.Constant) and type(node.value) in {str, int} and node.value != "":
            return str(node.value)
        if isinstance(node, (ast.Name, ast.Attribute)) and all(
            isinstance(part, (ast.Name, ast.Attribute, ast.expr_context)) for part in ast.walk(node)
        ):
            return ast.unparse(node)
        raise self._error(
            node, "not a name", 'write a name, such as price, or a text in quotes, such as "list price"'
        )

    def _figure(self, figure: Figure) -> _Evaluate:
        self.figures.add(figure)
        name = str(figure)

        def read(seen: _Pass) -> float | None:
            value = seen.figures.get(name)
            if value is not None:
                seen.used[name] = value
            return value

        return read

    def _of_history(self, name: str, node: ast.Call) -> _Evaluate:
        count = 1
        if name != "previous":
            if len(node.args) != 2:
                raise self._error(node, f"{name} takes two arguments", f"write {name}(items, 5)")
            argument = node.args[1]
            if (
                not isinstance(argument, ast.Constant)
                or type(argument.value) is not int
                or not 0 < argument.value <= _MAX_PASSES
            ):
                raise self._error(
                    argument, "not a number of passes", f"give a number from 1 to {_MAX_PASSES}"
                )
            count = argument.value
        elif len(node.args) != 1:
            raise self._error(node, "previous takes one argument", "write previous(items)")
        inner, act, text = self._value(node.args[0]), _HISTORY[name], ast.unparse(node)
        self.passes = max(self.passes, count)

        def evaluate(seen: _Pass) -> float | None:
            values = (inner(_Pass(figures, (), {})) for figures in seen.history)
            past_values = [value for value in values if value is not None][:count]
            if not past_values:
                return None
            found = seen.used[text] = float(act(past_values))
            return found

        return evaluate


def _number(value: object) -> float | None:
    """Return a constant as a number; ``None`` for another constant, and for a number that is too large."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e300:
        return None
    return float(value)


def _divided(left: float, right: float) -> float | None:
    """Divide. Zero divided by zero is unknown. Any other number divided by zero is infinite."""
    if right:
        return left / right
    return math.copysign(math.inf, left) if left else None


_ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float | None]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: _divided,
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip


def _combined(act: Callable[[float, float], float | None], left: _Evaluate, right: _Evaluate) -> _Evaluate:
    def evaluate(seen: _Pass) -> float | None:
        left_value, right_value = left(seen), right(seen)
        return None if left_value is None or right_value is None else act(left_value, right_value)

    return evaluate


def _joined(parts: Sequence[_Evaluate], decisive: float) -> _Evaluate:
    """Three-valued AND (``decisive``: 0) or OR (1): unknown if a part is unknown and no other part decides the result."""

    def evaluate(seen: _Pass) -> float | None:
        found = [part(seen) for part in parts]
        return decisive if decisive in found else None if None in found else 1.0 - decisive

    return evaluate


def compile_monitors(declared: Sequence[str | Mapping[str, Any]]) -> list[CompiledMonitor]:
    """Return the rules of the setting ``monitors``: strings, or objects with the fields of :class:`MonitorRule`.

    Raises a :class:`~skitter.errors.SettingsError` that names the monitor and the position of the mistake.
    """
    if len(declared) > MAX_RULES:
        raise SettingsError(f"{len(declared)} monitors", remedy=f"use at most {MAX_RULES}", field="monitors")
    rules = []
    for place, rule in enumerate(declared):
        field = f"monitors[{place}]"
        try:
            monitor = MonitorRule(rule) if isinstance(rule, str) else msgspec.convert(rule, MonitorRule)
        except msgspec.ValidationError as error:
            raise SettingsError(
                f"{field}: {error}", remedy="use the fields of skitter.MonitorRule", field=field
            ) from error
        rules.append(CompiledMonitor(monitor, field))
    titles = [rule.monitor.title for rule in rules]
    for place, title in enumerate(titles):
        if title in titles[:place]:
            raise SettingsError(
                f"two monitors are named {title!r:.80}",
                remedy="give each monitor a different name",
                field=f"monitors[{place}]",
            )
    return rules


def describe(verdict: Verdict) -> str:
    """Return a verdict on one line: the rule and the figures that it used."""
    values = ", ".join(f"{name} = {value:.6g}" for name, value in verdict.values.items())
    name = "" if verdict.monitor == verdict.rule else f"{verdict.monitor}: "
    return f"{name}{verdict.rule}" + (f" ({values})" if values else "")
