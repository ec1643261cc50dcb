"""Redis frontier: one job on a Valkey or Redis server, for workers on any number of machines.

All decisions are made on the server, by the scripts in ``scripts/redis``, under its clock.
``docs/redis-frontier.md`` explains the protocol.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from skitter.errors import FrontierError
from skitter.frontier.flat import Flat, optional
from skitter.frontier.options import FrontierOptions
from skitter.frontier.records import (
    AddResult,
    Entry,
    FetchReport,
    FrontierStatus,
    JobInfo,
    JobState,
    Lease,
    LeaseResult,
    Outcome,
    SeedClaim,
    SeedProgress,
)
from skitter.frontier.redis.address import parse_address
from skitter.frontier.redis.batches import (
    ENTRIES_AT_ONCE,
    FINGERPRINTS_AT_ONCE,
    LEASES_AT_ONCE,
    TIDIED_AT_ONCE,
    batches,
    packed_ids,
)
from skitter.frontier.redis.by_url import ByUrl
from skitter.frontier.redis.config import JobConfig
from skitter.frontier.redis.control import Steering
from skitter.frontier.redis.dead_letters import LettersOnRedis
from skitter.frontier.redis.job import WHOLE, Place, RedisJob, jobs_of
from skitter.frontier.redis.keys import is_of_a_job
from skitter.frontier.redis.records import (
    EntryWriter,
    encode,
    read_lease,
    read_ranges,
    read_status,
    write_landing,
    write_outcome,
)
from skitter.frontier.redis.seed_keys import SeedKeysOnRedis
from skitter.frontier.redis.server import RedisServer
from skitter.frontier.scheduling import wait_for
from skitter.politeness import Politeness
from skitter.queues import QueueQuotas, queue_of, share_of


class RedisFrontier(ByUrl, Steering, LettersOnRedis, SeedKeysOnRedis, Flat):
    """A frontier on a Valkey or Redis server, which ``place`` names or is.

    ``patient``: also :meth:`open` waits for a server that is away, as every other call does. ``attach``: take
    the job as it is, its options included, and refuse to begin one.
    """

    seed_keys = optional("seed_keys")
    catalog = optional("catalog")

    shared: ClassVar[bool] = True
    """Every worker process reaches it by itself; there is no owner."""

    def __init__(
        self,
        place: str | RedisServer,
        job: str,
        politeness: Politeness | None = None,
        options: FrontierOptions | None = None,
        *,
        clock: Callable[[], float] | None = None,
        patient: bool = False,
        attach: bool = False,
    ) -> None:
        self._options = options if options is not None else FrontierOptions()
        config = JobConfig(politeness if politeness is not None else Politeness(), self._options)
        self._server = place if isinstance(place, RedisServer) else RedisServer(parse_address(place))
        self._job = RedisJob(self._server, job, config, clock)
        self._run, self._run_once = self._job.run, self._job.run_once
        self._patient = patient
        self._attach = attach
        self._seed_positions: dict[int, int] = {}
        self._id_heads = 128
        """First bytes that a lease's id may have: 63 bits in all."""
        self._restarts = 0

    # --- opening and closing ---------------------------------------------------------------------------

    async def open(self) -> JobInfo:
        """Create the job on the server, or join it.

        Raises :class:`~skitter.errors.FrontierError` if the server cannot be reached or used, or if what is
        there under the job's name is no frontier of this format.
        """
        return await self._join(WHOLE)

    async def _join(self, place: Place) -> JobInfo:
        for key in filter(is_of_a_job, self._options.seed_keys):
            raise FrontierError(
                f"{key!r} is a key of the frontier itself",
                remedy="name a seed key that holds nothing but seeds",
            )
        await self._server.connect(patient=self._patient)
        try:
            if self._attach:
                info, self._options = await self._job.attach(place)
            else:
                info = await self._job.join(self._options.lease_seconds, place, patient=self._patient)
        except BaseException:
            await self._server.close()
            raise
        self._restarts = self._server.restarts
        return info

    async def close(self) -> None:
        """Disconnect. Leases stay what they are."""
        await self._server.close()

    async def erase(self) -> None:
        """Remove the job from the server, before it is opened. Workers that are at work on it end."""
        await self._server.connect(patient=False)
        try:
            await self._job.erase()
        finally:
            await self._server.close()

    @property
    def politeness(self) -> Politeness:
        """Which slot a host is in."""
        return self._job.config.begun_with.politeness()

    async def jobs(self) -> list[str]:
        """List all jobs of the server, by name; the frontier need not be open."""
        await self._server.connect(patient=False)
        try:
            return await jobs_of(self._server)
        finally:
            await self._server.close()

    # --- adding ------------------------------------------------------------------------------------------

    async def unknown(self, fingerprints: Sequence[bytes]) -> list[bool]:
        """Tell which fingerprints are new."""
        mask: list[bool] = []
        for start in range(0, len(fingerprints), FINGERPRINTS_AT_ONCE):
            asked = fingerprints[start : start + FINGERPRINTS_AT_ONCE]
            answer = await self._run("unknown", b"".join(asked))
            mask += [is_new == ord("1") for is_new in answer]
        return mask

    async def add(self, entries: Sequence[Entry], seeds: SeedProgress | None = None) -> AddResult:
        """Add requests with atomic de-duplication."""
        size = ENTRIES_AT_ONCE if seeds is None else max(1, len(entries))
        added = known = banned = 0
        for start in range(0, max(1, len(entries)), size):
            result, _ = await self._add(entries[start : start + size], seeds)
            added, known, banned = added + result.added, known + result.known, banned + result.banned
        return AddResult(added, known, banned)

    async def _add(
        self, entries: Sequence[Entry], seeds: SeedProgress | None, parcels: Sequence[msgspec.Raw] = ()
    ) -> tuple[AddResult, bool]:
        """Return also whether the seeds were taken."""
        if not entries and seeds is None:
            return AddResult(0, 0), True
        writer = EntryWriter(self._options.order, self._job.config.policy_of)
        written = [writer.write(entry) for entry in entries]
        progress = None
        if seeds is not None:
            before = self._seed_positions.get(seeds.token)
            progress = (str(seeds.token), before, seeds.position, seeds.done, parcels)
        answer = await self._run_once("add", encode((writer.names, written, progress)))
        if seeds is not None:
            self._seed_positions[seeds.token] = seeds.position
        added, known, banned, taken = answer.split()
        return AddResult(int(added), int(known), int(banned)), taken == b"1"

    async def claim_seeds(self, worker: str) -> SeedClaim | None:
        """Take the duty of loading the seeds, if nobody has it."""
        token = secrets.randbits(62)
        position = await self._run("claim_seeds", worker, token)
        if position is None:
            return None
        self._seed_positions = {token: int(position)}
        return SeedClaim(token, int(position))

    # --- leases ------------------------------------------------------------------------------------------

    async def lease(
        self, worker: str, limit: int, landed: Sequence[FetchReport] = (), shares: QueueQuotas | None = None
    ) -> LeaseResult:
        """Hand out what may be fetched now."""
        leases: list[Lease] = []
        left = None if shares is None else {queue: min(share, limit) for queue, share in shares.items()}
        while True:
            wanted = min(limit - len(leases), LEASES_AT_ONCE)
            answer = await self._lease(worker, wanted, landed, left)
            state, reason, now, ready, delayed, late, has_more, revision, found, capacity = answer
            given = [read_lease(data) for data in found]
            leases += given
            landed = ()
            if left is not None:
                for lease in given:
                    queue = queue_of(lease.slot)
                    left[queue] = share_of(left, queue, limit) - 1
            if len(leases) >= limit or not (has_more or len(found) == wanted):
                break
        ask_again = wait_for(
            float(ready) if ready else None,
            min((float(time) for time in (delayed, late) if time), default=float("inf")),
            float(now),
            leases,
        )
        return LeaseResult(
            leases, JobState(state.decode()), ask_again, reason.decode(), self._had_data_loss(),
            revision=int(revision), capacity=None if capacity < 0 else capacity,
        )  # fmt: skip

    async def _lease(
        self, worker: str, wanted: int, landed: Sequence[FetchReport], shares: QueueQuotas | None
    ) -> Any:
        # The ids are ours: a server that has lost its last second must not give one of them to anybody else.
        prefix = bytes((secrets.randbelow(self._id_heads), *secrets.token_bytes(5)))
        landings = encode([write_landing(landing) for landing in landed])
        served = b"" if shares is None else encode(shares)
        return await self._run("lease", worker, wanted, prefix, b"0", landings, served, repeated=7)

    def _had_data_loss(self) -> bool:
        had = self._restarts != self._server.restarts
        self._restarts = self._server.restarts
        return had

    async def renew(self, worker: str, lease_ids: Sequence[int]) -> list[int]:
        """Extend leases; return those that are gone."""
        gone: list[int] = []
        for ids in packed_ids(lease_ids):
            gone += [int.from_bytes(lost, "big") for lost in await self._run("renew", worker, ids)]
        await self._run("tidy", TIDIED_AT_ONCE)
        return gone

    async def release(self, lease_ids: Sequence[int]) -> None:
        """Hand leases back untouched."""
        if lease_ids:
            for ids in packed_ids(lease_ids):
                await self._run("release", ids)

    async def abandon(self, worker: str) -> int:
        """Take back what a dead worker held."""
        return int(await self._run("abandon", worker))

    # --- committing --------------------------------------------------------------------------------------

    async def commit(self, outcomes: Sequence[Outcome]) -> list[bool]:
        """Close leases, each as a whole or not at all."""
        return await self._commit(outcomes, {})

    async def _commit(
        self, outcomes: Sequence[Outcome], parcels: Mapping[int, Sequence[msgspec.Raw]]
    ) -> list[bool]:
        accepted: list[bool] = []
        for batch in batches(outcomes):
            writer = EntryWriter(self._options.order, self._job.config.policy_of)
            written = [write_outcome(outcome, writer, parcels.get(outcome.lease_id, ())) for outcome in batch]
            answer = await self._run_once("commit", encode((writer.names, written, bool(parcels))))
            accepted += [taken == ord("1") for taken in answer]
        return accepted

    # --- reading -----------------------------------------------------------------------------

    async def status(self) -> FrontierStatus:
        """Read all counts at one moment."""
        while True:
            answer = await self._run("status")
            if not answer[11]:
                break
        return read_status(answer)

    async def recrawl(self) -> bool:
        """Begin a finished job again."""
        return await self._run_once("recrawl") != b"0"

    async def outputs(self) -> dict[str, list[tuple[int, int]]]:
        """Return committed byte ranges of each part file."""
        return read_ranges(await self._run("outputs"))
