"""Job: one job on a server: creating or joining it, and running its scripts."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Any

import msgspec

from skitter.errors import FrontierError
from skitter.frontier.base import JobInfo
from skitter.frontier.redis.batches import SLOTS_AT_ONCE
from skitter.frontier.redis.config import JobConfig
from skitter.frontier.redis.keys import FORMAT_VERSION, SLOTS, keys_of
from skitter.frontier.redis.records import encode, text, to_words
from skitter.frontier.redis.server import Argument, Server
from skitter.request import FINGERPRINT_VERSION

_VISITS = {"exact": "an exact seen_filter", "compact": "a compact seen_filter", "timed": "a visited_ttl"}


class Place(msgspec.Struct, frozen=True):
    """What one partition of a job is told of the others when it is opened."""

    shape: str
    """Fixed when the job is begun: which of how many partitions it is, and what the slots are."""
    generation: bytes = b""
    """That of the first partition; empty for the first itself."""
    must_exist: bool = False


WHOLE = Place("")
"""The job is not divided."""


class Job:
    """A job's keys on a server. ``clock`` replaces that of the server, for tests."""

    def __init__(
        self, server: Server, name: str, config: JobConfig, clock: Callable[[], float] | None = None
    ) -> None:
        self._server = server
        self.name = name
        self._config = config
        self._clock = clock
        self.keys = keys_of(name)
        self.generation: bytes = b""
        """Tells this job from one of the same name that was begun later."""
        self.is_complete = False
        """Whether all its partitions were there before."""
        self.recrawls = 0
        """How often it was begun again."""
        self._client_name = secrets.token_bytes(8)
        self._calling = asyncio.Lock()
        """One call at a time of those whose answer the server keeps."""

    # --- opening -----------------------------------------------------------------------------------------

    async def join(self, lease_seconds: float, place: Place, *, patient: bool) -> JobInfo:
        """Create the job, or find it as it is. Raises :class:`~skitter.errors.FrontierError`."""
        config = self._config
        generation = place.generation or secrets.token_hex(8).encode()
        answer = await self._server.run(
            "open", self.keys,
            (FORMAT_VERSION, generation, secrets.randbits(64), FINGERPRINT_VERSION, config.packed(),
             config.rules, config.visits, place.shape, int(place.must_exist), int(place.generation != b"")),
            patient=patient,
        )  # fmt: skip
        if answer[0] != b"ok":
            raise self._refusal(*(word.decode() for word in answer))
        _, self.generation, seed, version, has_other_rules, is_complete, recrawls = answer
        if place.generation and self.generation != place.generation:
            raise self._refusal("headless")
        self.is_complete, self.recrawls = is_complete == b"1", int(recrawls)
        if has_other_rules == b"1":
            await self._assign_policies()
        return JobInfo(int(seed), int(version), lease_seconds)

    def _refusal(self, kind: str, detail: str = "") -> FrontierError:
        place = f"job {self.name!r} on {self._server.where}"
        if kind == "format":
            return FrontierError(
                f"{place} has frontier format {detail}, this skitter reads {FORMAT_VERSION}",
                remedy="use the skitter that wrote it, or start anew with --fresh",
            )
        if kind == "visits":
            return FrontierError(
                f"{place} was begun with {_VISITS[detail]} and cannot go on with {_VISITS[self._config.visits]}",
                remedy="set visited_ttl and seen_filter as before, or start anew with --fresh",
            )
        if kind == "shape":
            return other_shape(self.name, self._server.where, detail)
        if kind == "headless":
            return FrontierError(
                f"{place} has lost its head: something removed a part of its keys",
                remedy="set maxmemory-policy noeviction on the server, and start anew with --fresh",
            )
        return FrontierError(
            f"{self.keys[0]} on {self._server.where} is no frontier of skitter",
            remedy="choose another database or another --job",
        )

    async def _assign_policies(self) -> None:
        """Tell the slots that are there which policy the new rules give them."""
        cursor = 0
        while True:
            cursor, slots = await self._server.command(
                "HSCAN", self.keys[SLOTS], cursor, "COUNT", SLOTS_AT_ONCE
            )
            names = [(text(name), self._config.policy_of(to_words(name))) for name in slots]
            for start in range(0, len(names), SLOTS_AT_ONCE):
                await self.run("assign", encode(names[start : start + SLOTS_AT_ONCE]))
            if not cursor:
                return

    async def erase(self) -> None:
        """Remove it from the server."""
        await self._server.command("UNLINK", *self.keys)

    # --- calling -----------------------------------------------------------------------------------------

    async def run(self, script: str, *arguments: Argument, repeated: int | None = None) -> Any:
        """Run a script that may be repeated blindly; ``repeated`` as in :meth:`Server.run`."""
        return await self._server.run(script, self.keys, self._given(b"", arguments), repeated=repeated)

    async def run_once(self, script: str, *arguments: Argument) -> bytes:
        """Run a script whose answer the server keeps, so that a lost one is answered again."""
        async with self._calling:
            given = self._given(secrets.token_bytes(8), arguments)
            answer: bytes = await self._server.run(script, self.keys, given)
            return answer

    def _given(self, call: bytes, arguments: tuple[Argument, ...]) -> list[Argument]:
        now = "" if self._clock is None else repr(self._clock())
        return [self.generation, now, self._client_name, call, *arguments]


def other_shape(name: str, where: str, shape: str) -> FrontierError:
    """Return why a job that is divided otherwise cannot be opened; ``shape`` is its own."""
    job = name.rpartition("/")[0]
    partitions = shape.partition(" ")[0].partition("/")[2]
    return FrontierError(
        f"job {job!r} on {where} was begun with {partitions} partitions and its own unit of politeness",
        remedy=f"write ?partitions={partitions} and the rules' units as before, or start anew with --fresh",
    )
