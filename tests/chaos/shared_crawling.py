"""A crawl that several machines share through a server, with methods to kill them and it."""

import asyncio
import os
import signal
import time
from collections import Counter

import psutil
from crawling import Crawling


class SharedCrawling(Crawling):
    """A crawl on one machine. The results of the job are read from the server."""

    def __init__(self, folder, server, site, *, url=None, workers=2, settings=(), output="items.jsonl"):
        super().__init__(
            folder,
            "Everything",
            workers=workers,
            settings=settings,
            output=output,
            arguments={"url": site.url},
        )
        self.command.append(f"--frontier={url or server.url}")
        self._server = server
        self._asleep = set()
        self.resumptions = []
        """Times at which stopped workers were resumed, by ``time.monotonic()``."""

    def _key(self, name):
        return f"skitter:{{job}}:{name}"

    def dead_letters(self):
        letters = self._server.ask("ZRANGE", self._key("dead"), 0, -1)
        return {url_of(letter): "" for letter in letters}

    def counters(self):
        fields = self._server.ask("HGETALL", self._key("counters"))
        return {name.decode(): int(value) for name, value in zip(fields[::2], fields[1::2], strict=True)}

    def counts(self):
        done = int(self._server.ask("HGET", self._key("job"), "done"))
        sizes = {name: self._server.ask("ZCARD", self._key(name)) for name in ("queue", "delayed", "dead")}
        leased = self._server.ask("HLEN", self._key("leases"))
        return {"added": done + leased + sum(sizes.values()), "done": done, **sizes}

    def pause_worker(self, rng, seconds):
        """SIGSTOP a worker for a number of seconds. Return whether it was still alive then."""
        if not self.wait_for(self.workers, "a worker"):
            return False
        victims = self.workers()
        if not victims:  # it was killed after it was found
            return False
        victim = rng.choice(victims)
        self._asleep.add(victim.pid)
        try:
            os.kill(victim.pid, signal.SIGSTOP)
            time.sleep(seconds)
            woken = time.monotonic()
            os.kill(victim.pid, signal.SIGCONT)
        except (ProcessLookupError, psutil.NoSuchProcess):
            return False
        if victim not in self.workers():  # it died before it was stopped
            return False
        self.resumptions.append(woken)
        return True

    def never_stopped_workers(self):
        """The workers that are not stopped and never were."""
        return [worker for worker in self.workers() if worker.pid not in self._asleep]


def report_often(machine):
    """Let a machine report every 0.2 s to the others that it will still write its items."""
    code = machine.command.index("-c") + 1
    constants = "from skitter.run import written; written._BEAT_SECONDS = 0.2; "
    machine.command[code] = constants + machine.command[code]
    return machine


class ClusterCrawling(SharedCrawling):
    """A crawl on a cluster. The results are read with the frontier's own calls."""

    def __init__(self, folder, server, site, *, url, job="job", **options):
        super().__init__(folder, server, site, url=url, **options)
        self.command += ["--job", job]
        self._url = url
        self._job = job

    def _ask_frontier(self, question):
        from skitter.frontier.options import FrontierContext
        from skitter.frontier.redis.cluster_frontier import RedisClusterFrontier

        async def ask():
            frontier = RedisClusterFrontier(self._url, FrontierContext(self._job, attach=True))
            await frontier.open()
            try:
                return await question(frontier)
            finally:
                await frontier.close()

        return asyncio.run(ask())

    def dead_letters(self):
        letters = self._ask_frontier(lambda frontier: frontier.dead_letters.list(limit=10_000))
        return {letter.url: letter.error for letter in letters}

    def counters(self):
        return self._ask_frontier(lambda frontier: frontier.status()).counters

    def counts(self):
        status = self._ask_frontier(lambda frontier: frontier.status())
        return {"added": status.added, "done": status.done, "queue": status.queued, "delayed": status.delayed,
                "dead": status.failed}  # fmt: skip


class Machines:
    """Several machines as one crawl: their common output."""

    def __init__(self, machines):
        self._machines = machines

    def urls(self):
        found = Counter()
        for machine in self._machines:
            if machine.output.exists():
                found += machine.urls()
        return found

    def __getattr__(self, name):
        return getattr(self._machines[0], name)


def url_of(letter):
    from skitter.frontier.redis.records import read_dead_letter

    return read_dead_letter(letter).url
