"""The format of the messages that a broker frontier puts into a broker."""

from __future__ import annotations

import hashlib

import msgspec

from skitter.frontier.records import Entry

_VERSION = 1


class QueueMessage(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The content of a message: permission to lease one request from a slot."""

    version: int
    job: bytes
    """Identifies one start of the job: messages of earlier starts are dropped."""
    slot: bytes
    due: float
    """Unix time before which the message is of no use; 0: none."""
    fingerprint: bytes = b""
    """Empty in a message for a slot alone."""
    url: bytes = b""
    record: bytes = b""
    priority: int = 0
    dedup: bool = False
    pass_number: int = 1
    """Pass of the job in which the request was added."""

    def belongs_to(self, mark: bytes) -> bool:
        """Return whether the message belongs to the start of a job with this mark."""
        return self.version == _VERSION and self.job == mark

    @property
    def slot_key(self) -> str:
        """The key of the slot."""
        return _decode_text(self.slot)

    def entry(self) -> Entry:
        """Return the request that the message holds."""
        return Entry(
            self.fingerprint, self.slot_key, _decode_text(self.url), self.record, self.priority, dedup=self.dedup
        )  # fmt: skip


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(QueueMessage).decode


def job_mark(fingerprint_seed: int) -> bytes:
    """Return the mark of a job. Each start with an empty frontier creates a secret seed, which the mark does not reveal."""
    return hashlib.blake2b(
        fingerprint_seed.to_bytes(8, "big"), digest_size=8, person=b"skitter ticket"
    ).digest()


def request_message(mark: bytes, entry: Entry, due: float, pass_number: int = 1) -> bytes:
    """Encode the message for a request. ``due``: Unix time before which it must not be fetched; 0: none."""
    return _encode(
        QueueMessage(
            _VERSION, mark, _encode_text(entry.slot), due, entry.fingerprint, _encode_text(entry.url),
            entry.record, entry.priority, entry.dedup, pass_number,
        )
    )  # fmt: skip


def slot_message(mark: bytes, slot: str) -> bytes:
    """Encode a message for any one request that waits in a slot."""
    return _encode(QueueMessage(_VERSION, mark, _encode_text(slot), 0.0))


def read_message(body: bytes) -> QueueMessage | None:
    """Decode a message. Return ``None`` for a message that another program published."""
    try:
        return _decode(body)
    except msgspec.MsgspecError:
        return None


def _encode_text(text: str) -> bytes:
    # MessagePack strings must be valid Unicode; slots and URLs may hold lone surrogates.
    return text.encode("utf-8", "surrogatepass")


def _decode_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
