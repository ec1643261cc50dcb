"""The records that a frontier exchanges with its callers.

A frontier does not decode requests. An :class:`Entry` carries identity, slot, priority and time alongside the
encoded request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, StrEnum
from typing import Any

import msgspec

from skitter.item import OutputRange


class JobState(StrEnum):
    """The requested or reached state of a job."""

    RUNNING = "running"
    PAUSED = "paused"
    """Lease nothing until the job is resumed. Work in progress is finished and committed."""
    STOPPING = "stopping"
    """Drain: lease nothing more, finish the work in progress and exit. A later run resumes."""
    STOPPED = "stopped"
    """No process works on the job, which is not finished. Only the result of a run has this state."""
    FINISHED = "finished"
    """No request is queued, delayed or leased, and all seeds are loaded. Final."""
    INCOMPLETE = "incomplete"
    """All requests are done, but committed items of other machines are in no output. Only the result of a run has this state."""


class Entry(msgspec.Struct, array_like=True, frozen=True):
    """A request as the frontier stores it."""

    fingerprint: bytes
    """16 bytes."""
    slot: str
    """Key of the unit of politeness, normally the host."""
    url: str
    """URL for listings. The request itself is in ``record``."""
    record: bytes
    priority: int = 0
    not_before: float = 0.0
    """Unix time by the frontier's clock; 0 (default): at once."""
    delay: float = 0.0
    """Seconds from the moment of adding. The later of ``not_before`` and ``delay`` applies."""
    dedup: bool = True
    """``False``: add the request even if its fingerprint is known, and do not make it known."""


class LinkBatch(msgspec.Struct, array_like=True):
    """New requests of one page that differ only in their URL.

    A page may have thousands. The embedded frontier adds a batch without an object for each of them.
    """

    template: Entry
    """What the requests have in common. Fingerprint, slot and URL are empty."""
    urls: list[str]
    fingerprints: list[bytes]
    slots: list[str]
    penalties: list[int]
    """How much the priority of each request is reduced, as a negative number."""

    def __len__(self) -> int:
        return len(self.urls)

    def entries(self) -> list[Entry]:
        """Return the requests one by one."""
        common = self.template
        record, priority, not_before, delay = common.record, common.priority, common.not_before, common.delay
        return [
            Entry(fingerprint, slot, url, record, priority + penalty, not_before, delay)
            for fingerprint, slot, url, penalty in zip(
                self.fingerprints, self.slots, self.urls, self.penalties, strict=True
            )
        ]

    def select(self, indexes: Sequence[int]) -> LinkBatch:
        """Return a batch with some of the requests."""
        if len(indexes) == len(self.urls):
            return self
        return LinkBatch(
            self.template,
            [self.urls[index] for index in indexes],
            [self.fingerprints[index] for index in indexes],
            [self.slots[index] for index in indexes],
            [self.penalties[index] for index in indexes],
        )

    def parts(self, size: int) -> Iterator[LinkBatch]:
        """Divide the batch."""
        for start in range(0, len(self.urls), size):
            part = slice(start, start + size)
            yield LinkBatch(
                self.template,
                self.urls[part],
                self.fingerprints[part],
                self.slots[part],
                self.penalties[part],
            )


class PageChange(StrEnum):
    """What a pass found about a page; see ``docs/design/revisiting.md``."""

    NEW = "new"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    GONE = "gone"
    UNCHECKED = "unchecked"
    """The page could not be fetched, or a hook skipped it. What is remembered of it stays."""
    SKIPPED = "skipped"
    """The page was not due (settings ``revisit_share`` and ``use_lastmod``). What is remembered of it stays."""


class PageVisit(msgspec.Struct, array_like=True, frozen=True):
    """What a frontier remembers of a visit, as part of its outcome."""

    change: PageChange
    status: int = 0
    """HTTP status; 0: there was no response."""
    url: str = ""
    """Only together with ``memory``."""
    memory: bytes | None = None
    """Opaque to the frontier. ``None``: what was stored before stays. For an unchanged page, only the memory is replaced: its
    URL and its items stay."""
    page: bytes = b""
    """Fingerprint of the page, if the lease is not its own but that of its waiting items. It is in the slot of the page."""
    ranges: list[OutputRange] = []
    """Byte ranges that were written with the page, before its waiting items: its response in an archive. They belong to the
    visit as well."""


class VisitedPage(msgspec.Struct, array_like=True, frozen=True):
    """A page that a job remembers."""

    fingerprint: bytes
    url: str
    change: PageChange
    status: int
    pass_number: int
    """The last pass in which the page was found."""
    since: int
    """The pass that wrote its items."""
    ranges: list[OutputRange] = []
    """Byte ranges of its items, with ``changes=all``."""


class VisitsPart(msgspec.Struct, array_like=True, frozen=True):
    """Some of the visits of a job."""

    pages: list[VisitedPage]
    cursor: str
    """Where the next part begins; empty: this is the last part."""


class Lease(msgspec.Struct, array_like=True, frozen=True):
    """A request that one worker holds until a deadline."""

    id: int
    """Unique within the job. Only the worker that was granted the lease can use it."""
    fingerprint: bytes
    slot: str
    url: str
    record: bytes
    attempt: int
    """Number of earlier attempts that failed; 0 at first."""
    lost: int
    """Number of leases that expired or whose worker died."""
    deadline: float
    """Unix time (frontier's clock) at which the lease expires unless it is renewed."""
    start_within: float | None = None
    """Seconds, counted from *asking* for the lease, within which the request must be sent. A worker that is too late
    releases the lease. ``None`` if the slot promises no delay. This guarantees the delay between two fetches of a host
    over all workers without comparing clocks."""
    memory: bytes | None = None
    """:attr:`PageVisit.memory` of the last visit; ``None``: the job does not remember the page."""


class FetchReport(msgspec.Struct, array_like=True, frozen=True):
    """The end of the fetch of a lease. Its slot may start another fetch, although the lease continues."""

    lease_id: int
    latency: float | None = None
    """Seconds to the first byte; ``None`` if there was no response."""
    refused: bool = False
    """Whether the server asked for fewer requests (429 or 503)."""
    retry_after: float | None = None
    """Seconds from the ``Retry-After`` header, if the response had one."""
    connecting: float = 0.0
    """Seconds to open the connection, if the slot promises a delay and a new connection was needed."""
    sent: bool = True
    """Whether the host was contacted. If not, the slot gives the turn of the lease to another request."""


class ComparedPage(msgspec.Struct, array_like=True, frozen=True):
    """What the trap detection of a worker learned from the content of a page; see :mod:`skitter.worker.traps`."""

    url: str
    depth: int
    new_words: list[int]
    """CRC-32 of each word and embedded file that no earlier page of its path had."""
    own_links: int
    """Number of its new links to the same path."""


class LeaseResult(msgspec.Struct, array_like=True, frozen=True):
    """Result of a request for leases."""

    leases: list[Lease]
    state: JobState
    ask_again: float = 0.0
    """Seconds after which asking again may give more. An upper bound: a commit may add requests sooner."""
    reason: str = ""
    """The limit that stops the job, if one was reached."""
    data_loss: bool = False
    """Whether the backend may have lost its latest changes, because of a failover or a restart. The caller must not
    rely on requests that it added earlier."""
    capacity: int | None = None
    """Number of new requests that may be added before the next result (``max_queued``); ``None``: any number."""
    revision: int = 0
    """Increases whenever settings are changed while the job runs, a ban is lifted or a pass begins; 0: that never happened. The
    frontier may then accept links that it has refused before."""
    known_urls: list[str] = []
    """Some of the URLs that other workers of this machine have added since the last result, so that this one need not check them."""
    compared_pages: list[ComparedPage] = []
    """Pages that other workers of this machine have compared since the last result."""


class SlotDecision(Enum):
    """Why nothing was leased from a named slot, unless the slot becomes ready at a known time."""

    LEASED = "leased"
    LATER = "later"
    """No request waits in the slot now, but a leased or delayed request may return to it."""
    EMPTY = "empty"
    """No request waits in the slot, and none can return to it."""


class SlotLeases(msgspec.Struct, frozen=True):
    """Result of a request for leases of named slots; see ``StateFrontier`` in :mod:`skitter.brokers.contract`."""

    result: LeaseResult
    decisions: list[SlotDecision | float]
    """For each slot, in order. A number: seconds until the slot is ready; 0: its concurrency limit is reached."""
    more_ready: bool
    """Whether more could be leased now from slots that were not named."""


class Resolution(StrEnum):
    """How a lease ends.

    Code that runs for each page keeps the members in constants of its module, including members of other enumerations:
    Python 3.11 takes 0.1 µs to find a member in its class.
    """

    DONE = "done"
    RETRY = "retry"
    FAILED = "failed"


class Outcome(msgspec.Struct, array_like=True, frozen=True):
    """The result of a lease. It is committed as a whole or not at all."""

    lease_id: int
    resolution: Resolution
    entries: list[Entry] = []
    """New requests."""
    counters: dict[str, int] = {}
    outputs: list[OutputRange] = []
    error: str = ""
    """For ``RETRY`` and ``FAILED``: the error in one line that starts with its kind. For ``FAILED``, a traceback may follow."""
    after: float = 0.0
    """For ``RETRY``: seconds until the next attempt."""
    free: bool = False
    """For ``RETRY``: the attempt does not count, for example because only robots.txt was fetched."""
    record: bytes | None = None
    """For ``RETRY``: the request that replaces the stored one."""
    group: str = ""
    """The request group whose statistics include the outcome, in addition to its worker and host. Empty: no group."""
    visit: PageVisit | None = None
    """What to remember of the visit, if the job remembers pages (``FrontierSettings.changes``)."""
    batches: list[LinkBatch] = []
    """Further new requests, after ``entries``."""
    compared_pages: list[ComparedPage] = []
    """For the other workers of this machine, even if the outcome is not accepted. A frontier need not pass them on."""

    @property
    def new_requests(self) -> int:
        """Number of new requests."""
        return len(self.entries) + sum(map(len, self.batches))

    def all_entries(self) -> list[Entry]:
        """Return all new requests one by one, for a frontier that has no use for batches."""
        return [*self.entries, *(entry for batch in self.batches for entry in batch.entries())]


class AddResult(msgspec.Struct, array_like=True, frozen=True):
    """The number of requests of one call that were added, known or refused."""

    added: int
    """Number of new requests, which are now stored."""
    known: int
    """Number of requests that the job knew before."""
    banned: int = 0
    """Number of requests to banned slots. They are not stored."""
    over_budget: int = 0
    """Number of requests that the budgets of their slots refused. They are not stored."""

    def __add__(self, other: AddResult) -> AddResult:
        return AddResult(
            self.added + other.added,
            self.known + other.known,
            self.banned + other.banned,
            self.over_budget + other.over_budget,
        )


class SeedClaim(msgspec.Struct, array_like=True, frozen=True):
    """Permission to load the seeds, held by one worker at a time."""

    token: int
    position: int
    """Number of seeds that were loaded before; the loader skips them."""


class SeedProgress(msgspec.Struct, array_like=True, frozen=True):
    """Progress of the seed loader, stored in the same step as its seeds."""

    token: int
    position: int
    done: bool = False
    refused: dict[str, int] = {}
    """Counters to add: the seeds that were refused since the last step, by ``refused/REASON``."""


SETTLED = "settled"
"""Counters ``settled/KIND``: dead letters that were retried or dropped. ``failed/KIND`` counts them too, and never falls."""


class DeadLetter(msgspec.Struct, frozen=True):
    """A request that has failed permanently, with its error."""

    id: int
    fingerprint: bytes
    slot: str
    url: str
    record: bytes
    error: str
    """The reason in one line, and then the traceback, if an exception of user code has one."""
    attempts: int
    lost: int
    failed_at: float

    @property
    def reason(self) -> str:
        """The error in one line that starts with its kind."""
        return self.error.partition("\n")[0]

    @property
    def traceback(self) -> str:
        """Traceback of the exception; empty if there is none."""
        return self.error.partition("\n")[2]


BUSIEST_SLOTS = 20
"""Number of slots in a :class:`FrontierStatus`."""


class SlotStatus(msgspec.Struct, frozen=True):
    """One slot in a status report."""

    key: str
    queued: int
    leased: int
    delay: float
    """Seconds between two fetches: by rule, by robots.txt or adapted."""
    paused_for: float
    """Seconds for which the slot is paused (Retry-After, an unreachable robots.txt)."""


class FrontierStatus(msgspec.Struct, frozen=True):
    """All counts at one moment. ``added == queued + delayed + leased + done + failed`` always holds."""

    state: JobState
    added: int
    queued: int
    delayed: int
    leased: int
    done: int
    failed: int
    seeds_loading: bool
    counters: dict[str, int]
    slots: int
    """Number of slots with queued or leased requests."""
    busiest: list[SlotStatus]
    """The slots with the most queued requests, 20 at most."""
    oldest_lease: float
    """Age in seconds of the oldest lease; 0 if there is none."""
    reason: str = ""
    """The limit that stops the job, if one was reached."""
    queues: dict[str, int] = {}
    """Number of queued requests by queue; empty if the job has only the queue ``default``."""
    fetchable: int = 0
    """Number of slots from which a request may be fetched now."""
    next_due: float = 0.0
    """Seconds until the first delayed request is due; 0 if there is none."""
    pass_number: int = 1
    """Number of the pass over the job: 1 for the first crawl, one more for each recrawl."""


class ExternalSeed(msgspec.Struct, array_like=True, frozen=True):
    """One element of a seed key or of a topic, as another program wrote it."""

    key: str
    """The seed key, or a description of the topic. It appears in messages."""
    value: bytes
    priority: int
    """The score in a sorted set; 0 for other types."""


class SeedBatch(msgspec.Struct, array_like=True, frozen=True):
    """Elements taken from the seed keys and not yet settled. If the worker dies, another one gets them."""

    token: int
    seeds: list[ExternalSeed]


class JobInfo(msgspec.Struct, frozen=True):
    """The facts about a job that a worker needs at its start."""

    fingerprint_seed: int
    """Secret of the job, so that colliding URLs cannot be prepared."""
    fingerprint_version: int
    lease_seconds: float
    """Seconds after which a lease expires unless it is renewed."""


TASK = "task"
"""Key of ``meta`` and of ``cb_kwargs`` that names the task of a request. It is part of the request's identity."""


class _Words(msgspec.Struct):
    cb_kwargs: dict[str, Any] = {}


_encode = msgspec.msgpack.Encoder().encode
_read_words = msgspec.msgpack.Decoder(_Words).decode


class TaskFilter:
    """Recognizes the requests of one task. All of their records contain ``trace``, and few others do by chance."""

    def __init__(self, task: str) -> None:
        self._task = task
        self.trace = _encode(TASK) + _encode(task)

    def matches(self, record: bytes) -> bool:
        """Return whether a stored request belongs to the task. A record that cannot be read belongs to no task."""
        if self.trace not in record:
            return False
        try:
            # The record begins with a version byte.
            return _read_words(memoryview(record)[1:]).cb_kwargs.get(TASK) == self._task
        except msgspec.MsgspecError:
            return False


def joined_spans(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return byte ranges in order. Ranges that touch or overlap are joined."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
