"""One job on a Redis server: its keys, how it is created or joined, and how its scripts are run."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from skitter.errors import FrontierError
from skitter.frontier.contract import NoSuchJob
from skitter.frontier.options import FrontierSettings, SettingsChanges, changed_mode
from skitter.frontier.records import JobInfo
from skitter.frontier.redis.config import JobConfig, StoredJobConfig
from skitter.frontier.redis.records import SLOTS_BATCH, EntryWriter, encode, text, to_words
from skitter.frontier.redis.server import Argument, RedisServer
from skitter.request import FINGERPRINT_VERSION

FORMAT_VERSION = "7"
_KEY_NAMES = (
    "job", "queue", "delayed", "ready", "slots", "busy", "grants", "leases", "deadlines", "granted", "seen",
    "dead", "counters", "outputs", "notes", "answers", "workers", "by_worker", "by_host", "by_group", "banned",
    "claimed", "outbox", "delivered", "ready_by_queue", "alive",
    "visits",
)  # fmt: skip
"""In the order that the scripts expect. ``docs/design/redis-frontier.md`` describes each key."""
_VISITS = {"exact": "an exact seen_filter", "compact": "a compact seen_filter", "timed": "a visited_ttl"}
_read_changes = msgspec.msgpack.Decoder(SettingsChanges).decode
_read_stored = msgspec.msgpack.Decoder(StoredJobConfig).decode


def keys_of(tag: str) -> list[str]:
    """Return all keys under a hash tag: those of a job, or of one partition of it."""
    return [f"skitter:{{{tag}}}:{name}" for name in _KEY_NAMES]


def is_job_key(key: str) -> bool:
    """Return whether a key is one of :func:`keys_of` any job."""
    head, _, name = key.rpartition("}:")
    return head.startswith("skitter:{") and name in _KEY_NAMES


class PartitionSpec(msgspec.Struct, frozen=True):
    """The partition of a job that is opened."""

    shape: str
    """Fixed when the job is created: number of the partition, number of partitions, and unit of politeness."""
    generation: bytes = b""
    """Generation of the first partition; empty for the first partition itself."""
    must_exist: bool = False


UNPARTITIONED = PartitionSpec("")
"""For a job that has all its keys on one server."""


class RedisJob:
    """The keys of a job on a server, and its configuration.

    ``clock``: replaces the clock of the server, for tests.
    ``fingerprint_seed``: the secret of the job, if it is created again.
    """

    def __init__(
        self,
        server: RedisServer,
        name: str,
        config: JobConfig,
        clock: Callable[[], float] | None = None,
        fingerprint_seed: int | None = None,
    ) -> None:
        self._server = server
        self.name = self.title = name
        """``title``: the name in messages, without the number of the partition."""
        self.config = config
        self._clock = clock
        self._new_seed = secrets.randbits(64) if fingerprint_seed is None else fingerprint_seed
        self.keys = keys_of(name)
        self._key_by_name = dict(zip(_KEY_NAMES, self.keys, strict=True))
        self.generation: bytes = b""
        """Distinguishes this job from a later one of the same name."""
        self.is_complete = False
        """Whether all its partitions existed before this call."""
        self.replaced: StoredJobConfig | None = None
        """The configuration whose other limits of hosts were replaced by :meth:`join`."""
        self.recrawls = 0
        """Number of recrawls of the job that this client knows of."""
        self.lease_id_heads = 128
        """Lease ids have 63 bits: their first byte is below this."""
        self._client_name = secrets.token_bytes(8)
        self._calling = asyncio.Lock()
        """The server keeps one reply per client: calls of :meth:`run_once` come one after the other."""
        self._calls = 0

    @property
    def options(self) -> FrontierSettings:
        """The options that the job was created with."""
        return self.config.stored.options

    def entry_writer(self) -> EntryWriter:
        """Return a writer for the entries of one call."""
        return EntryWriter(self.options.queue_order, self.config.policy_of)

    # --- opening -----------------------------------------------------------------------------------------

    async def join(self, partition: PartitionSpec, *, patient: bool) -> JobInfo:
        """Create the job, or join it. Raises :class:`~skitter.errors.FrontierError` if that fails."""
        generation = partition.generation or secrets.token_hex(8).encode()
        while True:
            config = self.config
            reply = await self._server.run(
                "open", self.keys,
                (FORMAT_VERSION, generation, self._new_seed, FINGERPRINT_VERSION, config.packed(),
                 config.rules, config.visits, encode(config.changes), encode(config.stored),
                 partition.shape, int(partition.must_exist), int(partition.generation != b""),
                 self.options.changes or ""),
                patient=patient,
            )  # fmt: skip
            if reply[0] != b"changed":
                break
            self.config = config.changed(_read_changes(reply[1]))
        if reply[0] == b"mode":
            job = f"job {self.title!r} on {self._server.where}"
            raise changed_mode(reply[1].decode(), self.options.changes or "", job)
        if reply[0] != b"ok":
            raise self._refusal(*(word.decode() for word in reply))
        _, self.generation, seed, version, has_other_rules, is_complete, recrawls, begun_with = reply
        if partition.generation and self.generation != partition.generation:
            raise self._refusal("headless")
        self.is_complete, self.recrawls = is_complete == b"1", int(recrawls)
        if has_other_rules == b"1":
            self.replaced = _read_stored(begun_with)
            await self._assign_policies(config)
        return JobInfo(int(seed), int(version), self.options.lease_seconds)

    async def attach(self, partition: PartitionSpec) -> JobInfo:
        """Join an existing job and take its options. Raises :class:`~skitter.errors.FrontierError` if that fails."""
        reply = await self._server.run("attach", self.keys, (FORMAT_VERSION,), patient=False)
        if reply[0] != b"ok":
            kind, *detail = (word.decode() for word in reply)
            raise self._refusal("headless" if kind == "none" and partition.must_exist else kind, *detail)
        _, self.generation, seed, version, stored_config, changes, is_complete, recrawls = reply
        self.is_complete, self.recrawls = is_complete == b"1", int(recrawls)
        stored = _read_stored(stored_config)
        self.config = JobConfig(stored.politeness(), stored.options, _read_changes(changes))
        return JobInfo(int(seed), int(version), self.options.lease_seconds)

    async def changes(self) -> SettingsChanges:
        """Return the settings that were changed while the job ran."""
        return _read_changes(await self.run("settings_changes"))

    async def change(self, changes: SettingsChanges, *, reset: bool) -> SettingsChanges:
        """Change settings; repeated until no other client changes them at the same time."""
        while True:
            before = await self.changes()
            config = self.config.changed(changes if reset else changes.over(before))
            values = encode(before), encode(config.changes), config.packed(), config.rules
            if await self.run_once("change_settings", *values) == b"1":
                break
        before_config, self.config = self.config.changed(before), config
        await self._assign_policies(before_config)
        return config.changes

    async def reload(self) -> None:
        """Take the options and rules with which another process has opened the job since.

        The numbers of the policies depend on the rules.
        """
        stored, changes = await self.command("HMGET", self.key("job"), "begun_with", "changes")
        if stored is not None and _read_stored(stored) != self.config.stored:
            found = _read_stored(stored)
            self.config = JobConfig(found.politeness(), found.options, _read_changes(changes))

    def _refusal(self, kind: str, detail: str = "") -> FrontierError:
        """Return the error for the server's reply to ``open`` or ``attach``."""
        job = f"job {self.title!r} on {self._server.where}"
        if kind == "format":
            return FrontierError(
                f"{job} has frontier format {detail}; this version of skitter reads format {FORMAT_VERSION}",
                remedy="use the version of skitter that created the job, or start over with --fresh",
                field="format",
            )
        if kind == "visits":
            return FrontierError(
                f"{job} was created with {_VISITS[detail]} and cannot continue with {_VISITS[self.config.visits]}",
                remedy="set visited_ttl and seen_filter as before, or start over with --fresh",
                field="seen_filter",
            )
        if kind == "shape":
            partitions = detail.partition(" ")[0].partition("/")[2]
            return FrontierError(
                f"{job} was created with {partitions} partitions and another unit of politeness or other units in rules",
                remedy=f"write ?partitions={partitions} and the rules' units as before, or start over with --fresh",
                field="partitions",
            )
        if kind == "none":
            return NoSuchJob(
                f"{job} does not exist", remedy="run `skitter top --frontier URL` to list the jobs"
            )
        if kind == "headless":
            return FrontierError(
                f"{job} is incomplete: some of its keys were removed",
                remedy="set maxmemory-policy noeviction on the server, and start over with --fresh",
                field="keys",
            )
        return FrontierError(
            f"key {self.keys[0]} on {self._server.where} does not hold a skitter frontier",
            remedy="choose another database, or another name with --job",
            field="job",
        )

    async def _assign_policies(self, before: JobConfig) -> None:
        """Set the policies of all slots after the rules were changed."""
        config = self.config
        cursor = 0
        while True:
            cursor, slots = await self._server.command(
                "HSCAN", self.key("slots"), cursor, "COUNT", SLOTS_BATCH
            )
            names = [
                (text(name), config.policy_of(to_words(name)), config.slows(before, to_words(name)))
                for name in slots
            ]
            for start in range(0, len(names), SLOTS_BATCH):
                await self.run(
                    "assign_policies", encode(names[start : start + SLOTS_BATCH]), config.rules, ""
                )
            if not cursor:
                break
        await self.run("assign_policies", encode([]), config.rules, "1")

    async def erase(self) -> None:
        """Delete the job from the server."""
        await self._server.command("UNLINK", *self.keys)

    async def recrawl(self, others: int = 0) -> bool:
        """Start a finished job again. ``others``: the number of recrawls of the other partitions of the job."""
        recrawls = int(await self.run_once("recrawl", others))
        self.record_recrawls(recrawls)
        return recrawls > 0

    def record_recrawls(self, recrawls: int | bytes) -> None:
        """Record the number of recrawls in a reply of the server."""
        self.recrawls = max(self.recrawls, int(recrawls))

    # --- calling -----------------------------------------------------------------------------------------

    def key(self, name: str) -> str:
        """Return the full name of one key."""
        return self._key_by_name[name]

    async def run(
        self, script: str, *arguments: Argument, repeated: int | None = None, more_keys: Sequence[str] = ()
    ) -> Any:
        """Run a script that may safely run twice. ``repeated``: as in :meth:`RedisServer.run`."""
        keys = [*self.keys, *more_keys] if more_keys else self.keys
        return await self._server.run(script, keys, self._given(b"", arguments), repeated=repeated)

    async def run_once(self, script: str, *arguments: Argument) -> bytes:
        """Run a script once: the server keeps the reply, and repeats it if it was lost on the way."""
        async with self._calling:
            self._calls += 1
            values = self._given(self._calls.to_bytes(8, "big"), arguments)
            reply: bytes = await self._server.run(script, self.keys, values)
            return reply

    async def command(self, *words: Argument) -> Any:
        """Run one command that only reads."""
        return await self._server.command(*words)

    def twin_server(self) -> RedisServer:
        """Return the server with a separate connection, not yet open."""
        return self._server.twin()

    @property
    def now(self) -> str:
        """The time for scripts; empty: that of the server."""
        return "" if self._clock is None else repr(self._clock())

    def _given(self, call: bytes, arguments: tuple[Argument, ...]) -> list[Argument]:
        return [self.generation, self.now, self._client_name, call, *arguments]


async def jobs_of(server: RedisServer) -> list[str]:
    """List all jobs of a server, by name."""
    found, cursor = set[str](), 0
    head, tail = keys_of("*")[0].encode().split(b"*")
    while True:
        # Kvrocks supports no patterns but prefixes.
        cursor, keys = await server.command("SCAN", cursor, "MATCH", head + b"*", "COUNT", 1000)
        found |= {to_words(key[len(head) : -len(tail)]) for key in keys if key.endswith(tail)}
        if not cursor:
            return sorted(found)
