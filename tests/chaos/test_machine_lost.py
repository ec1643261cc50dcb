"""Machines that never return: they are killed and their folders deleted. The outputs contain every item exactly once.

Each test runs one round. ``make chaos ROUNDS=20`` runs that many, each with its own seed.

"""

import json
import random
import shutil
import uuid

import pytest
import redis
from crawling import FAST, ROUNDS, at_moments, check_exact
from shared_crawling import Machines, SharedCrawling, report_often

from cli_command import skitter
from services import store_servers
from services.redis_servers import running, server_of
from services.store_items import read_file, read_kafka

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

LOST = 2
PAGES, HOLES, HOSTS = 200, 20, 2
SITE = {"pages": PAGES, "every": HOLES, "hosts": HOSTS, "page_bytes": 3000, "links_per_page": 20}
SETTINGS = FAST | {"lease_seconds": 600}


@pytest.fixture
def server():
    server = server_of("valkey", "--appendonly", "no").start()
    yield server
    server.stop()


def output_of(kind):
    """Return an unused output."""
    name = f"t{uuid.uuid4().hex[:12]}"
    if kind in ("s3", "gcs"):
        return store_servers.running(kind).place(f"{name}/items.jsonl") + "&flush=0.2"
    if kind in ("list", "stream") or kind.startswith("items."):
        place = f"{running('valkey').url}/{name}"
        return {"list": place, "stream": f"{place}?type=stream&serializer=json:dumps"}.get(
            kind, f"{kind}?parts={place}"
        )
    server = store_servers.running(kind)
    return {
        "mongodb": lambda: f"{server.url}/chaos/{name}",
        "kafka": lambda: server.place(name),
        "opensearch": lambda: f"{server.url}/{name}",
    }.get(kind, lambda: f"{server.url}?table={name}")()


class ToServer(SharedCrawling):
    """A machine whose items go to a server, or to a file with shared parts."""

    def items(self):
        if self.output.startswith("items."):
            name = self.output.partition("?")[0]
            return read_file(name, (self.folder / name).read_bytes())
        if self.output.startswith("kafka:"):
            return list(read_kafka(self.output).values())
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
@pytest.mark.parametrize(
    "kind",
    [
        "list",
        "stream",
        "mongodb",
        "postgresql",
        "mysql",
        "kafka",
        "opensearch",
        "s3",
        "gcs",
        "items.jsonl",
        "items.csv",
        "items.parquet",
    ],
)
def test_the_items_of_lost_machines_are_in_the_output_when_the_job_is_finished(
    kind, seed, server, site, truth, tmp_path, monkeypatch
):
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")  # the emulator has no gRPC
    rng = random.Random(f"{kind} {seed}")
    output = output_of(kind)
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


class WithFile(SharedCrawling):
    """A machine that writes its items to its own file."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        report_often(self)
        self.summary = self.folder / "summary.json"
        self.command += ["--quiet", "--summary", str(self.summary)]

    def state(self):
        """Return the state of the job according to the summary of the last run and to ``skitter status``."""
        status = skitter("status", "job", "--json", cwd=self.folder)
        return json.loads(self.summary.read_text())["state"], json.loads(status.stdout)["state"]


@pytest.mark.parametrize("seed", ROUNDS)
def test_a_job_with_items_in_the_files_of_a_lost_machine_is_incomplete_until_they_are_written(
    seed, server, site, truth, tmp_path
):
    rng = random.Random(f"files {seed}")
    machines = []
    for name in ("lost", "left"):
        (tmp_path / name).mkdir()
        machines.append(WithFile(tmp_path / name, server, site, settings=SETTINGS))
    lost, left = machines
    try:
        lost.start()
        for _ in at_moments(lost, site, [rng.randrange(30, PAGES // 2)]):
            left.start()
            assert left.wait_for(left.workers, "a worker")
            lost.kill_all()
            parts = (lost.folder / ".skitter").rename(tmp_path / "disk") / "job/parts"
        assert left.wait() == 1, left.errors
        assert left.state() == ("incomplete", "incomplete")
        assert "of committed items" in left.errors
        assert set(left.urls()) < set(truth[0])
        shutil.copytree(parts, left.folder / ".skitter/job/parts", dirs_exist_ok=True)
        assert left.run() == 0, left.errors
        assert left.state() == ("finished", "finished")
        check_exact(left, *truth)
    finally:
        for machine in machines:
            machine.end()


def test_machines_with_files_of_their_own_wait_for_each_other_and_are_finished(server, site, truth, tmp_path):
    machines = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        machines.append(WithFile(tmp_path / name, server, site, settings=SETTINGS).start())
    try:
        assert [machine.wait() for machine in machines] == [0, 0], [machine.errors for machine in machines]
        assert {machine.state() for machine in machines} == {("finished", "finished")}
        check_exact(Machines(machines), *truth)
    finally:
        for machine in machines:
            machine.end()
