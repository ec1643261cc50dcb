"""Authorization: tokens with scopes, and the scope that each call needs."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import IntEnum
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from skitter.errors import UsageError
from skitter.service.config import AUTH_VARIABLE
from skitter.service.errors import ApiError

_MIN_LENGTH = 16
"""Characters of a token."""
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing (RFC 9110, section 9.2.1)."""
_NAMED = re.compile(r"/(?:jobs|recipes)/([^/]+)")
_OPERATED = re.compile(
    r"/jobs/[^/]+/(start|pause|resume|stop|schedule|seeds|settings|failures/(retry|drop)|tasks|tasks/[^/]+(/pause|/resume)?)"
)
"""Calls that control an existing job. Every other call that changes something needs the scope ``admin``."""
_OWN_SESSION = "/session"
_AUDIT = "/audit"


class TokenScope(IntEnum):
    """What a token allows. Each scope includes the scopes before it."""

    READ = 1
    OPERATE = 2
    ADMIN = 3


class Forbidden(ApiError):
    """The token of the caller does not allow the call."""

    status = 403
    title = "Not allowed with this token"


class TokenUsed(ApiError):
    """A token for a single session was used a second time."""

    status = 401
    title = "A valid token is required"


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of a token."""

    digest: bytes
    """SHA-256 of the token, which identifies it."""
    name: str
    """Name in the audit log."""
    scope: TokenScope = TokenScope.ADMIN
    patterns: tuple[str, ...] = ()
    """Names of the jobs and recipes that the token may use, with ``*`` for any text; empty: all."""
    expires: float | None = None
    """Unix time from which the token is refused."""
    single_use: bool = False
    """Whether the token only opens one session."""

    @property
    def is_current(self) -> bool:
        """Whether the token has not expired."""
        return self.expires is None or time.time() < self.expires

    def may_use(self, name: str) -> bool:
        """Return whether the token allows calls for a job or a recipe of this name."""
        return not self.patterns or any(fnmatchcase(name, pattern) for pattern in self.patterns)

    def need(self, *names: str | None) -> None:
        """Raise :class:`Forbidden` unless the token allows calls for all these jobs and recipes."""
        for name in names:
            if name and not self.may_use(name):
                raise Forbidden(
                    f"this token is not valid for a job or recipe named {name!r:.80}",
                    remedy=f"use a name that matches {' or '.join(self.patterns)}, or ask the operator",
                )

    def authorize(self, method: str, path: str) -> None:
        """Raise :class:`Forbidden` unless the token allows a call."""
        needed = needed_scope(method, path)
        if self.scope < needed:
            raise Forbidden(
                f"this call needs a token with the scope {needed.name.lower()}; this one has {self.scope.name.lower()}",
                remedy="use another token, or ask the operator",
            )
        if (named := _NAMED.match(path)) is not None:
            self.need(named[1])
        elif self.patterns and path in {"/metrics", _AUDIT}:
            raise Forbidden(
                "this call covers all jobs, and this token is limited to some",
                remedy="use another token, or ask the operator",
            )


def needed_scope(method: str, path: str) -> TokenScope:
    """Return the scope that a call needs."""
    if path == _AUDIT:
        return TokenScope.ADMIN
    if method in SAFE_METHODS or path == _OWN_SESSION:
        return TokenScope.READ
    return TokenScope.OPERATE if _OPERATED.fullmatch(path) else TokenScope.ADMIN


class ApiTokens:
    """The valid tokens. Only their digests are kept. Each check compares all of them, in constant time.

    ``lines``: each is a token, optionally followed by ``name=``, ``scope=``, ``jobs=`` and ``expires=``. Raises
    :class:`~skitter.errors.UsageError` for an invalid line.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self._callers = [_caller(line, number) for number, line in enumerate(lines, 1)]
        self._used: set[bytes] = set()
        names = [caller.name for caller in self._callers]
        if repeated := next((name for name in names if names.count(name) > 1), ""):
            raise UsageError(
                f"two API tokens have the name {repeated!r}", remedy="rename one", field="token_file"
            )
        if len({caller.digest for caller in self._callers}) < len(names):
            raise UsageError(
                "an API token is on two lines", remedy="give each caller its own token", field="token_file"
            )

    @classmethod
    def load(cls, file: Path | None) -> ApiTokens:
        """Read the tokens from a file, one per line, or the single token in the environment.

        Raises :class:`~skitter.errors.UsageError` if there is no token, or an invalid line.
        """
        try:
            lines = (
                [os.environ.get(AUTH_VARIABLE, "")]
                if file is None
                else file.read_text("utf-8-sig").splitlines()
            )
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"cannot read the token file {file}: {error}",
                remedy="name a text file with one token per line",
                field="token_file",
            ) from None
        tokens = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
        if not tokens:
            raise UsageError(
                "no API token is configured",
                remedy=f"set {AUTH_VARIABLE}, or name a file with one token per line: --token-file FILE",
                field=AUTH_VARIABLE if file is None else "token_file",
            )
        return cls(tokens)

    @classmethod
    def single_use(cls, token: str) -> ApiTokens:
        """Return a token that opens one session and is then refused.

        Only this process may accept it, because its use is not recorded in the store that nodes share.
        """
        tokens = cls([token])
        tokens._callers = [msgspec.structs.replace(tokens._callers[0], name="you", single_use=True)]
        return tokens

    def accept(self, token: bytes) -> Caller | None:
        """Return the caller with this token, or ``None`` if the token is unknown, has expired or was used up."""
        digest = hashlib.sha256(token).digest()
        return None if digest in self._used else self.of_session(digest)

    def use_up(self, caller: Caller) -> bool:
        """If a token may be used only once, refuse it from now on. Return whether this is its first use."""
        if caller.single_use and caller.digest in self._used:
            return False
        if caller.single_use:
            self._used.add(caller.digest)
        return True

    def of_session(self, digest: bytes) -> Caller | None:
        """Return the caller who opened a session, or ``None`` if the token was removed or has expired."""
        # A list, not a generator: the time must not depend on which token matches.
        found = [caller for caller in self._callers if hmac.compare_digest(digest, caller.digest)]
        return found[0] if found and found[0].is_current else None


def _caller(line: str, number: int) -> Caller:
    token, *parts = line.split()
    if len(token) < _MIN_LENGTH:
        raise UsageError(
            f"an API token has only {len(token)} characters; the minimum is {_MIN_LENGTH}",
            remedy='create one with: python -c "import secrets; print(secrets.token_urlsafe())"',
            field="token_file",
        )
    digest = hashlib.sha256(token.encode()).digest()
    fields = {"name": f"token-{digest.hex()[:8]}", "scope": "admin", "jobs": "", "expires": ""}
    for part in parts:
        name, equals, value = part.partition("=")
        if name not in fields or not equals or not value:
            raise _invalid(
                number, "an unknown field", "use name=, scope=, jobs= and expires=, without spaces"
            )
        fields[name] = value
    try:
        scope = TokenScope[fields["scope"].upper()]
    except KeyError:
        raise _invalid(number, "an unknown scope", "use scope=read, scope=operate or scope=admin") from None
    try:
        end = datetime.fromisoformat(fields["expires"]) if fields["expires"] else None
    except ValueError:
        remedy = "write expires=2030-01-31 or expires=2030-01-31T12:00:00Z"
        raise _invalid(number, "an invalid date", remedy) from None
    if end is not None and end.tzinfo is None:
        end = end.replace(tzinfo=UTC)
    patterns = tuple(pattern for pattern in fields["jobs"].split(",") if pattern)
    expires = None if end is None else end.timestamp()
    return Caller(digest=digest, name=fields["name"], scope=scope, patterns=patterns, expires=expires)


def _invalid(number: int, mistake: str, remedy: str) -> UsageError:
    return UsageError(f"API token {number} has {mistake}", remedy=remedy, field="token_file")
