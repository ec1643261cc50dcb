"""Redis as the state behind a broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from skitter.brokers.state import Telling, Turns, current_told, current_turns
from skitter.frontier.records import FetchReport, SlotDecision, SlotLeases
from skitter.frontier.redis.frontier import RedisFrontier
from skitter.frontier.redis.records import encode, text, to_bytes
from skitter.frontier.redis.server import Argument
from skitter.queues import QueueQuotas

_SLOTS_AT_ONCE = 1_000
_TELLS = {"add", "commit"}
_FATES = {b"g": SlotDecision.LEASED, b"l": SlotDecision.LATER, b"x": SlotDecision.EMPTY}


class RedisState(RedisFrontier, Telling):
    """A Redis frontier that leases by turns; ``scripts/redis/lease.lua`` decides."""

    shared: ClassVar[bool] = True

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._run, self._run_once = self._run_turns, self._run_told

    async def lease_slots(
        self,
        worker: str,
        slots: Sequence[str],
        limit: int,
        landed: Sequence[FetchReport],
        shares: QueueQuotas | None = None,
    ) -> SlotLeases:
        """Lease, for each turn, the first request that waits in its slot, if the slot is ready."""
        turns = Turns(slots)
        token = current_turns.set(turns)
        try:
            result = await self.lease(worker, limit, landed, shares)
        finally:
            current_turns.reset(token)
        return SlotLeases(result, turns.fates, turns.starving)

    async def overdue_slots(self, seconds: float) -> list[tuple[str, int]]:
        """List slots that have been ready for so long, and how many requests wait in each."""
        found = await self._run("stranded", seconds, _SLOTS_AT_ONCE)
        return [(name.decode("utf-8", "surrogatepass"), int(count)) for name, count in found]

    async def _run_turns(
        self, script: str, *arguments: Argument, repeated: int | None = None, more_keys: Sequence[str] = ()
    ) -> Any:
        turns = current_turns.get()
        if turns is None or script != "lease":
            return await self._job.run(script, *arguments, repeated=repeated, more_keys=more_keys)
        places = turns.open_places()
        slots = encode([text(to_bytes(turns.slots[place])) for place in places])
        answer = await self._job.run(script, *arguments, slots, repeated=repeated, more_keys=more_keys)
        is_starving, fates = answer.pop()
        turns.starving = bool(is_starving)
        for place, fate in zip(places, fates, strict=True):
            turns.fates[place] = _FATES[fate] if fate in _FATES else float(fate)
        return answer

    async def _run_told(self, script: str, *arguments: Argument) -> bytes:
        told = current_told.get()
        if told is None or script not in _TELLS:
            return await self._job.run_once(script, *arguments)
        answer, _, mask = (await self._job.run_once(script, *arguments, "1")).partition(b"|")
        told += [taken == ord("1") for taken in mask]
        return answer
