"""SQLite control: what people do to a job from outside: pause it, hold, ban and drop hosts, change its settings."""

from __future__ import annotations

from functools import partial

import msgspec

from skitter.frontier.embedded import queries
from skitter.frontier.embedded.backlog import Dropping
from skitter.frontier.embedded.rows import SqliteRows
from skitter.frontier.embedded.scheduler import Slot
from skitter.frontier.group_filter import GroupFilter
from skitter.frontier.options import SettingsChanges
from skitter.frontier.records import JobState
from skitter.queues import without_queue

_REMOVED_AT_ONCE = 5_000
_LOOKED_AT_ONCE = 20_000
"""Requests among which those of a task are looked for in one step: other calls wait for no more."""


class SqliteControl(SqliteRows):
    """Steers the job."""

    async def set_state(self, state: JobState) -> JobState:
        """Set what the fleet is to do."""
        self._state = state
        self._note_job()
        await self._journal.flush()
        return self.current_state()

    async def hold(self, slot: str, seconds: float) -> None:
        """Give out nothing of a slot for so long."""
        entry = self._slots.get(slot)
        self._slots.hold(entry, self._clock() + seconds)
        await self._keep_limits(entry)

    async def set_delay(self, slot: str, seconds: float) -> None:
        """Set the smallest delay of one slot."""
        entry = self._slots.get(slot)
        self._slots.set_floor(entry, seconds, self._clock())
        await self._keep_limits(entry)

    async def _keep_limits(self, slot: Slot) -> None:
        self._note_limits(slot)
        await self._journal.flush()

    async def change(self, changes: SettingsChanges, reset: bool = False) -> SettingsChanges:
        """Change settings at once; they hold for later runs too."""
        self._obey(changes if reset else changes.over(self._changes))
        self._journal.put("change", 1, (1, msgspec.msgpack.encode(self._changes)))
        await self._journal.flush()
        return self._changes

    async def drop_slot(self, slot: str, ban: bool = False) -> int:
        """Remove what waits in a slot, here at once, then from the file."""
        if ban:
            await self._set_ban(slot, banned=True)
        found = [
            (key, number) for key, number in self._slot_numbers.items() if slot in {key, without_queue(key)}
        ]
        dropped = sum([await self._drop(key, number) for key, number in found])
        if dropped:
            self._count({"refused/dropped": dropped})
        self._note_job()
        await self._journal.flush()
        return dropped

    async def _drop(self, key: str, number: int) -> int:
        async with self._waking:
            dropped = self._backlog.drop(self._slots.get(key))
            self._queued -= dropped
            self._added -= dropped
            last, on_lease = self._sequence, [held.request.row.seq for held in self._leases]
            delayed, following = await self._journal.read(
                lambda file: queries.drop_slot(file, number, last, on_lease)
            )
            self._delayed -= delayed
            self._added -= delayed
            self._next_delayed = min(self._next_delayed, following)
        return dropped + delayed

    async def drop_task(self, task: str) -> int:
        """Remove what waits of a task: looked for in the file and then removed from it, some at a time."""
        mark = GroupFilter(task)
        async with self._waking, self._backlog.filling:
            gone = await self._forget(mark)
            for start in range(0, len(gone), _REMOVED_AT_ONCE):
                batch = gone[start : start + _REMOVED_AT_ONCE]
                for seq in batch:
                    self._dequeue(seq)
                self._queued -= len(batch)
                await self._note_dropped(len(batch))
            delayed, following = await self._journal.read(lambda file: queries.drop_delayed(file, mark))
            self._delayed -= delayed
            self._next_delayed = min(self._next_delayed, following)
            await self._note_dropped(delayed)
        return len(gone) + delayed

    async def _forget(self, mark: GroupFilter) -> list[int]:
        """Let nothing of a task wait any more; returns the numbers of the rows that are still to be removed."""
        dropping = Dropping(self._backlog, self._slots)
        after, last = 0, self._sequence
        while True:
            look = partial(
                queries.waiting_with, trace=mark.trace, after=after, last=last, limit=_LOOKED_AT_ONCE
            )
            rows, after = await self._journal.read(look)
            for seq, number, rank, record in rows:
                if mark.is_on(record):
                    dropping.take(self._slot_keys[number], rank, seq)
            if not after:
                return dropping.drop(lambda row: mark.is_on(row.record), self._slot_numbers)

    async def _note_dropped(self, count: int) -> None:
        if count:
            self._added -= count
            self._count({"refused/dropped": count})
        self._note_job()
        await self._journal.flush()

    async def unban(self, slot: str) -> bool:
        """Take requests for a slot again."""
        was_banned = slot in self._banned
        if was_banned:
            await self._set_ban(slot, banned=False)
        return was_banned

    async def _set_ban(self, slot: str, *, banned: bool) -> None:
        if banned:
            self._banned.add(slot)
        else:
            self._banned.discard(slot)
        self._journal.put("ban", slot, (slot, int(banned)))
        await self._journal.flush()
