"""A crawl that several machines share through a server, with handles to hurt them and it."""

import os
import signal
import time
from collections import Counter

import psutil
from crawling import Crawling

PATIENCE = 100.0


class SharedCrawling(Crawling):
    """The command of one machine. What became of the job is asked at the server itself."""

    def __init__(self, folder, server, site, *, url=None, workers=2, settings=()):
        super().__init__(
            folder,
            "Everything",
            workers=workers,
            settings=settings,
            arguments={"url": site.url},
        )
        self.command.append(f"--frontier={url or server.url}")
        self._server = server
        self.awakenings = []
        """When workers were woken, by ``time.monotonic()``."""

    def wait(self):
        return self.process.wait(PATIENCE)

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
        """SIGSTOP one of its workers for so long; returns whether it was there to be woken."""
        if not self.wait_for(self.workers, "a worker"):
            return False
        victim = rng.choice(self.workers())
        try:
            os.kill(victim.pid, signal.SIGSTOP)
            time.sleep(seconds)
            self.awakenings.append(time.monotonic())
            os.kill(victim.pid, signal.SIGCONT)
        except (ProcessLookupError, psutil.NoSuchProcess):
            return False
        return True


class Machines:
    """Several of them as one: what they wrote together."""

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
    from skitter.frontier.redis.records import read_letter

    return read_letter(letter).url
