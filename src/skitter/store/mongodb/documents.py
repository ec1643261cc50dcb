"""Documents: items as BSON, first without an id, then with it."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Mapping
from typing import Any

import xxhash
from bson import encode as bson_encode
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument

from skitter.item import without_surrogates

KEPT = (bytes, dt.datetime, uuid.UUID)
"""Types that BSON has itself."""
_CODEC: CodecOptions[dict[str, Any]] = CodecOptions(uuid_representation=UuidRepresentation.STANDARD)


def encoded(fields: Mapping[str, Any]) -> bytes:
    """Return the fields of an item as BSON, without id; what BSON cannot hold becomes text."""
    if "_id" in fields:
        fields = {_field(name): value for name, value in fields.items()}
    try:
        return bson_encode(fields, codec_options=_CODEC)
    except (OverflowError, UnicodeEncodeError):
        return bson_encode(_fitting(without_surrogates(fields)), codec_options=_CODEC)


def document_of(prefix: str, number: int, data: bytes) -> RawBSONDocument:
    """Put the id before the other fields. See bsonspec.org: an element is type, name, value."""
    key = f"{prefix}{number}".encode() + b"\0"
    element = b"\x02_id\0" + len(key).to_bytes(4, "little") + key
    return RawBSONDocument((len(data) + len(element)).to_bytes(4, "little") + element + data[4:])


def _field(name: str) -> str:
    return f"_id_{xxhash.xxh32_intdigest(b'_id') & 0xFFFF:04x}" if name == "_id" else name


def _fitting(value: Any) -> Any:
    """Turn integers of more than 64 bits, which BSON lacks, into text."""
    if isinstance(value, dict):
        return {key: _fitting(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_fitting(inner) for inner in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return str(value)
    return value
