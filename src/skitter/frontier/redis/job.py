"""Job: one job on a server: creating or joining it, and running its scripts."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from skitter.errors import FrontierError
from skitter.frontier.base import FrontierOptions, JobInfo, NoSuchJob
from skitter.frontier.changes import Changes
from skitter.frontier.redis.batches import SLOTS_AT_ONCE
from skitter.frontier.redis.config import BegunWith, JobConfig
from skitter.frontier.redis.keys import FORMAT_VERSION, SLOTS, keys_of
from skitter.frontier.redis.records import encode, text, to_words
from skitter.frontier.redis.server import Argument, Server
from skitter.request import FINGERPRINT_VERSION

_VISITS = {"exact": "an exact seen_filter", "compact": "a compact seen_filter", "timed": "a visited_ttl"}
_read_changes = msgspec.msgpack.Decoder(Changes).decode
_read_begun_with = msgspec.msgpack.Decoder(BegunWith).decode


class Job:
    """A job's keys on a server. ``clock`` replaces that of the server, for tests."""

    def __init__(
        self, server: Server, name: str, config: JobConfig, clock: Callable[[], float] | None = None
    ) -> None:
        self._server = server
        self.name = name
        self.config = config
        self._clock = clock
        self.keys = keys_of(name)
        self._generation: bytes = b""
        """Tells this job from one of the same name that was begun later."""
        self._client_name = secrets.token_bytes(8)
        self._calling = asyncio.Lock()
        """One call at a time of those whose answer the server keeps."""

    # --- opening -----------------------------------------------------------------------------------------

    async def join(self, lease_seconds: float, *, patient: bool) -> JobInfo:
        """Create the job, or find it as it is. Raises :class:`~skitter.errors.FrontierError`."""
        while True:
            config = self.config
            answer = await self._server.run(
                "open", self.keys,
                (FORMAT_VERSION, secrets.token_hex(8), secrets.randbits(64), FINGERPRINT_VERSION, config.packed(),
                 config.rules, config.visits, encode(config.changes), encode(config.begun_with)),
                patient=patient,
            )  # fmt: skip
            if answer[0] != b"changed":
                break
            self.config = config.changed(_read_changes(answer[1]))
        if answer[0] != b"ok":
            raise self._refusal(*(word.decode() for word in answer))
        _, self._generation, seed, version, has_other_rules = answer
        if has_other_rules == b"1":
            await self._assign_policies(config)
        return JobInfo(int(seed), int(version), lease_seconds)

    async def attach(self) -> tuple[JobInfo, FrontierOptions]:
        """Find the job as it is and learn its options. Raises :class:`~skitter.errors.FrontierError`."""
        answer = await self._server.run("attach", self.keys, (FORMAT_VERSION,), patient=False)
        if answer[0] != b"ok":
            raise self._refusal(*(word.decode() for word in answer))
        _, self._generation, seed, version, begun_with, changes = answer
        begun = _read_begun_with(begun_with)
        self.config = JobConfig(begun.politeness(), begun.options, _read_changes(changes))
        return JobInfo(int(seed), int(version), begun.options.lease_seconds), begun.options

    async def changes(self) -> Changes:
        """Return the settings that were changed while it ran."""
        return _read_changes(await self.run("changes"))

    async def change(self, changes: Changes, *, reset: bool) -> Changes:
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
        place = f"job {self.name!r} on {self._server.where}"
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

    async def _assign_policies(self, before: JobConfig) -> None:
        """Tell the slots that are there which policy the new rules give them, and whether it is slower."""
        config = self.config
        cursor = 0
        while True:
            cursor, slots = await self._server.command(
                "HSCAN", self.keys[SLOTS], cursor, "COUNT", SLOTS_AT_ONCE
            )
            numbers = [(name, config.policy_of(to_words(name))) for name in slots]
            names = [(text(name), number, config.slows(before, number)) for name, number in numbers]
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
        """Run a script that may be repeated blindly; ``repeated`` as in :meth:`Server.run`."""
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
        return [self._generation, now, self._client_name, call, *arguments]


async def jobs_of(server: Server) -> list[str]:
    """List all jobs of a server, by name."""
    pattern, found, cursor = keys_of("*")[0], set[str](), 0
    head, tail = pattern.encode().split(b"*")
    while True:
        cursor, keys = await server.command("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
        found |= {to_words(key[len(head) : -len(tail)]) for key in keys}
        if not cursor:
            return sorted(found)
