"""Statistics of a job as text, with the same names and order everywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from skitter._utils.visible import visible_line
from skitter.frontier.records import SETTLED


def kinds(counters: Mapping[str, int], group: str) -> dict[str, int]:
    """Return the counters of a group (``failed``, ``retried``, ``refused``, ``status``) by kind, largest first."""
    head = f"{group}/"
    found = {name.removeprefix(head): count for name, count in counters.items() if name.startswith(head)}
    return dict(sorted(found.items(), key=lambda entry: (-entry[1], entry[0])))


def failures(counters: Mapping[str, int]) -> dict[str, int]:
    """Return the number of dead letters by kind, largest first, without letters that were retried or dropped."""
    failures = Counter(kinds(counters, "failed"))
    failures.subtract(kinds(counters, SETTLED))
    return {kind: count for kind, count in failures.most_common() if count > 0}


def errors(counters: Mapping[str, int]) -> dict[str, int]:
    """Return the number of failed attempts by kind, including the last attempts of failed requests."""
    attempts = Counter(kinds(counters, "failed"))
    attempts.update(kinds(counters, "retried"))
    return dict(attempts.most_common())


def listed(counts: Mapping[str, int]) -> str:
    """Return counts by kind on one line."""
    return ", ".join(f"{visible_line(kind)} {count:,}" for kind, count in counts.items())


def with_kinds(total: int, by_kind: Mapping[str, int]) -> str:
    """Return a total with its parts by kind; empty for 0."""
    return f"{total:,} ({listed(by_kind)})" if total and by_kind else f"{total:,}" if total else ""


def amount(size: int) -> str:
    """Return a number of bytes with its unit (powers of 1,000)."""
    if size < 1000:
        return f"{size} B"
    scaled = float(size)
    for unit in ("kB", "MB", "GB"):
        scaled /= 1000
        if scaled < 999.95:  # otherwise it would be shown as 1000.0
            return f"{scaled:.1f} {unit}"
    return f"{scaled / 1000:,.1f} TB"


def duration(seconds: float) -> str:
    """Return seconds as ``12.3 s``, ``1:02 min`` or ``1:02:03``."""
    if seconds < 59.95:  # otherwise it would be shown as 60.0 s
        return f"{seconds:.1f} s"
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d} min"


def milliseconds(seconds: float) -> str:
    """Return a short time with three digits: ``2.5 ms``, ``250 ms``, ``1.5 s``."""
    return f"{seconds * 1000:.3g} ms" if seconds < 0.9995 else f"{seconds:.3g} s"


def describe_elsewhere(size: int) -> str:
    """Describe items in part files of other machines; empty if there are none. ``size``: in bytes."""
    return f"{size:,} bytes of items are in part files of other machines" if size else ""
