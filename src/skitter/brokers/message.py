"""QueueMessage: what a message says. Its format has a version; what is no ticket of this job is not ours to work on."""

from __future__ import annotations

import hashlib

import msgspec

from skitter.frontier.records import Entry

_VERSION = 1


class QueueMessage(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One request's turn at its slot."""

    version: int
    job: bytes
    """Mark of the job and its life: what an earlier life published is of no use to this one."""
    slot: bytes
    due: float
    """Unix time before which it is of no use; 0: at once."""
    fingerprint: bytes = b""
    """Empty in a ticket that was published again for a lost one: it stands for whatever waits in the slot."""
    url: bytes = b""
    record: bytes = b""
    priority: int = 0
    dedup: bool = False


encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(QueueMessage).decode


def mark_of(fingerprint_seed: int) -> bytes:
    """Return the mark of a job's life: each begins with a secret seed, which this does not tell."""
    return hashlib.blake2b(
        fingerprint_seed.to_bytes(8, "big"), digest_size=8, person=b"skitter ticket"
    ).digest()


def ticket_of(mark: bytes, entry: Entry, due: float) -> bytes:
    """Return the message for a request; ``due``: Unix time before which it is not to be fetched, 0 for now."""
    return encode(
        QueueMessage(
            _VERSION, mark, to_bytes(entry.slot), due, entry.fingerprint, to_bytes(entry.url), entry.record,
            entry.priority, entry.dedup,
        )
    )  # fmt: skip


def bare_ticket(mark: bytes, slot: str) -> bytes:
    """Return a message for whatever waits in a slot."""
    return encode(QueueMessage(_VERSION, mark, to_bytes(slot), 0.0))


def read_ticket(body: bytes, mark: bytes) -> QueueMessage | None:
    """Read a message; ``None`` if it is no ticket of this job's life."""
    try:
        ticket = _decode(body)
    except msgspec.MsgspecError:
        return None
    return ticket if ticket.version == _VERSION and ticket.job == mark else None


def entry_of(ticket: QueueMessage) -> Entry:
    """Return the request that a ticket holds."""
    return Entry(
        ticket.fingerprint, to_text(ticket.slot), to_text(ticket.url), ticket.record, ticket.priority,
        dedup=ticket.dedup,
    )  # fmt: skip


def to_bytes(words: str) -> bytes:
    """Encode any text, also one that is no valid Unicode."""
    return words.encode("utf-8", "surrogatepass")


def to_text(data: bytes) -> str:
    """Return the text that was encoded."""
    return data.decode("utf-8", "surrogatepass")
