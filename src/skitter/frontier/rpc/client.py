"""Client: the frontier contract for a worker process that is not the owner."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import msgspec

from skitter.errors import FrontierError
from skitter.frontier.flat import Flat
from skitter.frontier.options import SettingsChanges
from skitter.frontier.records import (
    AddResult,
    DeadLetter,
    Entry,
    FetchReport,
    FrontierStatus,
    JobInfo,
    JobState,
    LeaseResult,
    Outcome,
    SeedClaim,
    SeedProgress,
)
from skitter.frontier.rpc.protocol import METHODS, Answer, Call, Unframer, encode, error_from, frame
from skitter.frontier.stats import StatsGroup, StatsRow
from skitter.frontier.workers import WorkerReport, WorkerStatus
from skitter.queues import QueueQuotas

_read_answer = msgspec.msgpack.Decoder(Answer).decode
_read_result = {name: msgspec.msgpack.Decoder(types[1]).decode for name, types in METHODS.items()}
_read_error = msgspec.msgpack.Decoder(tuple[str, str]).decode


class OwnerGone(FrontierError):
    """The process that owns the frontier has ended: the worker has to end too."""


class RemoteFrontier(Flat):
    """A frontier reached over the owner's socket."""

    shared: ClassVar[bool] = False

    def __init__(self, path: Path, worker: str | None = None) -> None:
        self._path = path
        self._worker = worker
        self._link: _Link | None = None

    async def open(self) -> JobInfo:
        """Connect. Raises :class:`OwnerGone` if nobody listens."""
        loop = asyncio.get_running_loop()
        try:
            _, self._link = await loop.create_unix_connection(_Link, str(self._path))
        except OSError as error:
            raise OwnerGone(f"no frontier listens on {self._path}: {error.strerror}") from error
        if self._worker is not None:
            await self._link.call("introduce", self._worker)
        info: JobInfo = await self._link.call("open")
        return info

    async def _call(self, method: str, *arguments: Any) -> Any:
        if self._link is None:
            raise FrontierError("the frontier is not open")
        return await self._link.call(method, *arguments)

    async def close(self) -> None:
        """Disconnect."""
        if self._link is not None:
            self._link.close()
            self._link = None

    async def erase(self) -> None:
        """Refuse: only the owner of a frontier can erase it."""
        raise FrontierError("a worker cannot erase the frontier of its owner")

    async def wait_closed(self) -> None:
        """Return when the owner has gone."""
        if self._link is not None:
            await self._link.ended.wait()

    async def unknown(self, fingerprints: Sequence[bytes]) -> list[bool]:
        """See :class:`~skitter.frontier.contract.Frontier`, as for all methods here."""
        mask: list[bool] = await self._call("unknown", fingerprints)
        return mask

    async def add(self, entries: Sequence[Entry], seeds: SeedProgress | None = None) -> AddResult:
        """Add requests."""
        result: AddResult = await self._call("add", entries, seeds)
        return result

    async def claim_seeds(self, worker: str) -> SeedClaim | None:
        """Take the duty of loading the seeds."""
        claim: SeedClaim | None = await self._call("claim_seeds", worker)
        return claim

    async def lease(
        self, worker: str, limit: int, landed: Sequence[FetchReport] = (), shares: QueueQuotas | None = None
    ) -> LeaseResult:
        """Hand out requests."""
        result: LeaseResult = await self._call("lease", worker, limit, landed, shares)
        return result

    async def renew(self, worker: str, lease_ids: Sequence[int]) -> list[int]:
        """Extend leases."""
        gone: list[int] = await self._call("renew", worker, lease_ids)
        return gone

    async def commit(self, outcomes: Sequence[Outcome]) -> list[bool]:
        """Close leases."""
        accepted: list[bool] = await self._call("commit", outcomes)
        return accepted

    async def release(self, lease_ids: Sequence[int]) -> None:
        """Hand leases back."""
        await self._call("release", lease_ids)

    async def abandon(self, worker: str) -> int:
        """Take back what a dead worker held."""
        count: int = await self._call("abandon", worker)
        return count

    async def status(self) -> FrontierStatus:
        """Read all counts."""
        status: FrontierStatus = await self._call("status")
        return status

    async def set_state(self, state: JobState) -> JobState:
        """Set what the fleet is to do."""
        now: JobState = await self._call("set_state", state)
        return now

    async def hold(self, slot: str, seconds: float) -> None:
        """Give out nothing of a slot for so long."""
        await self._call("hold", slot, seconds)

    async def set_delay(self, slot: str, seconds: float) -> None:
        """Set the smallest delay of a slot."""
        await self._call("set_delay", slot, seconds)

    async def recall(self, key: str) -> bytes | None:
        """Read a shared note."""
        value: bytes | None = await self._call("recall", key)
        return value

    async def remember(self, key: str, value: bytes, ttl: float) -> None:
        """Keep a shared note."""
        await self._call("remember", key, value, ttl)

    async def swap(self, key: str, old: bytes | None, new: bytes, ttl: float) -> bool:
        """Keep a shared note if it is as it was read."""
        swapped: bool = await self._call("swap", key, old, new, ttl)
        return swapped

    async def list_dead_letters(self, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        """List requests given up."""
        letters: list[DeadLetter] = await self._call("list_dead_letters", after, limit)
        return letters

    async def replay(self, ids: Sequence[int] | None = None) -> int:
        """Put dead letters back in the queue."""
        count: int = await self._call("replay", ids)
        return count

    async def drop(self, ids: Sequence[int] | None = None) -> int:
        """Forget dead letters."""
        count: int = await self._call("drop", ids)
        return count

    async def recrawl(self) -> bool:
        """Begin a finished job again."""
        begun: bool = await self._call("recrawl")
        return begun

    async def tallies(self, group: StatsGroup, limit: int = 100) -> list[StatsRow]:
        """Read what was counted per worker, host or task."""
        found: list[StatsRow] = await self._call("tallies", group, limit)
        return found

    async def announce(self, report: WorkerReport, ttl: float) -> None:
        """Tell that a worker is there."""
        await self._call("announce", report, ttl)

    async def workers(self) -> list[WorkerStatus]:
        """List the workers alive."""
        alive: list[WorkerStatus] = await self._call("workers")
        return alive

    async def changes(self) -> SettingsChanges:
        """Return the settings that were changed while the job ran."""
        changed: SettingsChanges = await self._call("changes")
        return changed

    async def change(self, changes: SettingsChanges, reset: bool = False) -> SettingsChanges:
        """Change settings at once."""
        changed: SettingsChanges = await self._call("change", changes, reset)
        return changed

    async def drop_slot(self, slot: str, ban: bool = False) -> int:
        """Remove what waits in a slot."""
        count: int = await self._call("drop_slot", slot, ban)
        return count

    async def drop_task(self, task: str) -> int:
        """Remove what waits of a task."""
        count: int = await self._call("drop_task", task)
        return count

    async def unban(self, slot: str) -> bool:
        """Take requests for a slot again."""
        was_banned: bool = await self._call("unban", slot)
        return was_banned

    async def banned(self) -> list[str]:
        """List the banned slots."""
        slots: list[str] = await self._call("banned")
        return slots

    async def outputs(self) -> dict[str, list[tuple[int, int]]]:
        """Return committed byte ranges."""
        ranges: dict[str, list[tuple[int, int]]] = await self._call("outputs")
        return ranges


class _Link(asyncio.Protocol):
    """The connection to the owner: calls out, answers in."""

    def __init__(self) -> None:
        self._unframer = Unframer()
        self._transport: asyncio.Transport | None = None
        self._numbers = itertools.count()
        self._waiting: dict[int, tuple[str, asyncio.Future[Any]]] = {}
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.ended.set()
        for _, answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(OwnerGone(f"the owner of the frontier has ended: {error or 'closed'}"))
        self._waiting.clear()

    async def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the owner's frontier and return its result.

        Raises what the owner raised, and :class:`OwnerGone` if it has ended.
        """
        if self._transport is None:
            raise OwnerGone("the owner of the frontier has ended")
        number = next(self._numbers)
        answer = asyncio.get_running_loop().create_future()
        self._waiting[number] = (method, answer)
        self._transport.write(frame(Call(number, method, msgspec.Raw(encode(arguments)))))
        try:
            return await answer
        finally:
            self._waiting.pop(number, None)

    def data_received(self, data: bytes) -> None:
        for message in self._unframer.feed(data):
            self._take(_read_answer(message))

    def _take(self, answer: Answer) -> None:
        method, waiting = self._waiting.pop(answer.number, ("", None))
        if waiting is None or waiting.done():
            return
        if answer.error:
            waiting.set_exception(error_from(answer.error, *_read_error(answer.result)))
        else:
            waiting.set_result(_read_result[method](answer.result))

    def close(self) -> None:
        """Disconnect."""
        if self._transport is not None:
            self._transport.close()
