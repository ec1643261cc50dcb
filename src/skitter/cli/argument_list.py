"""Hides passwords in the list of processes: every user of a machine may read the arguments of every process."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from skitter.secrets import SETTINGS_OF_SECRETS, is_secret_name, secrets_in

_NAMED = re.compile(r"(?:-[a-z]|--(?:argument=|setting=)?)?(?P<name>[\w.-]+)=(?P<value>.*)", re.DOTALL)
"""``NAME=VALUE``, optionally with its option."""
_ARGUMENTS_BEGIN, _ARGUMENTS_END = 47, 48
"""Fields of ``/proc/PID/stat``: addresses of the memory that the list of processes shows (proc_pid_stat(5))."""


def hide_secrets() -> None:
    """Overwrite the secrets among the arguments of this process in the memory that the list of processes shows.

    The arguments in ``sys.argv`` are not changed. Only Linux reveals where this memory is.
    """
    if sys.platform != "linux":
        return
    given = [os.fsencode(argument) for argument in sys.orig_argv]
    hidden = [masked(argument) for argument in given]
    if hidden == given:
        return
    import ctypes

    try:
        fields = Path("/proc/self/stat").read_text("ascii", "replace").rpartition(")")[2].split()
        # The name of the process, before the parenthesis, is the second field and may contain spaces.
        begin, end = int(fields[_ARGUMENTS_BEGIN - 2]), int(fields[_ARGUMENTS_END - 2])
    except (OSError, ValueError, IndexError):
        return
    plain = b"".join(argument + b"\0" for argument in given)
    # A container may not report the addresses, and another program may have changed the memory.
    if end - begin >= len(plain) and ctypes.string_at(begin, len(plain)) == plain:
        ctypes.memmove(begin, b"".join(argument + b"\0" for argument in hidden), len(plain))


def masked(argument: bytes) -> bytes:
    """Return an argument of a command with ``*`` for each byte of a secret, so that its length does not change."""
    text = os.fsdecode(argument)
    secrets = secrets_in(text)
    if (named := _NAMED.fullmatch(text)) is not None:
        name = named["name"]
        if is_secret_name(name) or name in SETTINGS_OF_SECRETS or name in {"proxy", "proxies"}:
            secrets = [named["value"]]
    for secret in sorted(map(os.fsencode, secrets), key=len, reverse=True):
        if secret:
            argument = argument.replace(secret, b"*" * len(secret))
    return argument
