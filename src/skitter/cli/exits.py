"""Exit statuses of the command line."""

from __future__ import annotations

FAILED = 1
"""It failed in its course, or requests were given up and ``--fail-on-errors`` was set."""
USAGE = 2
"""The caller asked for what cannot be done as asked."""
INTERRUPTED = 130
"""Ended by a signal: 128 and the number of SIGINT, as shells have it."""
