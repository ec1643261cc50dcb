"""PassTracker: keeps the history of a job's passes, and judges each pass by the monitors of the job.

A pass is the work on a job from its start, or from a recrawl, to its end, over all workers and restarts. Its state is one
note in the frontier, which is changed only by compare-and-swap. ``docs/design/monitors.md`` describes the protocol.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

import msgspec

from skitter._utils.notes import NOTE_TTL, Notes
from skitter.errors import FrontierError
from skitter.frontier.records import SETTLED, FrontierStatus, JobState
from skitter.monitors import PLAIN_FIGURES, CompiledMonitor, Figure, Verdict, describe
from skitter.stats import USER
from skitter.worker.bounded_counters import OTHERS, VALUES
from skitter.worker.item_meter import COVERED

log = logging.getLogger("skitter.monitors")

NOTE = "skitter:passes"
_SEEN_NOTE = "skitter:passes:seen"
_FORMAT = 1
MAX_HISTORY = 50
"""Number of passes that a job remembers, unless a monitor needs more."""
MAX_KNOWN = 10_000
"""Number of values of a field that a job remembers."""
_SEEN_INTERVAL = 5.0
"""Seconds between two records of the time at which a process last worked on the pass."""
_SUMS = {"responses": "status", "failed": "failed", "retried": "retried", "refused": "refused"}
"""Figures that are the sum of a group of counters, with the name of the group."""


class PassRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A pass that has ended."""

    number: int
    """1 for the first pass of the job."""
    began: float
    ended: float
    """Unix times."""
    reason: str = ""
    """Why the pass ended early: a limit, or a monitor. Empty: nothing was left to do."""
    figures: dict[str, float] = {}
    verdicts: list[Verdict] = []

    @property
    def violated(self) -> list[Verdict]:
        """The violated monitors."""
        return [verdict for verdict in self.verdicts if verdict.passed is False]


class OpenPass(msgspec.Struct, frozen=True, kw_only=True):
    """The pass in progress."""

    number: int
    began: float
    baseline: dict[str, int] = {}
    """Counters of the job at the beginning of the pass."""
    alarms: list[Verdict] = []
    """Monitors that were violated during the run, without repetitions."""
    may_be_empty: bool = False
    """Whether the job was finished when the pass began. The pass is dropped if nothing is added."""


class Passes(msgspec.Struct, frozen=True, kw_only=True):
    """The passes of a job."""

    format: int = _FORMAT
    current: OpenPass | None = None
    history: list[PassRecord] = []
    """The passes that have ended, newest first."""
    known: dict[str, list[str]] = {}
    """Digests of the values of each field whose new values are counted, over all passes."""
    unreported: list[int] = []
    """Numbers of passes, and of the current one, with violations that were not reported yet."""
    inherited: int = 0
    """Number of the last pass that the job has inherited from an earlier frontier."""

    @property
    def own(self) -> list[PassRecord]:
        """The passes that have ended on this frontier, newest first."""
        return [record for record in self.history if record.number > self.inherited]

    @property
    def number(self) -> int:
        """Number of the current pass, or of the last pass if none is open; 0 without any pass."""
        return (
            self.current.number if self.current is not None else self.history[0].number if self.history else 0
        )

    @property
    def violated(self) -> list[Verdict]:
        """The violated monitors of the current pass, or of the last pass if none is open."""
        if self.current is not None:
            return self.current.alarms
        return self.history[0].violated if self.history else []


def decode_passes(note: bytes | None) -> Passes:
    """Read the note of a job. Raises :class:`~skitter.errors.FrontierError` for the note of another version."""
    if note is None:
        return Passes()
    try:
        found = msgspec.msgpack.decode(note, type=Passes)
    except msgspec.MsgspecError as error:
        raise FrontierError(
            f"cannot read the passes of the job: {error}", remedy="use the version of skitter that wrote them"
        ) from error
    if found.format != _FORMAT:
        raise FrontierError(
            f"the passes of the job have format {found.format}; this version of skitter reads format {_FORMAT}",
            remedy="use the version of skitter that wrote them",
            field="format",
        )
    return found


class PassTracker:
    """Begins, watches and closes the passes of one job. Any number of processes may do so at the same time."""

    def __init__(
        self, notes: Notes, rules: Sequence[CompiledMonitor], inherited: Passes | None = None
    ) -> None:
        """``inherited``: earlier passes, if the job starts on a new frontier."""
        self._notes = notes
        self._rules = rules
        self._inherited = inherited
        self._during = [rule for rule in rules if rule.monitor.during]
        self._alarmed: set[str] = set()
        """Monitors of the current pass that were violated, here or on another machine."""
        self._number = 0
        """Number of the pass in which this process takes part; 0: none."""
        self._next_seen = 0.0
        self.stopped_by = ""
        """The monitor that stopped the run; empty if none did."""

    async def begin(self, status: FrontierStatus) -> None:
        """Take part in the current pass. Open a pass if there is none.

        A pass of a finished job counts only if a worker adds requests.
        """
        while True:
            note = await self._notes.get(NOTE)
            passes = decode_passes(note)
            if note is None and self._inherited is not None:
                passes = self._inherited
            if passes.current is not None:
                break
            number = passes.history[0].number + 1 if passes.history else 1
            opened = OpenPass(
                number=number,
                began=time.time(),
                baseline=dict(status.counters),
                may_be_empty=status.state is JobState.FINISHED,
            )
            if await self._swap(note, passes, current=opened):
                passes = msgspec.structs.replace(passes, current=opened)
                break
        assert passes.current is not None
        self._number = passes.current.number
        self._alarmed = {verdict.monitor for verdict in passes.current.alarms}
        self._next_seen = 0.0
        await self.record_seen()

    async def record_seen(self) -> None:
        """Record every few seconds that a process is working on the pass."""
        if self._number and time.time() >= self._next_seen:
            self._next_seen = time.time() + _SEEN_INTERVAL
            await self._notes.put(_SEEN_NOTE, msgspec.msgpack.encode(time.time()), NOTE_TTL)

    @property
    def due(self) -> list[CompiledMonitor]:
        """The monitors that apply during the run and were not violated yet."""
        return (
            [rule for rule in self._during if rule.monitor.title not in self._alarmed] if self._number else []
        )

    async def judge_running(self, status: FrontierStatus) -> None:
        """Judge the monitors that apply during the run. Sets :attr:`stopped_by`."""
        now, due = time.time(), self.due
        passes = decode_passes(await self._notes.get(NOTE))
        if passes.current is None:
            return
        self._alarmed |= {verdict.monitor for verdict in passes.current.alarms}
        figures = figures_of(status, passes.current, self._rules, now, passes.known)
        for rule in due:
            if figures["pages"] + figures["failed"] >= rule.monitor.after:
                verdict = rule.judge(figures, _complete(passes.history), now)
                if verdict.passed is False:
                    await self._raise_alarm(rule, verdict)

    async def _raise_alarm(self, rule: CompiledMonitor, verdict: Verdict) -> None:
        self._alarmed.add(verdict.monitor)
        while True:
            note = await self._notes.get(NOTE)
            passes = decode_passes(note)
            current = passes.current
            if current is None or verdict.monitor in {known.monitor for known in current.alarms}:
                break  # another machine has recorded it already
            current = msgspec.structs.replace(current, alarms=[*current.alarms, verdict])
            unreported = sorted({*passes.unreported, current.number})
            if await self._swap(note, passes, current=current, unreported=unreported):
                log.warning("monitor violated during the run: %s", describe(verdict))
                break
        if rule.monitor.during == "stop":
            self.stopped_by = verdict.monitor

    async def close(self, status: FrontierStatus) -> PassRecord | None:
        """Close the pass if the job is finished, or if a limit or a monitor has stopped it and no lease is left.

        Exactly one process judges the pass. Return the record of the pass if it is closed, by any process; ``None`` if it
        continues, or if this process took part in no pass.
        """
        while True:
            note = await self._notes.get(NOTE)
            passes = decode_passes(note)
            current = passes.current
            if current is None:
                return next((past for past in passes.history if past.number == self._number), None)
            reason = self._reason(status, current)
            if reason is None:
                return None
            if current.may_be_empty and current.baseline == status.counters:
                if await self._swap(note, passes, current=None):
                    return None
                continue
            ended = await self._seen() if not self._number else time.time()
            record = self._judged(status, current, passes, reason, max(ended, current.began))
            kept = max([MAX_HISTORY, *(rule.passes for rule in self._rules)])
            unreported = sorted({*passes.unreported, *([record.number] if record.violated else [])})
            history = [record, *passes.history][:kept]
            known = passes.known | {
                field: known_values(status.counters, field, passes.known.get(field, ()))
                for rule in self._rules
                for field in rule.fields_with_values
            }
            if await self._swap(
                note, passes, current=None, history=history, known=known, unreported=unreported
            ):
                for verdict in record.violated:
                    if not verdict.at:
                        log.warning("monitor violated: %s", describe(verdict))
                return record

    def _reason(self, status: FrontierStatus, current: OpenPass) -> str | None:
        """Return why the pass ends early, empty if nothing is left to do, or ``None`` if it continues."""
        if status.state is JobState.FINISHED:
            return ""
        stopping = {rule.monitor.title for rule in self._during if rule.monitor.during == "stop"}
        stopped_by = [verdict.monitor for verdict in current.alarms if verdict.monitor in stopping]
        if status.leased or not (status.reason or stopped_by):
            return None
        return f"monitor {stopped_by[0]}" if stopped_by else status.reason

    def _judged(
        self, status: FrontierStatus, current: OpenPass, passes: Passes, reason: str, ended: float
    ) -> PassRecord:
        figures = figures_of(status, current, self._rules, ended, passes.known)
        alarms = {verdict.monitor: verdict for verdict in current.alarms}
        verdicts = []
        for rule in self._rules:
            verdict = alarms.get(rule.monitor.title)
            if verdict is None:
                # A pass that a monitor has stopped is incomplete, so the other figures are meaningless.
                verdict = rule.judge(
                    {} if reason.startswith("monitor ") else figures, _complete(passes.history)
                )
            verdicts.append(verdict)
        return PassRecord(
            number=current.number,
            began=current.began,
            ended=ended,
            reason=reason,
            figures=figures,
            verdicts=verdicts,
        )

    async def violated(self) -> list[Verdict]:
        """Return the violated monitors of the current pass, or of the last pass if none is open."""
        return decode_passes(await self._notes.get(NOTE)).violated if self._rules else []

    async def unreported(self) -> list[PassRecord]:
        """Return the passes with violations that have not been reported, including the current pass."""
        passes = decode_passes(await self._notes.get(NOTE))
        found = [record for record in passes.history if record.number in passes.unreported]
        current = passes.current
        if current is not None and current.number in passes.unreported:
            found.append(
                PassRecord(number=current.number, began=current.began, ended=0.0, verdicts=current.alarms)
            )
        return found

    async def set_reported(self, record: PassRecord) -> None:
        """Record that the violations of a pass were reported, unless there are new ones."""
        while True:
            note = await self._notes.get(NOTE)
            passes = decode_passes(note)
            current = passes.current
            if record.number not in passes.unreported or (
                current is not None
                and current.number == record.number
                and len(current.alarms) > len(record.violated)
            ):
                return
            unreported = [number for number in passes.unreported if number != record.number]
            if await self._swap(note, passes, unreported=unreported):
                return

    async def _swap(self, note: bytes | None, passes: Passes, **changes: object) -> bool:
        new = msgspec.msgpack.encode(msgspec.structs.replace(passes, **changes))
        return await self._notes.compare_and_swap(NOTE, note, new, NOTE_TTL)

    async def _seen(self) -> float:
        """Return when a process last worked on the pass. All processes may have been killed before they could close it."""
        note = await self._notes.get(_SEEN_NOTE)
        return time.time() if note is None else msgspec.msgpack.decode(note, type=float)


def _complete(history: Sequence[PassRecord]) -> list[dict[str, float]]:
    """Return the figures of the passes that no monitor has stopped."""
    return [record.figures for record in history if not record.reason.startswith("monitor ")]


def figures_of(
    status: FrontierStatus,
    current: OpenPass,
    rules: Sequence[CompiledMonitor],
    now: float,
    known: Mapping[str, Sequence[str]],
) -> dict[str, float]:
    """Return the figures of a pass: all figures without arguments, and the figures that the rules use."""
    before = current.baseline
    counters = {name: count - before.get(name, 0) for name, count in status.counters.items()}
    figures = {name: float(counters.get(name, 0)) for name in PLAIN_FIGURES}
    for name, group in _SUMS.items():
        figures[name] = float(_sum(counters, f"{group}/"))
    figures["failed"] = max(0.0, figures["failed"] - _sum(counters, f"{SETTLED}/"))
    figures["duration"] = now - current.began
    for figure in {figure for rule in rules for figure in rule.figures if figure.argument}:
        value = _value(figure, counters, known)
        if value is not None:
            figures[str(figure)] = value
    return figures


def _value(figure: Figure, counters: Mapping[str, int], known: Mapping[str, Sequence[str]]) -> float | None:
    """Return the value of a figure with an argument; ``None`` if it is unknown."""
    name, argument = figure
    if name == "coverage":
        items = counters.get("items", 0)
        return counters.get(COVERED + argument, 0) / items if items else None
    if name == "new_values":
        if argument not in known or counters.get(f"{VALUES}{argument}/{OTHERS}"):
            return None  # no earlier values, or too many to decide
        return float(len(set(known_values(counters, argument)).difference(known[argument])))
    return float(_count(name, argument, counters))


def _count(name: str, argument: str, counters: Mapping[str, int]) -> int:
    if name == "stat":
        return counters.get(USER + argument, 0)
    if name == "status":
        return _sum(counters, f"status/{argument.removesuffix('xx')}")
    found = counters.get(f"{name}/{argument}", 0) + _sum(counters, f"{name}/{argument}/")
    if name == "failed":
        found -= counters.get(f"{SETTLED}/{argument}", 0) + _sum(counters, f"{SETTLED}/{argument}/")
    return max(0, found)


def known_values(counters: Mapping[str, int], field: str, before: Sequence[str] = ()) -> list[str]:
    """Return the digests of the values of a field, earlier passes first, at most :data:`MAX_KNOWN`."""
    group = f"{VALUES}{field}/"
    found = [name.removeprefix(group) for name in counters if name.startswith(group)]
    return list(dict.fromkeys([*before, *found]))[:MAX_KNOWN]


def _sum(counters: Mapping[str, int], head: str) -> int:
    return sum(count for name, count in counters.items() if name.startswith(head))
