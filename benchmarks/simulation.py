"""A crawl of millions of hosts in virtual time: what slots, partitions and lease batches do. See docs/design/capacity.md.

Hosts have Zipf sizes: the one of rank r has ``largest / r ** skew`` pages, and at least one. Four tables:

* *bound*: how long a crawl takes at best, by arithmetic;
* *day*: a billion pages at 13,310 pages per second: how long that takes, and how evenly they fall on partitions;
* *partitions*: how evenly the slots of the hosts fall on partitions, hashed as a cluster frontier hashes them;
* *events*: workers, leases, fetches and servers, with the slot tables that the embedded frontiers use.
"""

import argparse
import math
import random
from heapq import heappop, heappush
from typing import NamedTuple

import xxhash

from skitter.frontier.embedded.scheduler import SlotScheduler
from skitter.frontier.records import FetchReport
from skitter.frontier.scheduling import MAX_WAIT
from skitter.politeness import HostLimits

BATCH_US, PAGE_US, EMPTY_US = 500.0, 95.0, 130.0
"""CPU of a server: for a batch of pages from its lease to its commit, for each page in it, and for a question for work
that is answered with none. From ``redis_load.py --batch N``; see docs/design/capacity.md."""
AGAIN, AGAIN_PARTS = MAX_WAIT, 0.5
"""Maximum time in seconds before a worker asks a server or partition without work again."""
SPACING = 1.1
"""Seconds between two fetches of a host with a delay of one second: the delay and its grace."""
LATENCY = 0.5
"""Mean seconds of a fetch; exponentially distributed."""


class Web(NamedTuple):
    """Hosts and their pages."""

    hosts: int
    largest: int
    skew: float = 1.0
    limit: float = math.inf
    """Pages of a host that are fetched."""

    def size(self, rank):
        """Pages of a host; ranks begin with 1."""
        return max(1, min(int(self.largest / rank**self.skew), self.limit))

    def larger(self, pages):
        """Return how many hosts have more than this number of pages."""
        if pages == 0:
            return self.hosts
        if pages >= self.limit:
            return 0
        return min(self.hosts, int((self.largest / (pages + 1)) ** (1 / self.skew)))

    @property
    def pages(self):
        return sum(self.larger(number) for number in range(min(self.largest, self.limit)))


class Bound(NamedTuple):
    """A crawl whose hosts are all known at its beginning."""

    pages: int
    seconds: float
    full_until: float
    """Until when the fleet is the limit; afterwards the delay of the hosts that are left is."""
    left: float
    """Share of the pages that are left then."""
    hosts_left: int


def bound(web, pages_per_second, delay):
    """Reckon a crawl that gives each host its turn, as slots do.

    In one round each host that is left gives one page. A round takes as long as the fleet needs for these pages, or as the
    delay, whichever is longer.
    """
    seconds = full_until = 0.0
    done = full_pages = 0
    hosts_left = web.hosts
    for number in range(min(web.largest, web.limit)):
        ready = web.larger(number)
        seconds += max(ready / pages_per_second, delay)
        done += ready
        if ready >= pages_per_second * delay:
            full_until, full_pages, hosts_left = seconds, done, web.larger(number + 1)
    return Bound(done, seconds, full_until, (done - full_pages) / done, hosts_left)


def partition_of(host, partitions):
    """Return the partition of a slot as a cluster frontier does."""
    return digest_of(host) % partitions


def digest_of(host):
    return xxhash.xxh3_64_intdigest(host.encode())


def name_of(rank):
    return f"www.site{rank}.example"


class Balance(NamedTuple):
    """The largest partition beside the mean one."""

    partitions: int
    hosts: float
    pages: float


def balance(web, counts):
    """Hash every host into partitions, for each number of partitions."""
    hosts = {count: [0] * count for count in counts}
    pages = {count: [0] * count for count in counts}
    for rank in range(1, web.hosts + 1):
        digest, size = digest_of(name_of(rank)), web.size(rank)
        for count in counts:
            hosts[count][digest % count] += 1
            pages[count][digest % count] += size
    return [
        Balance(count, *(max(loads[count]) * count / sum(loads[count]) for loads in (hosts, pages)))
        for count in counts
    ]


def day(pages, hosts, limit, hashed, counts):
    """Return a web with this number of pages to fetch, at most ``limit`` per host, and the largest partition over the mean.

    The largest hosts are hashed; the others, which are small, are taken for evenly spread.
    """
    low, high = 1, pages
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if Web(hosts, middle, 1.0, limit).pages < pages else (low, middle)
    web = Web(hosts, low, 1.0, limit)
    loads = {count: [0] * count for count in counts}
    for rank in range(1, hashed + 1):
        digest, size = digest_of(name_of(rank)), web.size(rank)
        for count in counts:
            loads[count][digest % count] += size
    rest = web.pages - sum(loads[counts[0]])
    return web, {count: (max(load) + rest / count) * count / web.pages for count, load in loads.items()}


class Fleet(NamedTuple):
    workers: int
    concurrency: int = 32
    gather: float = 0.002
    """Seconds for which landed fetches gather before a worker asks for leases, unless a quarter of ``concurrency`` has
    gathered before. The engine's are the default."""
    partitions: int = 1
    delay: float = 1.0
    known: float = 0.01
    """Share of the hosts that are known at the beginning; the first half of the pages leads to the others."""


class Result(NamedTuple):
    pages: int
    half: float
    most: float
    end: float
    """Seconds until half, 99 % and all of the pages were fetched."""
    leases_per_call: float
    empty_calls: float
    """Calls that gave nothing, for each page."""
    server_us: float
    """Servers' CPU for each page, by the two constants above."""
    busiest: float
    """Largest share of the time to 99 % in which one server works."""
    shortest: float
    """Shortest time between two fetches of one host, in seconds."""


class Partition:
    """A server's part of the frontier."""

    def __init__(self, policy):
        self.table = SlotScheduler(lambda _: policy)
        self.left = {}
        """Pages of each host that do not wait in its slot yet: only the next one does, to save memory."""
        self.free_at = 0.0
        self.worked = 0.0
        self._sequence = 0

    def add(self, host, pages):
        self.left[host] = pages
        self._push(self.table.get(host))

    def lease(self, limit, now):
        """Hand out what may be fetched; returns it with the time of the answer."""
        self.table.evict_idle(now)
        begun, slots = max(now, self.free_at), []
        while len(slots) < limit and (taken := self.table.take(begun)) is not None:
            slots.append(taken[0])
            self._push(taken[0])
        cost = (BATCH_US + PAGE_US * len(slots) if slots else EMPTY_US) / 1e6
        self.free_at = begun + cost
        self.worked += cost
        return slots, self.free_at

    def _push(self, slot):
        left = self.left.pop(slot.key, 0)
        if left:
            self._sequence += 1
            if left > 1:
                self.left[slot.key] = left - 1
            self.table.push(slot, (0, self._sequence, None))


class Simulation:
    """One crawl; events are workers that ask and fetches that land."""

    def __init__(self, web, fleet, seed=1):
        self._web, self._fleet = web, fleet
        self._rng = random.Random(seed)
        self._partitions = [Partition(HostLimits(delay=fleet.delay)) for _ in range(fleet.partitions)]
        self._ranks = list(range(1, web.hosts + 1))
        self._rng.shuffle(self._ranks)
        self._pages = web.pages
        self._landed = self._calls = self._empty = self._leased = self._number = 0
        self._events = []
        self._free = [fleet.concurrency] * fleet.workers
        self._asking = [0.0] * fleet.workers
        """When each worker asks next."""
        self._due = [[0.0] * fleet.partitions for _ in range(fleet.workers)]
        """When each worker takes each partition to have something."""
        self._gathered = [0] * fleet.workers
        self._shortest = float("inf")
        self._last = {}

    def run(self):
        self._reveal()
        for worker in range(self._fleet.workers):
            self._ask_at(worker, self._rng.uniform(0, MAX_WAIT))
        marks, times = [self._pages // 2, self._pages * 99 // 100, self._pages], []
        worked = []
        while self._landed < self._pages:
            now, _, worker, landed = heappop(self._events)
            if landed is None:
                if now == self._asking[worker]:
                    self._ask(worker, now)
                continue
            self._land(worker, landed, now)
            if self._landed == marks[len(times)]:
                times.append(now)
                worked.append(max(partition.worked for partition in self._partitions))
        server = sum(partition.worked for partition in self._partitions)
        return Result(
            self._pages, *times,
            leases_per_call=self._leased / (self._calls - self._empty),
            empty_calls=self._empty / self._pages,
            server_us=server / self._pages * 1e6,
            busiest=worked[1] / times[1],
            shortest=self._shortest,
        )  # fmt: skip

    def _reveal(self):
        first = self._fleet.known * self._web.hosts
        known = min(self._web.hosts, int(first + 2 * self._landed / self._pages * self._web.hosts) + 1)
        while self._web.hosts - len(self._ranks) < known:
            rank = self._ranks.pop()
            host = name_of(rank)
            self._partitions[partition_of(host, len(self._partitions))].add(host, self._web.size(rank))

    def _ask_at(self, worker, at):
        self._asking[worker] = at
        self._event(at, worker, None)

    def _event(self, at, worker, landed):
        self._number += 1
        heappush(self._events, (at, self._number, worker, landed))

    def _ask(self, worker, now):
        """Ask the partitions that may have something, longest due first, for equal shares; begin what they give."""
        room, answered, due = self._free[worker], now, self._due[worker]
        self._gathered[worker] = 0
        again = AGAIN if len(due) == 1 else AGAIN_PARTS
        due_partitions = sorted((index for index, at in enumerate(due) if at <= now), key=due.__getitem__)
        for turn, index in enumerate(due_partitions):
            if not room:
                break
            share, partition = -(-room // (len(due_partitions) - turn)), self._partitions[index]
            slots, at = partition.lease(share, now)
            self._calls += 1
            self._empty += not slots
            room -= len(slots)
            answered = max(answered, at)
            soonest = partition.table.next_at()
            wait = again if soonest is None else min(again, soonest - at)
            due[index] = at if len(slots) == share else at + max(0.001, wait)
            for slot in slots:
                self._begin(worker, partition, slot, at)
        self._free[worker] = room
        self._ask_at(worker, max(answered + 0.001, min(due)) if room else answered + AGAIN)

    def _begin(self, worker, partition, slot, now):
        self._leased += 1
        if slot.key in self._last:
            self._shortest = min(self._shortest, now - self._last[slot.key])
        if slot.key in partition.left or slot.waiting:
            self._last[slot.key] = now
        else:
            self._last.pop(slot.key, None)
        self._event(now + self._rng.expovariate(1 / LATENCY), worker, (partition, slot, now))

    def _land(self, worker, landed, now):
        partition, slot, granted = landed
        slot.end_fetch(now, granted, FetchReport(0, now - granted))
        partition.table.reschedule(slot)
        self._landed += 1
        self._free[worker] += 1
        if self._ranks:
            self._reveal()
        self._gathered[worker] += 1
        if len(self._partitions) == 1:
            self._due[worker][0] = now  # it learns of the landing in any case
        if self._gathered[worker] == self._fleet.concurrency // 4:
            self._ask_at(worker, now)
        elif self._gathered[worker] == 1 and self._asking[worker] > now + self._fleet.gather:
            self._ask_at(worker, now + self._fleet.gather)


def show(title, rows):
    """Print a table, each row as soon as it is there."""
    print(f"\n{title}")
    for number, row in enumerate(rows):
        if not number:
            print("| " + " | ".join(row) + " |\n" + "| ---: " * len(row) + "|")
        print("| " + " | ".join(_cell(value) for value in row.values()) + " |", flush=True)


def _cell(value):
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{value:,}"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, default=1_000_000, help="of partitions and events")
    parser.add_argument("--largest", type=int, default=2_000, help="pages of the largest host in events")
    parser.add_argument("--skew", type=float, default=1.0)
    parser.add_argument("--workers", type=int, default=20)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--delay", type=float, default=1.0)
    parser.add_argument("--day", action="store_true", help="only the table of a billion pages")
    options = parser.parse_args()
    show("a billion pages at 13,310 pages per second", days(options.delay))
    if options.day:
        return
    show("bound", bounds(options))
    wide = Web(options.hosts, 100 * options.largest, options.skew)
    show("partitions, largest over mean", (row._asdict() for row in balance(wide, (8, 32, 128, 512))))
    show(f"events, {options.workers} workers with {options.concurrency} in flight", events(options))


def bounds(options):
    for hosts, rate in ((1_000_000, 1_000), (10_000_000, 10_000), (100_000_000, 100_000)):
        for largest in (10_000, 1_000_000):
            found = bound(Web(hosts, largest, options.skew), rate, options.delay)
            yield {"hosts": hosts, "largest": largest, "pages/s": rate, **found._asdict()}


def days(delay):
    counts = (8, 32, 128, 512)
    for hosts, limit in (
        (1e8, int(86_400 / SPACING / delay)),
        (1e8, 10_000),
        (1e8, 1_000),
        (1e7, 10_000),
        (1e7, 1_000),
    ):
        web, balances = day(10**9, int(hosts), limit, 1_000_000, counts)
        found = bound(web, 1.15e9 / 86_400, SPACING * delay)
        yield {
            "hosts": web.hosts, "limit": limit, "hosts at it": web.larger(limit - 1), "pages": web.pages,
            "hours": found.seconds / 3600, **{f"{count} partitions": load for count, load in balances.items()},
        }  # fmt: skip


def events(options):
    web = Web(options.hosts, options.largest, options.skew)
    for partitions, gather in ((1, 0.002), (8, 0.002), (32, 0.002), (1, 0.05), (8, 0.05)):
        fleet = Fleet(options.workers, options.concurrency, gather, partitions, options.delay)
        yield {"partitions": partitions, "gather": gather, **Simulation(web, fleet).run()._asdict()}


if __name__ == "__main__":
    main()
