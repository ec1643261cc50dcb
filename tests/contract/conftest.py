"""Fixtures of the contract suite: a job on each backend."""

import gc
from pathlib import Path

import pytest
from frontier_backends import BACKENDS, Backend
from frontier_job import Job

from skitter.frontier.embedded import backlog
from skitter.frontier.options import FrontierSettings
from skitter.politeness import HostLimits, Politeness

NO_LIMITS = HostLimits(delay=0.0, concurrency_per_slot=100_000)


HERE = Path(__file__).parent
WITH_OWN_SOCKETS = ("mongodb", "ferretdb", "test_store_databases")
"""Substrings of the names of store tests whose clients open sockets themselves."""


def has_own_sockets(item):
    return item.path.parent == HERE and any(name in item.nodeid for name in WITH_OWN_SOCKETS)


def pytest_collection_modifyitems(items):
    """pymongo leaves a socket open if its client is closed while one of its tasks connects."""
    for item in filter(has_own_sockets, items):
        item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(autouse=True)
def sockets_left_by_clients(request):
    """Collect sockets that a client has left open, so that no later test gets their warnings."""
    yield
    if has_own_sockets(request.node):
        gc.collect()


@pytest.fixture(params=BACKENDS)
def backend(request, tmp_path) -> Backend:
    return BACKENDS[request.param](tmp_path)


@pytest.fixture
async def start(backend):
    """Start a job: ``job = await start(policy, rules=(), unit="host", **options)``."""
    jobs = []

    async def start_job(policy=NO_LIMITS, rules=(), unit="host", **options) -> Job:
        assert not jobs, "one job a test"
        job = Job(backend, Politeness(policy, rules, unit), FrontierSettings(**options))
        jobs.append(job)
        try:
            return await job.open()
        except pytest.skip.Exception:
            jobs.clear()  # the backend's server is not installed, so there is no job to stop
            raise

    yield start_job
    for job in jobs:
        await job.backend.stop()


@pytest.fixture
async def job(start):
    """A job without limits."""
    return await start()


@pytest.fixture
def job_kind():
    """The class :class:`Job`, for tests that start many jobs."""
    return Job


@pytest.fixture
def small_heads(monkeypatch):
    """Keep only two requests of each slot in memory, so that most requests are in the file."""
    monkeypatch.setattr(backlog, "MIN_HEAD_SIZE", 2)
    monkeypatch.setattr(backlog, "MAX_HEAD_SIZE", 2)
    monkeypatch.setattr(backlog, "MAX_LONG_HEAD_SIZE", 2)
    monkeypatch.setattr(backlog.Backlog, "read_ahead", lambda *_: None)
