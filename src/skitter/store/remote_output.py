"""RemoteOutput: a file on S3, or on another file system of fsspec, that holds exactly the committed items."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
import xxhash

from skitter._utils.backoff import Backoff, Unavailable
from skitter.errors import StoreError
from skitter.store.contract import OutputContext, type_of_ranges
from skitter.store.database import BufferTerms
from skitter.store.merge import fill
from skitter.store.remote import RemoteCommitted, RemotePartStore, make_folder
from skitter.store.remote_place import RemotePlace, failed

_T = TypeVar("_T")
_BEING_MERGED = "being merged"
_BLOCK = 16 << 20
"""Bytes of an upload that are held in memory. S3 takes 10,000 of them, 160 GB."""


class RemoteOutput:
    """Written anew at every stop of the job from the parts beside it, in one step: an upload is seen when it is whole.

    How the job knows its own file again stands beside the parts, so that all machines of a fleet know it.
    """

    def __init__(self, place: RemotePlace, terms: BufferTerms) -> None:
        self.target = place.name
        self.stream = f"remote-{xxhash.xxh3_64_hexdigest(place.name.encode())}"
        self._place = place
        self._terms = terms

    async def check(self, context: OutputContext) -> None:
        """Write a small object among the parts, and remove it."""
        await self._run(self._check, context)

    async def occupied(self, context: OutputContext) -> bool:
        """Whether there is a file that is not empty and not as the last merge of this job left it."""
        return await self._run(self._is_occupied, context)

    async def clear(self, context: OutputContext) -> None:
        """Remove the parts; the file itself is replaced by the next merge."""
        await self._run(self._clear, context)

    def store(self) -> RemotePartStore:
        """Return a new part."""
        return RemotePartStore(self._place, self.stream, self._terms)

    async def emit(self, context: OutputContext, ranges: type_of_ranges) -> bool:  # noqa: ARG002 - see merge
        """Nothing: the file is made by ``merge``."""
        return True

    async def merge(self, context: OutputContext, ranges: type_of_ranges) -> None:
        """Replace the file by one that holds the committed ranges; waits for a service that is away."""

        async def attempt() -> None:
            await asyncio.to_thread(
                self._call, lambda files, context: self._merge(files, context, ranges), context
            )

        await Backoff(self._place.name, self._terms.patience).call(attempt)

    async def _run(self, call: Callable[[Any, OutputContext], _T], context: OutputContext) -> _T:
        try:
            return await asyncio.to_thread(self._call, call, context)
        except Unavailable as error:
            raise failed(self._place, error) from error

    def _call(self, call: Callable[[Any, OutputContext], _T], context: OutputContext) -> _T:
        files = self._place.connect()
        with self._place.explained():
            return call(files, context)

    def _check(self, files: Any, context: OutputContext) -> None:
        root = self._place.root
        if root and not files.exists(root):
            what = "bucket" if self._place.is_bucket else "folder"
            raise StoreError(
                f"{self._place.name}: there is no {what} {root}",
                remedy=f"create the {what} first, or name another one",
            )
        folder = self._place.parts_of(context.job)
        make_folder(self._place, files, folder)
        files.pipe_file(f"{folder}/check", b"\n")
        files.rm_file(f"{folder}/check")

    def _is_occupied(self, files: Any, context: OutputContext) -> bool:
        path = self._place.path
        if not files.exists(path) or not files.size(path):
            return False
        return self._known(files, context) not in (_BEING_MERGED, files.ukey(path))

    def _clear(self, files: Any, context: OutputContext) -> None:
        with suppress(FileNotFoundError):
            files.rm(self._place.parts_of(context.job), recursive=True)

    def _merge(self, files: Any, context: OutputContext, ranges: type_of_ranges) -> None:
        committed = RemoteCommitted(self._place, files, context.job, self.stream, ranges)
        make_folder(self._place, files, self._place.parts_of(context.job))
        self._remember(files, context, _BEING_MERGED)  # a kill may come before the next note
        file = files.open(self._place.path, "wb", block_size=_BLOCK, autocommit=False)
        try:
            fill(file, committed, self._place.form, lambda _: None)
            file.close()
        except BaseException:
            file.discard()
            raise
        file.commit()
        self._remember(files, context, files.ukey(self._place.path))

    def _note(self, context: OutputContext) -> str:
        return f"{self._place.parts_of(context.job)}/merged.json"

    def _remember(self, files: Any, context: OutputContext, key: str) -> None:
        files.pipe_file(self._note(context), msgspec.json.encode({"file": key}))

    def _known(self, files: Any, context: OutputContext) -> str | None:
        try:
            return msgspec.json.decode(files.cat_file(self._note(context)), type=dict[str, str]).get("file")
        except (FileNotFoundError, msgspec.DecodeError):
            return None
