"""Tables: what the control commands print, for people and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from skitter.cli.reach import JobStatus
from skitter.cli.say import aligned
from skitter.frontier.base import DeadLetter, FrontierStatus
from skitter.observe.figures import amount, errors, kinds, listed


def to_json(value: Any) -> str:
    """Return a value as JSON for programs and people."""
    return msgspec.json.format(msgspec.json.encode(value)).decode()


def status_lines(job: JobStatus) -> str:
    """Return the status of one job, a figure a line."""
    rows = [
        ("job", job.job),
        ("state", job.state),
        ("spider", job.spider),
        ("output", ", ".join(job.outputs)),
    ]
    if job.counts is not None:
        rows += _counts(job.counts, live=job.live)
    return aligned([row for row in rows if row[1]])


def _counts(counts: FrontierStatus, *, live: bool) -> list[tuple[str, str]]:
    counters = counts.counters
    in_hand = f"{counts.leased:,}" + ("" if live or not counts.leased else " (go back to the queue)")
    return [
        ("limit", counts.reason),
        ("pages", f"{counters.get('pages', 0):,}"),
        ("items", f"{counters.get('items', 0):,}"),
        ("received", amount(counters.get("bytes", 0))),
        ("queued", f"{counts.queued:,}" + (" and seeds still to be loaded" if counts.seeds_loading else "")),
        ("delayed", f"{counts.delayed:,}"),
        ("in flight", in_hand),
        ("done", f"{counts.done:,}"),
        ("failed", f"{counts.failed:,}"),
        ("hosts", f"{counts.slots:,}"),
        ("busiest", ", ".join(f"{slot.key} ({slot.queued:,})" for slot in counts.busiest[:5])),
        ("errors", listed(errors(counters))),
        ("refused", listed(kinds(counters, "refused"))),
    ]


def job_lines(jobs: Sequence[JobStatus]) -> str:
    """Return jobs as a table."""
    rows = [["JOB", "STATE", "PAGES", "ITEMS", "WAITING", "FAILED", "SPIDER"]]
    rows += [[job.job, job.state, *_four(job.counts), job.spider] for job in jobs]
    return aligned(rows, right=frozenset({2, 3, 4, 5}))


def _four(counts: FrontierStatus | None) -> list[str]:
    if counts is None:
        return ["-"] * 4
    waiting = counts.queued + counts.delayed + counts.leased
    figures = (counts.counters.get("pages", 0), counts.counters.get("items", 0), waiting, counts.failed)
    return [f"{figure:,}" for figure in figures]


def letter_lines(letters: Sequence[DeadLetter]) -> str:
    """Return dead letters as a table."""
    rows = [["ID", "FAILED AT (UTC)", "ATTEMPTS", "URL", "ERROR"]]
    rows += [
        [str(letter.id), _moment(letter.failed_at), str(letter.attempts), letter.url, letter.error]
        for letter in letters
    ]
    return aligned(rows, right=frozenset({0, 2}))


def letter_fields(letter: DeadLetter) -> dict[str, Any]:
    """Return a dead letter as plain values, its request included."""
    from skitter.errors import SkitterError  # noqa: PLC0415 - beside what it guards
    from skitter.request import decode_request  # noqa: PLC0415

    fields: dict[str, Any] = {
        "id": letter.id,
        "url": letter.url,
        "error": letter.error,
        "attempts": letter.attempts,
        "lost": letter.lost,
        "failed_at": _moment(letter.failed_at),
        "slot": letter.slot,
        "fingerprint": letter.fingerprint.hex(),
    }
    try:
        fields["request"] = msgspec.to_builtins(decode_request(letter.url, letter.record))
    except SkitterError as error:
        fields["request"] = None
        fields["request_error"] = str(error)
    return fields


def letter_texts(letters: Sequence[DeadLetter]) -> str:
    """Return everything about dead letters, a field a line."""
    return "\n\n".join(_letter_text(letter) for letter in letters)


def _letter_text(letter: DeadLetter) -> str:
    fields = letter_fields(letter)
    request = fields.pop("request") or {}
    rows = [(name, str(value)) for name, value in fields.items()]
    rows += [(name.replace("_", " "), str(value)) for name, value in request.items() if name != "url"]
    return aligned(rows)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
