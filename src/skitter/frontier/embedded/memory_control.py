"""Memory control: what people do to a job from outside: pause it, hold, ban and drop hosts, change its settings."""

from __future__ import annotations

from heapq import heapify

from skitter.frontier.embedded.memory_rows import MemoryRows
from skitter.frontier.group_filter import GroupFilter
from skitter.frontier.options import SettingsChanges
from skitter.frontier.records import JobState
from skitter.queues import without_queue


class MemoryControl(MemoryRows):
    """Steers the job."""

    async def set_state(self, state: JobState) -> JobState:
        """Set what the fleet is to do."""
        self._state = state
        return self._current_state()

    async def hold(self, slot: str, seconds: float) -> None:
        """Give out nothing of a slot for so long."""
        self._slots.hold(self._slots.get(slot), self._clock() + seconds)

    async def set_delay(self, slot: str, seconds: float) -> None:
        """Set the smallest delay of one slot."""
        self._slots.set_floor(self._slots.get(slot), seconds, self._clock())

    async def change(self, changes: SettingsChanges, reset: bool = False) -> SettingsChanges:
        """Change settings at once."""
        self._obey(changes if reset else changes.over(self._changes))
        return self._changes

    async def drop_slot(self, slot: str, ban: bool = False) -> int:
        """Remove what waits in a slot."""
        if ban:
            self._banned.add(slot)
        dropped = 0
        for entry in [one for one in self._slots if slot in {one.key, without_queue(one.key)}]:
            dropped += len(entry.waiting)
            entry.waiting.clear()
            self._slots.arm(entry)
        self._queued -= dropped
        kept = [
            one for one in self._delayed if slot not in {one[2].entry.slot, without_queue(one[2].entry.slot)}
        ]
        dropped += len(self._delayed) - len(kept)
        self._delayed = kept
        heapify(self._delayed)
        return self._note_dropped(dropped)

    async def drop_task(self, task: str) -> int:
        """Remove what waits of a task."""
        mark = GroupFilter(task)
        before = self._queued + len(self._delayed)
        for slot in self._slots:
            kept = [place for place in slot.waiting if not mark.is_on(place[2].entry.record)]
            if len(kept) < len(slot.waiting):
                self._queued -= len(slot.waiting) - len(kept)
                slot.waiting[:] = kept
                heapify(slot.waiting)
                self._slots.arm(slot)
        self._delayed = [one for one in self._delayed if not mark.is_on(one[2].entry.record)]
        heapify(self._delayed)
        return self._note_dropped(before - self._queued - len(self._delayed))

    def _note_dropped(self, dropped: int) -> int:
        if dropped:
            self._added -= dropped
            self._counters["refused/dropped"] += dropped
        return dropped

    async def unban(self, slot: str) -> bool:
        """Take requests for a slot again."""
        was_banned = slot in self._banned
        self._banned.discard(slot)
        return was_banned
