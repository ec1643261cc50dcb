"""Machines that never come back: killed with their folders deleted. The outputs on servers hold every item exactly once.

Each test runs one round. ``make chaos ROUNDS=20`` runs as many, each with a seed of its own.
"""

import json
import random
import shutil
import uuid

import pytest
import redis
from crawling import FAST, ROUNDS, at_moments, check_exact
from shared_crawling import SharedCrawling

from services import store_servers
from services.redis_servers import running, server_of

pytestmark = pytest.mark.chaos

LOST = 2
PAGES, HOLES, HOSTS = 200, 20, 2
SITE = {"pages": PAGES, "every": HOLES, "hosts": HOSTS, "page_bytes": 3000, "links_per_page": 20}
SETTINGS = FAST | {"lease_seconds": 600}


@pytest.fixture
def server():
    server = server_of("valkey", "--appendonly", "no").start()
    yield server
    server.stop()


def place_of(kind):
    """Return an output that is new."""
    name = f"t{uuid.uuid4().hex[:12]}"
    if kind == "list":
        return f"{running('valkey').url}/{name}"
    if kind == "stream":
        return f"{running('valkey').url}/{name}?type=stream"
    if kind == "mongodb":
        return f"{store_servers.running(kind).url}/chaos/{name}"
    if kind == "postgresql":
        return f"{store_servers.running(kind).url}?table={name}"
    return store_servers.running("s3").place(f"{name}/items.jsonl") + "&flush=0.2"


class ToServer(SharedCrawling):
    """A machine whose items go to a server."""

    def items(self):
        if not self.output.startswith("redis:"):
            return super().items()
        place, _, options = self.output.partition("?")
        url, _, key = place.rpartition("/")
        with redis.Redis.from_url(url) as client:
            if options:
                return [json.loads(fields[b"item"]) for _, fields in client.xrange(key)]
            return [json.loads(item) for item in client.lrange(key, 0, -1)]


class Newest:
    """The machine that joined last."""

    def __init__(self, machines):
        self._machines = machines

    def wait_for(self, fact, what):
        return self._machines[-1].wait_for(fact, what)


@pytest.mark.parametrize("seed", ROUNDS)
@pytest.mark.parametrize("kind", ["list", "stream", "mongodb", "postgresql", "s3"])
def test_the_items_of_lost_machines_are_in_the_output_when_the_job_is_finished(
    kind, seed, server, site, truth, tmp_path
):
    rng = random.Random(f"{kind} {seed}")
    output = place_of(kind)
    machines = []

    def join():
        folder = tmp_path / f"machine{len(machines)}"
        folder.mkdir()
        machine = ToServer(folder, server, site, settings=SETTINGS, output=output)
        machines.append(machine.start())
        return machine

    try:
        victim = join()
        for _ in at_moments(Newest(machines), site, sorted(rng.sample(range(20, PAGES // 2), LOST))):
            survivor = join()
            assert survivor.wait_for(survivor.workers, "a worker")
            victim.kill_all()
            shutil.rmtree(victim.folder / ".skitter")
            victim = survivor
        assert victim.wait() == 0, victim.errors
        assert len(machines) == LOST + 1, "a machine was spared"
        check_exact(victim, *truth)
    finally:
        for machine in machines:
            machine.end()
