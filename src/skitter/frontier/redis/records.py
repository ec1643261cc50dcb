"""Encoding and decoding of requests, leases and dead letters for the scripts.

``scripts/redis/prelude/requests.lua`` describes the layout of a request.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from skitter.errors import FrontierError
from skitter.frontier.options import QueueOrder
from skitter.frontier.records import (
    DeadLetter,
    Entry,
    FetchReport,
    FrontierStatus,
    JobState,
    Lease,
    Outcome,
    PageChange,
    PageVisit,
    Resolution,
    SlotStatus,
    VisitedPage,
)
from skitter.frontier.scheduling import time_left
from skitter.frontier.stats import StatsRow
from skitter.frontier.workers import WorkerReport, WorkerStatus
from skitter.item import OutputRange
from skitter.queues import without_queue

encode = msgspec.msgpack.Encoder().encode

# While a script runs the server serves no other worker: the largest amounts that one script gets.
LEASES_BATCH = 500
ENTRIES_BATCH = 1_000
OUTCOMES_BATCH = 256
FINGERPRINTS_BATCH = 5_000
SLOTS_BATCH = 1_000
CLEANUP_BATCH = 200
_UNSIGNED = 1 << 63
"""Added to a signed 64-bit number, gives an unsigned number of the same order."""
_HIGHEST = (1 << 64) - 1
_REST = struct.Struct(">4xB16s")
_LEASE = struct.Struct("<8s2d")
_DEAD_LETTER = struct.Struct("<6sd")
_WAITING = struct.Struct(">14xHHB16sI")
"""After the slot: rank and number (skipped), attempt, lost, dedup, fingerprint, length of the URL with its scheme."""
_SCHEMES = (b"", b"http://", b"https://")
"""The origin of the slot is removed from the URL, and from the first URL in the record, usually the referer. This saves 50
of 200 bytes."""
_UNCUT = 255
_LONGEST_URL = (1 << 24) - 1
_CODES = {Resolution.DONE: 0, Resolution.RETRY: 1, Resolution.FAILED: 2}
_LAST_NUMBER = (1 << 48) - 1
_CHANGES = (
    PageChange.NEW, PageChange.CHANGED, PageChange.UNCHANGED, PageChange.GONE, PageChange.UNCHECKED, PageChange.SKIPPED
)  # fmt: skip
"""The kinds of change, in the order of the codes 1 to 6 that the scripts use for them."""
_VISIT = struct.Struct(">IBHII")
_read_listing = msgspec.msgpack.Decoder(tuple[bytes, list[OutputRange]]).decode


def text(data: bytes) -> msgspec.Raw:
    """Return bytes as a MessagePack string, because Lua's decoder does not know MessagePack bytes."""
    return msgspec.Raw(b"\xdb" + len(data).to_bytes(4, "big") + data)


def to_bytes(words: str) -> bytes:
    """Encode any text, valid Unicode or not."""
    return words.encode("utf-8", "surrogatepass")


def to_words(data: bytes) -> str:
    """Decode a text that :func:`to_bytes` has encoded."""
    return data.decode("utf-8", "surrogatepass")


def id_bytes(lease_id: int) -> bytes:
    """Return a lease id as the scripts write it."""
    return lease_id.to_bytes(8, "big")


def known_numbers(numbers: Sequence[int]) -> list[int]:
    """Return the numbers that can be ids of dead letters, each once."""
    return [number for number in dict.fromkeys(numbers) if 0 < number <= _LAST_NUMBER]


class EntryWriter:
    """Encodes the entries of one call. ``names``: their slots, each with its policy."""

    def __init__(self, order: QueueOrder, policy_of: Callable[[str], int]) -> None:
        self._order = order
        self._policy_of = policy_of
        self._indexes: dict[str, int] = {}
        self.names: list[tuple[msgspec.Raw, int]] = []

    def write(self, entry: Entry) -> tuple[Any, ...]:
        """Return one entry for the scripts. It refers to its slot by the index in ``names``, from 1."""
        index = self._indexes.get(entry.slot)
        if index is None:
            index = self._add_slot(entry.slot)
        payload = _REST.pack(entry.dedup, entry.fingerprint) + _shortened(entry)
        if entry.not_before or entry.delay:
            return (index, text(self._rank(entry)), text(payload), entry.not_before, entry.delay)
        return (index, text(self._rank(entry)), text(payload))

    def _add_slot(self, slot: str) -> int:
        if "\0" in slot:
            raise FrontierError(
                f"slot {slot!r} contains a NUL character", remedy="use another slot name", field="slot"
            )
        self.names.append((text(to_bytes(slot)), self._policy_of(slot)))
        self._indexes[slot] = len(self.names)
        return len(self.names)

    def _rank(self, entry: Entry) -> bytes:
        """Return the bytes that sort requests of a slot, before their number."""
        if self._order == "priority":
            rank = _UNSIGNED + ~entry.priority
            if not 0 <= rank <= _HIGHEST:
                raise FrontierError(
                    f"{entry.url}: priority {entry.priority} does not fit into 64 bits",
                    remedy="use a smaller number",
                    field="priority",
                )
            return rank.to_bytes(8, "big")
        if self._order == "lifo":
            return b""  # the script derives it from the number
        return (random.getrandbits(62) if self._order == "random" else 0).to_bytes(8, "big")


def _shortened(entry: Entry) -> bytes:
    """Return the URL and the record, each without the origin of the slot."""
    url, record = to_bytes(entry.url), entry.record
    scheme = 1 if url.startswith(_SCHEMES[1]) else 2 if url.startswith(_SCHEMES[2]) else 0
    origin = _SCHEMES[scheme] + to_bytes(without_queue(entry.slot)) + b"/"
    if scheme and url.startswith(origin):
        url = url[len(origin) :]
        at = record.find(origin, 0, _UNCUT + len(origin) - 1)
    else:
        scheme, at = 0, -1
    if len(url) > _LONGEST_URL:
        raise FrontierError(
            f"URL {entry.url:.80}... has {len(url)} bytes", remedy="set max_url_length", field="url"
        )
    if at < 0:
        return b"".join(((scheme << 24 | len(url)).to_bytes(4, "big"), url, b"\xff", record))
    head, tail = record[:at], record[at + len(origin) :]
    return b"".join(((scheme << 24 | len(url)).to_bytes(4, "big"), url, bytes((at,)), head, tail))


def write_outcome(
    outcome: Outcome, writer: EntryWriter, outbox: Sequence[msgspec.Raw] = ()
) -> tuple[Any, ...]:
    """Return an outcome for the scripts. ``outbox``: alternately ids and values of requests for other partitions."""
    return (
        text(id_bytes(outcome.lease_id)),
        _CODES[outcome.resolution],
        [writer.write(entry) for entry in outcome.all_entries()],
        outcome.counters,
        [(text(to_bytes(mark.part)), mark.start, mark.end) for mark in outcome.outputs],
        text(to_bytes(outcome.error)),
        outcome.after,
        outcome.free,
        None if outcome.record is None else text(b"\xff" + outcome.record),
        text(to_bytes(outcome.group)),
        outbox,
        *(() if outcome.visit is None else (_write_visit(outcome.visit, outcome.outputs),)),
    )


def _write_visit(visit: PageVisit, outputs: Sequence[OutputRange]) -> tuple[Any, ...]:
    head = (_CHANGES.index(visit.change) + 1, visit.status)
    if visit.memory is None:
        return head
    if visit.change is PageChange.UNCHANGED:
        return (*head, text(visit.memory))
    listing = encode((to_bytes(visit.url), [*visit.ranges, *outputs]))
    of_page = (text(visit.page),) if visit.page else ()
    return (*head, text(len(listing).to_bytes(4, "big") + listing + visit.memory), *of_page)


def read_visit(fingerprint: bytes, packed: bytes) -> VisitedPage:
    """Decode a visit without its memory."""
    met, code, status, since, size = _VISIT.unpack_from(packed)
    url, ranges = _read_listing(packed[_VISIT.size : _VISIT.size + size])
    return VisitedPage(fingerprint, to_words(url), _CHANGES[code - 1], status, met, since, ranges)


def in_batches(outcomes: Sequence[Outcome]) -> Iterator[list[Outcome]]:
    """Divide outcomes so that no script runs for long. One outcome is never divided."""
    batch: list[Outcome] = []
    entries = 0
    for outcome in outcomes:
        entries += outcome.new_requests
        if batch and (len(batch) == OUTCOMES_BATCH or entries > ENTRIES_BATCH):
            yield batch
            batch, entries = [], outcome.new_requests
        batch.append(outcome)
    if batch:
        yield batch


def packed_ids(lease_ids: Sequence[int]) -> Iterator[bytes]:
    """Encode lease ids for the scripts, in at least one batch."""
    for start in range(0, max(1, len(lease_ids)), LEASES_BATCH):
        yield encode([text(id_bytes(lease_id)) for lease_id in lease_ids[start : start + LEASES_BATCH]])


def write_report(report: FetchReport) -> tuple[Any, ...]:
    """Return a fetch report for the scripts, without its trailing fields if they are empty, as after most fetches."""
    lease_id = text(id_bytes(report.lease_id))
    if report.sent and not report.refused and not report.connecting:
        return (lease_id, report.latency)
    is_unsent = not report.sent
    return (lease_id, report.latency, report.refused, report.retry_after, report.connecting, is_unsent)


def _read_request(data: bytes, start: int) -> tuple[bytes, str, str, bytes, int, int]:
    """Return fingerprint, slot, URL, record, attempt and lost leases of the request at ``start``."""
    zero = data.index(0, start)
    attempt, lost, _, fingerprint, length = _WAITING.unpack_from(data, zero + 1)
    url_at = zero + 1 + _WAITING.size
    cut_at = url_at + (length & _LONGEST_URL)
    slot, url = data[start:zero], data[url_at:cut_at]
    cut, record = data[cut_at], data[cut_at + 1 :]
    if length > _LONGEST_URL:
        origin = _SCHEMES[length >> 24] + slot[slot.rfind(b"|") + 1 :] + b"/"  # without its queue
        url = origin + url
        if cut != _UNCUT:
            record = record[:cut] + origin + record[cut:]
    return fingerprint, to_words(slot), to_words(url), record, attempt, lost


def record_of(request: bytes) -> bytes:
    """Return the record of a waiting request."""
    return _read_request(request, 0)[3]


def read_lease(data: bytes) -> Lease:
    """Decode a lease."""
    lease_id, deadline, start_within = _LEASE.unpack_from(data)
    fingerprint, slot, url, record, attempt, lost = _read_request(data, _LEASE.size)
    return Lease(
        int.from_bytes(lease_id, "big"), fingerprint, slot, url, record, attempt, lost, deadline,
        None if start_within < 0 else start_within,
    )  # fmt: skip


def read_dead_letter(data: bytes) -> DeadLetter:
    """Decode a dead letter."""
    number, failed_at = _DEAD_LETTER.unpack_from(data)
    error_at = _DEAD_LETTER.size + 4
    request_at = error_at + int.from_bytes(data[_DEAD_LETTER.size : error_at], "big")
    fingerprint, slot, url, record, attempt, lost = _read_request(data, request_at)
    error = to_words(data[error_at:request_at])
    return DeadLetter(
        int.from_bytes(number, "big"), fingerprint, slot, url, record, error, attempt + 1, lost, failed_at
    )


def read_ranges(fields: Sequence[bytes]) -> dict[str, list[tuple[int, int]]]:
    """Decode the committed ranges of all part files."""
    ranges: dict[str, list[tuple[int, int]]] = {}
    for name, packed in zip(fields[::2], fields[1::2], strict=True):
        start, end = struct.unpack("<2d", packed)
        part = to_words(name.partition(b"\0")[0])
        ranges.setdefault(part, []).append((int(start), int(end)))
    return {part: sorted(spans) for part, spans in ranges.items()}


def read_slot(fields: Sequence[Any]) -> SlotStatus:
    """Decode a slot in a reply of the scripts ``status`` and ``slots``."""
    name, queued, leased, delay, paused_for = fields
    return SlotStatus(to_words(name), queued, leased, float(delay), float(paused_for))


def read_status(reply: Sequence[Any]) -> FrontierStatus:
    """Decode the reply of the script ``status``."""
    state, limit, now, queued, delayed, leased, done, failed, seeds_done, slots, oldest, _ = reply[:12]
    counters, busiest, queues, fetchable, due, number = reply[12:]
    return FrontierStatus(
        state=JobState(state.decode()),
        added=queued + delayed + leased + int(done) + failed,
        queued=queued, delayed=delayed, leased=leased, done=int(done), failed=failed,
        seeds_loading=seeds_done != b"1",
        counters={to_words(n): int(v) for n, v in zip(counters[::2], counters[1::2], strict=True)},
        slots=slots,
        busiest=[read_slot(slot) for slot in busiest],
        oldest_lease=max(0.0, float(now) - float(oldest)) if oldest else 0.0,
        reason=limit.decode(),
        queues={name.decode(): count for name, count in queues},
        fetchable=fetchable,
        next_due=time_left(float(due or "inf"), float(now)),
        pass_number=number,
    )  # fmt: skip


_STATS_ROW = struct.Struct("<7d")
_HEARD = struct.Struct("<d")
_read_report = msgspec.msgpack.Decoder(WorkerReport).decode


def read_stats_row(key: bytes, packed: bytes) -> StatsRow:
    """Decode the counts of one key."""
    return StatsRow(to_words(key), *(int(amount) for amount in _STATS_ROW.unpack(packed)))


def read_worker(packed: bytes) -> WorkerStatus:
    """Decode the report of a worker."""
    (heard,) = _HEARD.unpack_from(packed)
    return WorkerStatus(_read_report(packed[_HEARD.size :]), max(0.0, heard))
