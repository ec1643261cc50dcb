"""Errors of a server: which of them are temporary, and their messages."""

from __future__ import annotations

import re
from traceback import walk_tb
from typing import NamedTuple

from redis import exceptions as kinds

from skitter.errors import FrontierError, SeedKeyError
from skitter.secrets import FRONTIER_PASSWORD


class ServerErrorRule(NamedTuple):
    """A temporary problem, which ends by itself or when the operator solves it."""

    kind: type[kinds.RedisError]
    pattern: str
    """Part of the server's reply, if the client has no class for the error."""
    problem: str
    remedy: str


START_SERVER = "start the server, or correct the URL of --frontier"
_RULES = (
    ServerErrorRule(kinds.OutOfMemoryError, "OOM command not allowed", "its memory is full (maxmemory)",
            "raise maxmemory of the server; no data is lost"),
    ServerErrorRule(kinds.ReadOnlyError, "READONLY ", "it is a read-only replica", "name its primary with --frontier"),
    ServerErrorRule(kinds.ResponseError, "MISCONF ", "it cannot write its data to its disk",
            "free disk space on the server; no data is lost"),
    ServerErrorRule(kinds.ResponseError, "IO error: ", "it cannot write its data to its disk",
            "free disk space on the server; no data is lost"),
    ServerErrorRule(kinds.ResponseError, "reached max-db-size", "its data has reached max-db-size",
            "raise max-db-size of the server; no data is lost"),
    ServerErrorRule(kinds.BusyLoadingError, "LOADING ", "it is loading its data", "wait until it has started"),
    ServerErrorRule(kinds.MasterDownError, "MASTERDOWN ", "its primary does not respond",
            "start the primary, or name another server with --frontier"),
    ServerErrorRule(kinds.ResponseError, "NOREPLICAS ", "it has too few replicas", "start its replicas"),
    ServerErrorRule(kinds.ResponseError, "BUSY ", "it is busy with a script", "run SLOWLOG GET on the server"),
    ServerErrorRule(kinds.ClusterDownError, "CLUSTERDOWN ", "its cluster is down", "start the nodes of the cluster"),
    ServerErrorRule(kinds.TryAgainError, "TRYAGAIN ", "its cluster moves keys", "wait until it has moved them"),
    ServerErrorRule(kinds.ClusterError, "", "its cluster moves keys", "wait until it has moved them"),
    ServerErrorRule(kinds.ConnectionError, "", "it does not respond", START_SERVER),
    ServerErrorRule(kinds.TimeoutError, "", "it does not respond in time", START_SERVER),
)  # fmt: skip
_REFUSALS = (kinds.AuthenticationError, kinds.AuthorizationError, kinds.NoPermissionError)
_FORBIDDEN = ("ACL failure in script", "The user executing the script can't")
"""Replies of Valkey, and of Redis up to 7.0, if the user may not run a command of a script."""
_KVROCKS_REFUSALS = ("Invalid password", "wrong number of arguments")
"""Replies of Kvrocks to a wrong password, and to a user name: it has passwords only."""
_CAUSE = re.compile(r"> - (.+?)(?=, <|$)")
"""The reason of one sentinel, in the client's error."""
_UNKNOWN = re.compile(r"unknown (\w+ )?command", re.IGNORECASE)


class JobGone(FrontierError):
    """The job was removed from the server after it was opened."""


CLOSED_TRANSPORT_ERRORS = (RuntimeError, TypeError, AttributeError)
"""What event loops raise for a write to a connection that is closed; see :func:`as_connection_error`."""


def as_connection_error(error: Exception) -> kinds.ConnectionError:
    """Return the error of an event loop for a write to a broken connection as a connection error. Raise any other error again.

    The cluster client passes it on, because it does not check a connection before it uses it. uvloop raises RuntimeError.
    asyncio raises TypeError or AttributeError on Python 3.12 and early versions of 3.13
    (https://github.com/python/cpython/issues/136234).
    """
    if "the handler is closed" in str(error) or _is_from_closed_transport(error):
        return kinds.ConnectionError("Connection closed before the command was sent.")
    raise error


def _is_from_closed_transport(error: Exception) -> bool:
    *_, (frame, _) = walk_tb(error.__traceback__)
    return frame.f_code.co_name == "writelines" and frame.f_globals["__name__"] == "asyncio.selector_events"


def text_of(error: kinds.RedisError) -> str:
    """Return the text of an error, without internals of the client."""
    text = str(error) or type(error).__name__
    if not text.startswith("No master found"):
        return text
    head, _, sentinels = text.partition(" : ")
    causes = dict.fromkeys(_CAUSE.findall(sentinels))
    return f"{head}: {', '.join(causes)}" if causes else head


def rule_of(error: kinds.RedisError) -> ServerErrorRule | None:
    """Return the rule for an error; ``None`` if the problem is permanent."""
    if isinstance(error, _REFUSALS):
        return None
    text = str(error)
    for rule in _RULES:
        if rule.kind is not kinds.ResponseError and isinstance(error, rule.kind):
            return rule
        if rule.pattern and isinstance(error, kinds.ResponseError) and rule.pattern in text:
            return rule
    return None


def explained(error: kinds.RedisError, where: str) -> FrontierError:
    """Return an error as a :class:`~skitter.errors.FrontierError` with a remedy. ``where``: the server in messages."""
    text = text_of(error)
    refused = _refused(error, text, where)
    if refused is not None:
        return refused
    if text.startswith("GONE "):
        return JobGone(
            f"the job on {where} was removed, or created again by another process",
            remedy="run the same command again to work on the new job",
        )
    if text.startswith("SEEDKEY "):
        return SeedKeyError(
            f"seed key {text.removeprefix('SEEDKEY ')} on {where}",
            remedy="use a list, a set or a sorted set as seed key",
            field="seed_keys",
        )
    rule = rule_of(error)
    if rule is not None:
        detail = f": {text}" if rule.remedy == START_SERVER else ""
        return FrontierError(
            f"frontier {where}: {rule.problem}{detail}", remedy=rule.remedy, field="frontier"
        )
    return FrontierError(
        f"{where} replied: {text}",
        remedy="use Valkey, or Redis 6.2 or later, and let no other program write to the keys of skitter",
    )


def _refused(error: kinds.RedisError, text: str, where: str) -> FrontierError | None:
    """Return the error for a permanent refusal; ``None`` for other errors."""
    if isinstance(error, (kinds.AuthenticationError, kinds.AuthorizationError)) or text in _KVROCKS_REFUSALS:
        return FrontierError(
            f"{where} refuses the user or the password: {text}",
            remedy=f"set {FRONTIER_PASSWORD}, or write them into the URL: redis://USER:PASSWORD@HOST",
            field="password",
        )
    if isinstance(error, kinds.NoPermissionError) or any(mark in text for mark in _FORBIDDEN):
        return FrontierError(
            f"{where} denies a command that the frontier needs: {text}",
            remedy="give the user ~skitter:* (and the seed keys) and +@all -@dangerous +info",
            field="permission",
        )
    if "DB index is out of range" in text:
        return FrontierError(
            f"{where} does not have this database",
            remedy="choose a smaller number, such as 0",
            field="database",
        )
    if _UNKNOWN.search(text) and "SENTINEL" in text:
        return FrontierError(
            f"{where} is not a sentinel", remedy="name the sentinels, or write redis://HOST", field="frontier"
        )
    if _UNKNOWN.search(text):
        return FrontierError(
            f"{where} lacks a command: {text}",
            remedy="use Valkey, or Redis 6.2 or later, without renamed commands (rename-command) and without a proxy",
            field="command",
        )
    return None
