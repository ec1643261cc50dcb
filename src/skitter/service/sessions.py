"""Browser sessions: a token is exchanged for a cookie. Its digest is stored, so that every node accepts the cookie."""

from __future__ import annotations

import hashlib
import secrets
import time

import msgspec

from skitter.service.models import Record, decode
from skitter.service.storage import KeyValueStore

SESSION_SECONDS = 12 * 3600
"""Seconds after which a session ends."""
_KIND = "sessions"


class SessionRecord(Record, kw_only=True):
    """A session, stored under the digest of its id."""

    token: bytes
    """Digest of the token that opened the session."""
    csrf: str
    """Value that unsafe requests have to repeat in a header. Other websites cannot do this."""
    expires: float
    """Unix time at which the session expires."""


class Sessions:
    """The sessions of a service."""

    def __init__(self, store: KeyValueStore) -> None:
        self._store = store

    async def open(self, token: bytes) -> tuple[str, SessionRecord]:
        """Open a session for the token with this digest. Sessions that have expired are removed.

        Returns the value of the cookie, which is not stored, and the session.
        """
        for name, data in (await self._store.all(_KIND)).items():
            if decode(data, SessionRecord).expires <= time.time():
                await self._store.compare_and_swap(_KIND, name, data, None)
        session = secrets.token_urlsafe(32)
        record = SessionRecord(
            token=token, csrf=secrets.token_urlsafe(32), expires=time.time() + SESSION_SECONDS
        )
        await self._store.compare_and_swap(_KIND, _name(session), None, msgspec.json.encode(record))
        return session, record

    async def find(self, session: str) -> SessionRecord | None:
        """Return a session, or ``None`` if it is unknown or has expired."""
        data = await self._store.get(_KIND, _name(session))
        record = None if data is None else decode(data, SessionRecord)
        return record if record is not None and time.time() < record.expires else None

    async def close(self, session: str) -> None:
        """Close a session."""
        data = await self._store.get(_KIND, _name(session))
        await self._store.compare_and_swap(_KIND, _name(session), data, None)


def _name(session: str) -> str:
    return hashlib.sha256(session.encode()).hexdigest()
