"""Page changes: what the current pass of a job that remembers its pages found, and which older items are still valid."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

import msgspec

from skitter.frontier.records import (
    FrontierStatus,
    JobState,
    PageChange,
    VisitedPage,
    VisitsPart,
    joined_spans,
)

ReadVisits = Callable[[str, int], Awaitable[VisitsPart]]
"""``Reports.visits`` of a frontier, or a function that reads its file."""
Ranges = dict[str, list[tuple[int, int]]]
_PART_SIZE = 1000
_UNLINKED = "unlinked"


class PageFinding(msgspec.Struct, frozen=True):
    """What the present pass found about one page."""

    url: str
    change: PageChange
    reason: str = ""
    """Why a page is gone or unchecked: ``status/404``, ``unlinked`` ..."""


class PassReport(msgspec.Struct):
    """What a pass found. ``gone`` includes ``unlinked``, which is known when the pass is finished."""

    pass_number: int
    is_finished: bool
    counts: Counter[str]
    """Number of pages by :class:`PageChange`, and ``unlinked``. Pages that the pass has not reached yet are not counted."""
    kept: Ranges
    """Byte ranges of the items of all remembered pages that are not gone. Ranges of this pass are included, because a page of
    a running job may have changed since the ranges of the pass were read."""
    gone: list[bytes]
    """Fingerprints of the pages that are gone."""

    @property
    def totals(self) -> dict[str, int]:
        """The number of pages for every kind of change."""
        return {name: self.counts[name] for name in (*PageChange, _UNLINKED)}


async def each_visit(read: ReadVisits, *, may_repeat: bool) -> AsyncIterator[VisitedPage]:
    """Read all visits, each once. ``may_repeat``: the frontier may return a visit twice."""
    seen: set[bytes] = set()
    cursor = ""
    while True:
        part = await read(cursor, _PART_SIZE)
        for page in part.pages:
            if may_repeat:
                if page.fingerprint in seen:
                    continue
                seen.add(page.fingerprint)
            yield page
        if not (cursor := part.cursor):
            return


def change_of(page: VisitedPage, number: int, *, is_finished: bool) -> PageFinding | None:
    """Return what a pass found about a page; ``None`` if it has not reached the page yet."""
    if page.pass_number < number:
        return PageFinding(page.url, PageChange.GONE, _UNLINKED) if is_finished else None
    has_reason = page.change in {PageChange.GONE, PageChange.UNCHECKED} and page.status
    return PageFinding(page.url, page.change, f"status/{page.status}" if has_reason else "")


async def read_changes_of_pass(read: ReadVisits, status: FrontierStatus, *, may_repeat: bool) -> PassReport:
    """Read what the present pass of a job found."""
    number, is_finished = status.pass_number, status.state is JobState.FINISHED
    report = PassReport(number, is_finished, Counter(), defaultdict(list), [])
    async for page in each_visit(read, may_repeat=may_repeat):
        found = change_of(page, number, is_finished=is_finished)
        if found is not None:
            report.counts[found.change] += 1
            if found.reason == _UNLINKED:
                report.counts[_UNLINKED] += 1
            if found.change is PageChange.GONE:
                report.gone.append(page.fingerprint)
                continue
        for kept in page.ranges:
            report.kept[kept.part].append((kept.start, kept.end))
    return report


def with_kept(ranges: Mapping[str, Sequence[tuple[int, int]]], kept: Ranges) -> Ranges:
    """Return the ranges of the current pass together with the ranges of the remembered pages. Read ``ranges`` first."""
    return {part: joined_spans([*ranges.get(part, ()), *kept.get(part, ())]) for part in {**ranges, **kept}}
