"""Troubles: what may be wrong with the server, in words, and whether waiting helps."""

from __future__ import annotations

import re
from typing import NamedTuple

from redis import exceptions as kinds

from skitter.errors import FrontierError, SeedKeyError
from skitter.secrets import FRONTIER_PASSWORD


class ServerErrorRule(NamedTuple):
    """Something that passes by itself, or by an operator's hand."""

    kind: type[kinds.RedisError]
    mark: str
    """What the server's answer holds, where the client has no class for it."""
    what: str
    remedy: str


_AWAY = "start it, or correct the URL of --frontier"
_TROUBLES = (
    ServerErrorRule(kinds.OutOfMemoryError, "OOM command not allowed", "its memory is full (maxmemory)",
            "raise maxmemory of the server; nothing is lost meanwhile"),
    ServerErrorRule(kinds.ReadOnlyError, "READONLY ", "it is a read-only replica", "name its primary with --frontier"),
    ServerErrorRule(kinds.ResponseError, "MISCONF ", "it cannot write its data to its disk",
            "free some space there; nothing is lost meanwhile"),
    ServerErrorRule(kinds.ResponseError, "IO error: ", "it cannot write its data to its disk",
            "free some space there; nothing is lost meanwhile"),
    ServerErrorRule(kinds.ResponseError, "reached max-db-size", "it may take no more of its disk (max-db-size)",
            "raise max-db-size of the server; nothing is lost meanwhile"),
    ServerErrorRule(kinds.BusyLoadingError, "LOADING ", "it is loading its data", "wait until it has started"),
    ServerErrorRule(kinds.MasterDownError, "MASTERDOWN ", "it has lost its primary",
            "start the primary, or name another server with --frontier"),
    ServerErrorRule(kinds.ResponseError, "NOREPLICAS ", "it has too few replicas", "start its replicas"),
    ServerErrorRule(kinds.ResponseError, "BUSY ", "it is busy with a script", "see what SLOWLOG says on the server"),
    ServerErrorRule(kinds.ClusterDownError, "CLUSTERDOWN ", "its cluster is down", "start the nodes of the cluster"),
    ServerErrorRule(kinds.TryAgainError, "TRYAGAIN ", "its cluster moves keys", "wait until it has moved them"),
    ServerErrorRule(kinds.ClusterError, "", "its cluster moves keys", "wait until it has moved them"),
    ServerErrorRule(kinds.ConnectionError, "", "it does not answer", _AWAY),
    ServerErrorRule(kinds.TimeoutError, "", "it does not answer in time", _AWAY),
)  # fmt: skip
_REFUSALS = (kinds.AuthenticationError, kinds.AuthorizationError, kinds.NoPermissionError)
_FORBIDDEN = ("ACL failure in script", "The user executing the script can't")
"""What servers say of a command that a script may not run: Valkey, and Redis up to 7.0."""
_KVROCKS_REFUSALS = ("Invalid password", "wrong number of arguments")
"""What Kvrocks says of a wrong password, and of a user's name: it knows passwords alone."""
_CAUSE = re.compile(r"> - (.+?)(?=, <|$)")
"""Why one sentinel named no primary, behind what the client says of itself."""
_UNKNOWN = re.compile(r"unknown (\w+ )?command", re.IGNORECASE)


class JobGone(FrontierError):
    """The job that was opened is no longer on the server."""


def broken(error: RuntimeError) -> kinds.ConnectionError:
    """Return as a broken connection what uvloop says of a write to one; raise the error if it is about anything else.

    The client hands it on as it is, where it does not look at a connection before it uses it (on a cluster).
    """
    if "the handler is closed" not in str(error):
        raise error
    return kinds.ConnectionError("Connection closed before the command was sent.")


def said(error: kinds.RedisError) -> str:
    """Return the text of an error, without the innards of the client that it may hold."""
    text = str(error) or type(error).__name__
    if not text.startswith("No master found"):
        return text
    head, _, sentinels = text.partition(" : ")
    causes = dict.fromkeys(_CAUSE.findall(sentinels))
    return f"{head}: {', '.join(causes)}" if causes else head


def trouble_of(error: kinds.RedisError) -> ServerErrorRule | None:
    """Return the trouble that an error tells of, if it is one that passes."""
    if isinstance(error, _REFUSALS):
        return None
    text = str(error)
    for trouble in _TROUBLES:
        if trouble.kind is not kinds.ResponseError and isinstance(error, trouble.kind):
            return trouble
        if trouble.mark and isinstance(error, kinds.ResponseError) and trouble.mark in text:
            return trouble
    return None


def explained(error: kinds.RedisError, where: str) -> FrontierError:
    """Return what is wrong in words, and what to do about it."""
    text = said(error)
    refused = _refused(error, text, where)
    if refused is not None:
        return refused
    if text.startswith("GONE "):
        return JobGone(
            f"the job on {where} was removed, or begun anew by somebody else",
            remedy="run the same command again to work on the job that is there now",
        )
    if text.startswith("SEEDKEY "):
        return SeedKeyError(
            f"seed key {text.removeprefix('SEEDKEY ')} on {where}",
            remedy="seeds are taken from a list, a set or a sorted set",
        )
    trouble = trouble_of(error)
    if trouble is not None:
        detail = f": {text}" if trouble.remedy == _AWAY else ""
        return FrontierError(f"frontier {where}: {trouble.what}{detail}", remedy=trouble.remedy)
    return FrontierError(
        f"{where} answers: {text}",
        remedy="use Valkey, or Redis 6.2 or later, and let nothing else write to skitter's keys",
    )


def _refused(error: kinds.RedisError, text: str, where: str) -> FrontierError | None:
    """Return what the server refuses as long as nobody sets it right."""
    if isinstance(error, (kinds.AuthenticationError, kinds.AuthorizationError)) or text in _KVROCKS_REFUSALS:
        return FrontierError(
            f"{where} refuses the user or the password: {text}",
            remedy=f"set {FRONTIER_PASSWORD}, or write them into the URL: redis://USER:PASSWORD@HOST",
        )
    if isinstance(error, kinds.NoPermissionError) or any(mark in text for mark in _FORBIDDEN):
        return FrontierError(
            f"{where} does not permit what a frontier does: {text}",
            remedy="give the user ~skitter:* (and the seed keys) and +@all -@dangerous +info",
        )
    if "DB index is out of range" in text:
        return FrontierError(f"{where} has no such database", remedy="choose a smaller number, such as 0")
    if _UNKNOWN.search(text) and "SENTINEL" in text:
        return FrontierError(
            f"{where}: this is no sentinel", remedy="name the sentinels, or write redis://HOST"
        )
    if _UNKNOWN.search(text):
        return FrontierError(
            f"{where} lacks a command: {text}",
            remedy="use Valkey, or Redis 6.2 or later, with no command renamed (rename-command) and no proxy before it",
        )
    return None
