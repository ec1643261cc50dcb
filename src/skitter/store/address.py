"""Address: what the name of an output says."""

from __future__ import annotations

import msgspec

from skitter.errors import StoreError
from skitter.secrets import output_variable, secret_outside


class Address(msgspec.Struct, frozen=True):
    """The parts of ``-o NAME``."""

    target: str
    """As the user gave it."""
    kind: str
    """The scheme or the suffix, in lower case."""
    rest: str
    """Without scheme and options: a path, or what follows ``scheme:`` of a service."""
    options: dict[str, str] = {}
    """What follows ``?``, decoded."""

    def secret(self, kind: str, what: str = "password") -> str:
        """Return a secret that stands outside of the name: see :func:`skitter.secrets.output_variable`.

        Empty if there is none. Raises :class:`~skitter.errors.StoreError` for a file that cannot be read.
        """
        return secret_outside(output_variable(kind, what), StoreError)
