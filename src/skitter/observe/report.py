"""The report of a job: one HTML file without scripts, and bar charts for the terminal."""

from __future__ import annotations

import html
import time
from collections.abc import Mapping, Sequence

from skitter._utils.visible import visible
from skitter.frontier.records import DeadLetter, FrontierStatus
from skitter.frontier.stats import StatsRow
from skitter.monitors import describe
from skitter.observe.dead_letters import moment
from skitter.observe.figures import amount, duration, failures, kinds, milliseconds
from skitter.run.job_access import JobStatus
from skitter.worker.timings import BOUNDS, CALLBACK, COMMIT, FETCH, STORE, WAIT, quantile

MAX_LETTERS = 100
"""Maximum number of dead letters that a report lists. The rest is only counted."""
_BAR_WIDTH = 40
_TIMES = {
    "Wait for politeness": WAIT, "Fetch (to the first byte)": FETCH, "Callback": CALLBACK, "Store": STORE, "Commit": COMMIT,
}  # fmt: skip
_SHARES = (0.5, 0.95, 0.99)
_STYLE = """
:root { color-scheme: light dark; --bar: #2f6fab; --line: #8885; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: 0 0 2rem; }
caption { text-align: left; font-weight: 600; font-size: 1.2rem; padding: .5rem 0; }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th[scope=row] { font-weight: normal; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.url { overflow-wrap: anywhere; }
svg { display: block; width: 100%; height: .9rem; }
rect { fill: var(--bar); }
@media (prefers-color-scheme: dark) { :root { --bar: #6aa9e0; } }
"""


def report_html(job: JobStatus, hosts: Sequence[StatsRow], letters: Sequence[DeadLetter]) -> str:
    """Return a report as one HTML document that loads nothing else.

    The figures are the same as in ``skitter status`` and ``skitter stats``. ``hosts``: the hosts with the most pages.
    ``letters``: the oldest dead letters, at most :data:`MAX_LETTERS`.
    """
    counts = job.counts
    parts = [f"<h1>Job {_text(job.job)}</h1><p>{_text(job.state)}, {moment(time.time())} UTC</p>"]
    if counts is None:
        parts.append("<p>The job has no figures: it was never started, or was kept in memory.</p>")
    else:
        parts.append(_figures(job, counts))
        parts.append(_monitors(job))
        parts.append(_times(counts.counters))
        parts += [_chart(title, values) for title, values in charts(counts)]
        parts.append(_hosts(hosts))
        rows = [(letter.url, letter.reason, f"{letter.attempts:,}") for letter in letters]
        parts.append(_table("Dead letters", ("URL", "Error", "Attempts"), rows, texts=2))
        if 0 < len(letters) < counts.failed:
            parts.append(f"<p>{counts.failed - len(letters):,} more are not listed.</p>")
    title = f"<title>skitter report: {_text(job.job)}</title>"
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{title}<style>{_STYLE}</style></head><body><main>{''.join(parts)}</main></body></html>\n"
    )


def charts(counts: FrontierStatus) -> list[tuple[str, dict[str, int]]]:
    """Return the bar charts of a job as titles and values by name. Empty charts are left out."""
    counters = counts.counters
    states = {
        "done": counts.done, "queued": counts.queued, "delayed": counts.delayed, "in flight": counts.leased,
        "failed": counts.failed,
    }  # fmt: skip
    depths = dict(sorted(kinds(counters, "depth").items(), key=lambda entry: int(entry[0])))
    found = [
        ("Requests", {name: value for name, value in states.items() if value}),
        ("Pages by depth", depths),
        ("Responses by status", kinds(counters, "status")),
        ("Failed requests by kind", failures(counters)),
        ("Retried attempts by kind", kinds(counters, "retried")),
        ("Refused URLs by reason", kinds(counters, "refused")),
        ("Fetches by time to the first byte", _distribution(FETCH.read(counters))),
    ]
    return [(title, values) for title, values in found if values]


def _distribution(buckets: Sequence[int]) -> dict[str, int]:
    """Return the numbers of a histogram by range, without the empty buckets at both ends."""
    names = [f"up to {milliseconds(bound)}" for bound in BOUNDS] + [f"over {milliseconds(BOUNDS[-1])}"]
    used = [index for index, count in enumerate(buckets) if count]
    return {names[index]: buckets[index] for index in range(used[0], used[-1] + 1)} if used else {}


def chart_lines(title: str, values: Mapping[str, int], width: int) -> str:
    """Return a bar chart as text of at most ``width`` characters per line."""
    names = max(map(len, values))
    numbers = max(len(f"{value:,}") for value in values.values())
    room = max(1, min(_BAR_WIDTH, width - names - numbers - 4))
    largest = max(values.values())
    lines = [
        f"{name.ljust(names)}  {f'{value:,}'.rjust(numbers)}  {'█' * -(-room * value // largest)}"
        for name, value in values.items()
    ]
    return "\n".join([title, *lines])


def _text(value: str) -> str:
    return html.escape(visible(value))


def _table(caption: str, names: Sequence[str], rows: Sequence[Sequence[str]], *, texts: int = 1) -> str:
    """Return a table; empty without rows. ``texts``: number of columns with text, which precede the columns with figures.

    ``names``: headings of the columns; empty: none.
    """
    if not rows:
        return ""
    head = "".join(
        f'<th scope="col">{name}</th>' if column < texts else f'<th scope="col" class="n">{name}</th>'
        for column, name in enumerate(names)
    )
    body = ""
    for row_name, *cells in rows:
        body += f'<tr><th scope="row" class="url">{_text(row_name)}</th>'
        for column, cell in enumerate(cells, 1):
            body += f'<td class="{"url" if column < texts else "n"}">{_text(cell)}</td>'
        body += "</tr>"
    head = f"<thead><tr>{head}</tr></thead>" if head else ""
    return f"<table><caption>{caption}</caption>{head}<tbody>{body}</tbody></table>"


def _figures(job: JobStatus, counts: FrontierStatus) -> str:
    counters = counts.counters
    rows = [
        ("Pages", f"{counters.get('pages', 0):,}"),
        ("Items", f"{counters.get('items', 0):,}"),
        ("Received", amount(counters.get("bytes", 0))),
        ("Links", f"{counters.get('links', 0):,}"),
        ("Redirects", f"{counters.get('redirects', 0):,}"),
        ("Hosts with work", f"{counts.slots:,}"),
        ("Oldest lease", duration(counts.oldest_lease) if counts.oldest_lease else ""),
        ("Workers", f"{len(job.workers):,}"),
        ("Limit", counts.reason),
        ("Spider", job.spider),
        ("Outputs", ", ".join(job.outputs)),
    ]
    return _table("Figures", (), [row for row in rows if row[1]], texts=2)


def _chart(title: str, values: Mapping[str, int]) -> str:
    largest = max(values.values())
    rows = "".join(
        f'<tr><th scope="row">{_text(name)}</th><td class="n">{value:,}</td><td style="width:60%">'
        f'<svg aria-hidden="true" preserveAspectRatio="none" viewBox="0 0 1000 10">'
        f'<rect width="{-(-1000 * value // largest)}" height="10"/></svg></td></tr>'
        for name, value in values.items()
    )
    return f"<table><caption>{title}</caption><tbody>{rows}</tbody></table>"


def _times(counters: Mapping[str, int]) -> str:
    """Return the percentiles of the processing times of pages."""
    rows = []
    for name, histogram in _TIMES.items():
        buckets = histogram.read(counters)
        if total := sum(buckets):
            shown = [milliseconds(quantile(buckets, share) or 0.0) for share in _SHARES]
            rows.append([name, f"{total:,}", *shown])
    return _table("Times", ("Step", "Number", *(f"{share:.0%} within" for share in _SHARES)), rows)


def _monitors(job: JobStatus) -> str:
    """Return the verdicts of the last pass, and the figures of the passes before it."""
    verdicts = [
        (describe(verdict), _VERDICTS[verdict.passed]) for past in job.passes[:1] for verdict in past.verdicts
    ]
    passes = [
        (
            f"{past.number} ({moment(past.ended)})",
            *(f"{past.figures[name]:,.0f}" for name in ("pages", "items", "failed")),
            duration(past.figures["duration"]),
            f"{len(past.violated):,}",
        )
        for past in job.passes
    ]
    names = ("Pass", "Pages", "Items", "Failed", "Time", "Violated monitors")
    return _table("Monitors", (), verdicts, texts=2) + _table("Passes", names, passes)


_VERDICTS = {True: "passed", False: "violated", None: "not judged"}


def _hosts(hosts: Sequence[StatsRow]) -> str:
    rows = [
        (
            row.key or "(others)",
            f"{row.pages:,}",
            f"{row.items:,}",
            amount(row.bytes),
            f"{row.failed:,}",
            f"{row.retried:,}",
        )
        for row in hosts
    ]
    return _table("Hosts", ("Host", "Pages", "Items", "Received", "Failed", "Retried"), rows)
