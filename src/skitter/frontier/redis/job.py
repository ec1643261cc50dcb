"""RedisJob: one job on a server: creating or joining it, and running its scripts."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from skitter.errors import FrontierError
from skitter.frontier.contract import NoSuchJob
from skitter.frontier.options import FrontierOptions, SettingsChanges
from skitter.frontier.records import JobInfo
from skitter.frontier.redis.batches import SLOTS_AT_ONCE
from skitter.frontier.redis.config import JobConfig, StoredJobConfig
from skitter.frontier.redis.keys import FORMAT_VERSION, SLOTS, keys_of
from skitter.frontier.redis.records import encode, text, to_words
from skitter.frontier.redis.server import Argument, RedisServer
from skitter.request import FINGERPRINT_VERSION

_VISITS = {"exact": "an exact seen_filter", "compact": "a compact seen_filter", "timed": "a visited_ttl"}
_read_changes = msgspec.msgpack.Decoder(SettingsChanges).decode
_read_begun_with = msgspec.msgpack.Decoder(StoredJobConfig).decode


class Place(msgspec.Struct, frozen=True):
    """What one partition of a job is told of the others when it is opened."""

    shape: str
    """Fixed when the job is begun: which of how many partitions it is, and what the slots are."""
    generation: bytes = b""
    """That of the first partition; empty for the first itself."""
    must_exist: bool = False


WHOLE = Place("")
"""The job is not divided."""


class RedisJob:
    """A job's keys on a server. ``clock`` replaces that of the server, for tests."""

    def __init__(
        self, server: RedisServer, name: str, config: JobConfig, clock: Callable[[], float] | None = None
    ) -> None:
        self._server = server
        self.name = self.title = name
        """The title is its name for people."""
        self.config = config
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
        generation = place.generation or secrets.token_hex(8).encode()
        while True:
            config = self.config
            answer = await self._server.run(
                "open", self.keys,
                (FORMAT_VERSION, generation, secrets.randbits(64), FINGERPRINT_VERSION, config.packed(),
                 config.rules, config.visits, encode(config.changes), encode(config.begun_with),
                 place.shape, int(place.must_exist), int(place.generation != b"")),
                patient=patient,
            )  # fmt: skip
            if answer[0] != b"changed":
                break
            self.config = config.changed(_read_changes(answer[1]))
        if answer[0] != b"ok":
            raise self._refusal(*(word.decode() for word in answer))
        _, self.generation, seed, version, has_other_rules, is_complete, recrawls = answer
        if place.generation and self.generation != place.generation:
            raise self._refusal("headless")
        self.is_complete, self.recrawls = is_complete == b"1", int(recrawls)
        if has_other_rules == b"1":
            await self._assign_policies(config)
        return JobInfo(int(seed), int(version), lease_seconds)

    async def attach(self, place: Place) -> tuple[JobInfo, FrontierOptions]:
        """Find the job as it is and learn its options. Raises :class:`~skitter.errors.FrontierError`."""
        answer = await self._server.run("attach", self.keys, (FORMAT_VERSION,), patient=False)
        if answer[0] != b"ok":
            kind, *detail = (word.decode() for word in answer)
            raise self._refusal("headless" if kind == "none" and place.must_exist else kind, *detail)
        _, self.generation, seed, version, begun_with, changes, is_complete, recrawls = answer
        self.is_complete, self.recrawls = is_complete == b"1", int(recrawls)
        begun = _read_begun_with(begun_with)
        self.config = JobConfig(begun.politeness(), begun.options, _read_changes(changes))
        return JobInfo(int(seed), int(version), begun.options.lease_seconds), begun.options

    async def changes(self) -> SettingsChanges:
        """Return the settings that were changed while it ran."""
        return _read_changes(await self.run("changes"))

    async def change(self, changes: SettingsChanges, *, reset: bool) -> SettingsChanges:
        """Let other settings hold."""
        while True:
            before = await self.changes()
            config = self.config.changed(changes if reset else changes.over(before))
            given = encode(before), encode(config.changes), config.packed(), config.rules
            if await self.run_once("change", *given) == b"1":
                break
        before_config, self.config = self.config.changed(before), config
        await self._assign_policies(before_config)
        return config.changes

    def _refusal(self, kind: str, detail: str = "") -> FrontierError:
        place = f"job {self.title!r} on {self._server.where}"
        if kind == "format":
            return FrontierError(
                f"{place} has frontier format {detail}, this skitter reads {FORMAT_VERSION}",
                remedy="use the skitter that wrote it, or start anew with --fresh",
            )
        if kind == "visits":
            return FrontierError(
                f"{place} was begun with {_VISITS[detail]} and cannot go on with {_VISITS[self.config.visits]}",
                remedy="set visited_ttl and seen_filter as before, or start anew with --fresh",
            )
        if kind == "shape":
            return self._other_shape(detail)
        if kind == "none":
            return NoSuchJob(
                f"there is no {place}", remedy="`skitter top --frontier URL` shows the jobs there"
            )
        if kind == "headless":
            return FrontierError(
                f"{place} has lost its head: something removed a part of its keys",
                remedy="set maxmemory-policy noeviction on the server, and start anew with --fresh",
            )
        return FrontierError(
            f"{self.keys[0]} on {self._server.where} is no frontier of skitter",
            remedy="choose another database or another --job",
        )

    def _other_shape(self, shape: str) -> FrontierError:
        """Say that the job is divided otherwise; ``shape`` is its own."""
        partitions = shape.partition(" ")[0].partition("/")[2]
        return FrontierError(
            f"job {self.title!r} on {self._server.where} was begun with {partitions} partitions and its own unit of"
            " politeness",
            remedy=f"write ?partitions={partitions} and the rules' units as before, or start anew with --fresh",
        )

    async def _assign_policies(self, before: JobConfig) -> None:
        """Tell the slots that are there which policy the new rules give them, and whether it is slower."""
        config = self.config
        cursor = 0
        while True:
            cursor, slots = await self._server.command(
                "HSCAN", self.keys[SLOTS], cursor, "COUNT", SLOTS_AT_ONCE
            )
            names = [
                (text(name), config.policy_of(to_words(name)), config.slows(before, to_words(name)))
                for name in slots
            ]
            for start in range(0, len(names), SLOTS_AT_ONCE):
                await self.run("assign", encode(names[start : start + SLOTS_AT_ONCE]))
            if not cursor:
                return

    async def erase(self) -> None:
        """Remove it from the server."""
        await self._server.command("UNLINK", *self.keys)

    # --- calling -----------------------------------------------------------------------------------------

    async def run(
        self, script: str, *arguments: Argument, repeated: int | None = None, more_keys: Sequence[str] = ()
    ) -> Any:
        """Run a script that may be repeated blindly; ``repeated`` as in :meth:`RedisServer.run`."""
        keys = [*self.keys, *more_keys] if more_keys else self.keys
        return await self._server.run(script, keys, self._given(b"", arguments), repeated=repeated)

    async def run_once(self, script: str, *arguments: Argument) -> bytes:
        """Run a script whose answer the server keeps, so that a lost one is answered again."""
        async with self._calling:
            given = self._given(secrets.token_bytes(8), arguments)
            answer: bytes = await self._server.run(script, self.keys, given)
            return answer

    def _given(self, call: bytes, arguments: tuple[Argument, ...]) -> list[Argument]:
        now = "" if self._clock is None else repr(self._clock())
        return [self.generation, now, self._client_name, call, *arguments]


async def jobs_of(server: RedisServer) -> list[str]:
    """List all jobs of a server, by name."""
    found, cursor = set[str](), 0
    head, tail = keys_of("*")[0].encode().split(b"*")
    while True:
        # Kvrocks knows no patterns but beginnings.
        cursor, keys = await server.command("SCAN", cursor, "MATCH", head + b"*", "COUNT", 1000)
        found |= {to_words(key[len(head) : -len(tail)]) for key in keys if key.endswith(tail)}
        if not cursor:
            return sorted(found)
