"""Errors of the NSQ client."""

from __future__ import annotations


class NsqError(Exception):
    """Base of every error of this package."""


class ConnectionFailed(NsqError):
    """An nsqd cannot be reached, or the connection to it has ended."""


class LookupFailed(NsqError):
    """An nsqlookupd cannot be asked, or its answer is none."""


class Refused(NsqError):
    """nsqd answered with an error.

    ``code`` is the word of the protocol, such as ``E_BAD_TOPIC``.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code} {text}".strip())
        self.code = code
