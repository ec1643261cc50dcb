"""LogLine: one line of the log of a run, as it is kept and as it is shown."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import msgspec

from skitter.run.log_frames import LEVELS

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_INDENT = "    "


class LogLine(msgspec.Struct, omit_defaults=True):
    """What a process of a run said, or its node said of it."""

    time: float
    """Unix time."""
    level: str
    """One of :data:`~skitter.run.log_frames.LEVELS`."""
    logger: str
    """``stderr`` and ``stdout``: it was printed."""
    message: str
    node: str = ""
    worker: str = ""
    """Name of the worker process, or the process id of that which runs the job on the node; empty: not known."""
    traceback: str = ""
    fields: dict[str, Any] = {}
    """What the record brought besides."""

    @property
    def severity(self) -> int:
        """Place of its level among all; what is unknown is the gravest."""
        return severity_of(self.level)

    def is_about(self, text: str) -> bool:
        """Tell whether a text stands in it, in lower or upper case."""
        wanted = text.casefold()
        return wanted in self.message.casefold() or wanted in self.traceback.casefold()

    def view(self, number: int) -> dict[str, Any]:
        """Return it for callers. Its time and names are those of a log in JSON (``--log-format json``)."""
        shown = {
            "number": number,
            "time": self._moment(),
            "level": self.level,
            "logger": self.logger,
            "node": self.node,
            "worker": self.worker,
            "message": self.message,
        }
        if self.traceback:
            shown["traceback"] = self.traceback
        return shown | ({"fields": self.fields} if self.fields else {})

    def text(self) -> str:
        """Return it for people: no page that was crawled can add lines of its own, or speak to a terminal."""
        where = f"{self.node}/{self.worker}" if self.worker else self.node
        said = f"{self.message}\n{self.traceback}" if self.traceback else self.message
        said = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", said)
        said = said.rstrip("\n").replace("\n", f"\n{_INDENT}")
        return f"{self._moment()} {self.level.upper():7} {where} {self.logger}: {said}\n"

    def _moment(self) -> str:
        moment = datetime.fromtimestamp(self.time, UTC).isoformat(timespec="milliseconds")
        return moment.replace("+00:00", "Z")


def severity_of(level: str) -> int:
    """Return the place of a level among all; what is unknown is the gravest."""
    return LEVELS.index(level) if level in LEVELS else len(LEVELS) - 1
