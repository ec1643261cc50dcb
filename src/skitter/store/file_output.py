"""FileOutput: a named file that holds exactly the committed items, in the format of its name."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import xxhash

from skitter.store.committed import Committed
from skitter.store.contract import OutputContext, parts_folder, type_of_ranges
from skitter.store.files import ITEMS_STREAM, PartFileStore, ranges_for
from skitter.store.merge import Format, check_target, merge
from skitter.store.stamp import Stamp


class FileOutput:
    """JSON lines or CSV, plain or compressed; written anew, in one step, at every stop of the job."""

    def __init__(self, target: str, path: Path, form: Format) -> None:
        self.target = target
        self.stream = ITEMS_STREAM
        self.path = path
        self._form = form

    async def check(self, context: OutputContext) -> None:  # noqa: ARG002 - the file is not the job's
        """Find out whether the folder takes the file; see :func:`~skitter.store.merge.check_target`."""
        await asyncio.to_thread(check_target, self.path)

    async def occupied(self, context: OutputContext) -> bool:
        """Whether there is a file that is not empty and not as this job's last merge left it."""
        return await asyncio.to_thread(self._is_occupied, context)

    async def clear(self, context: OutputContext) -> None:
        """Nothing: the part files go with the job's folder, the file is replaced by the next merge."""

    def store(self) -> PartFileStore:
        """Return a new part file."""
        return PartFileStore()

    async def emit(self, context: OutputContext, ranges: type_of_ranges) -> bool:  # noqa: ARG002 - see merge
        """Nothing: the file is made by ``merge``."""
        return True

    async def merge(self, context: OutputContext, ranges: type_of_ranges) -> None:
        """Replace the file by one that holds the committed ranges."""
        await asyncio.to_thread(self._merge, context, ranges)

    async def export(self, committed: Committed) -> None:
        """Replace the file by one that holds what is committed, outside any run of the job."""
        await asyncio.to_thread(merge, committed, self.path, self._form)

    def is_taken(self) -> bool:
        """Whether there is a file that is not empty."""
        return self.path.exists() and self.path.stat().st_size > 0

    def _merge(self, context: OutputContext, ranges: type_of_ranges) -> None:
        merge(
            Committed(parts_folder(context.directory), ranges_for(context, ranges)),
            self.path,
            self._form,
            durability=context.durability,
            before_replace=lambda draft: self._stamp(context).expect(draft, instead_of=self.path),
        )

    def _is_occupied(self, context: OutputContext) -> bool:
        return self.is_taken() and not self._stamp(context).knows(self.path)

    def _stamp(self, context: OutputContext) -> Stamp:
        place = xxhash.xxh3_64_hexdigest(os.fsencode(os.path.realpath(self.path)))
        return Stamp(Path(context.directory) / "outputs" / f"{place}.json")
