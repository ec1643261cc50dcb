"""Secrets: passwords of frontiers that stand in no URL, and URLs that may be kept or shown."""

from __future__ import annotations

import os
import re
from pathlib import Path

from skitter.errors import FrontierError

PASSWORD = "SKITTER_FRONTIER_PASSWORD"  # noqa: S105 - the name of a variable
"""Variable of the environment with the password of a Valkey or Redis frontier, where its URL has none.
With ``_FILE`` after it: the path of a file that holds it, as containers are given their secrets."""
SENTINEL_PASSWORD = "SKITTER_SENTINEL_PASSWORD"  # noqa: S105 - the name of a variable
"""The same for the sentinels themselves."""
BROKER_SECRET = "SKITTER_BROKER_SECRET"  # noqa: S105 - the name of a variable
"""The same for what stands before the hosts of a broker: a token, or ``USER:PASSWORD``."""

_ACCESS = re.compile(r"(?<=://)([^/?#@]*)@")
_SENTINEL_OPTION = re.compile(r"(?<=[?&])(sentinel_password=)[^&#]*&?")
_BROKERS = ("nsq:", "nats:")


def secret_outside(name: str) -> str:
    """Return what a variable of the environment says, or the file that the one with ``_FILE`` names; else nothing.

    Raises :class:`~skitter.errors.FrontierError` if the file cannot be read.
    """
    if value := os.environ.get(name):
        return value
    path = os.environ.get(f"{name}_FILE")
    if not path:
        return ""
    try:
        return Path(path).read_text("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise FrontierError(
            f"{name}_FILE names {path}, which cannot be read: {reason}",
            remedy="name a file that holds the password and nothing else",
        ) from error


def without_secrets(url: str) -> str:
    """Return the URL of a frontier as it may be kept: who has the secret can use it."""
    return _SENTINEL_OPTION.sub("", _ACCESS.sub(lambda found: _user(url, found), url)).rstrip("?&")


def shown_url(url: str) -> str:
    """Return the URL of a frontier as it may be shown: it tells that there is a secret in it."""
    return _SENTINEL_OPTION.sub(r"\1***&", _ACCESS.sub(lambda found: _stars(url, found), url)).rstrip("&")


def _user(url: str, found: re.Match[str]) -> str:
    user = found[1].partition(":")[0]
    return f"{user}@" if user and not _is_secret(url, found) else ""


def _stars(url: str, found: re.Match[str]) -> str:
    user, colon, _ = found[1].partition(":")
    if _is_secret(url, found):
        return "***@"
    return f"{user}:***@" if colon else f"{user}@"


def _is_secret(url: str, found: re.Match[str]) -> bool:
    """Tell whether all that stands before the hosts of a broker is one secret; its state is another URL behind it."""
    return url.startswith(_BROKERS) and found.start() == url.index("://") + 3
