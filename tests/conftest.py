"""Fixtures that all tests share."""

import os
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx
from hypothesis import HealthCheck, settings

from services import processes
from sites.docs import DocsUnavailable, docs_folder
from skitter.testing import SiteServer, StaticSite
from skitter.worker import links

# Commands adapt their output to the terminal, so give all tests the same one.
os.environ.update(COLUMNS="80", LINES="25", TERM="xterm")
for colours in ("NO_COLOR", "FORCE_COLOR"):
    os.environ.pop(colours, None)

# Hypothesis fails examples that take longer than 0.2 s by default. On a busy machine, that would fail at random.
# In CI, examples are the same in each run, so that only a change of the code can break a test. Elsewhere each run
# draws new ones.
settings.register_profile(
    "skitter",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="SKITTER_TEST_ALL" in os.environ,
)
settings.load_profile("skitter")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Fail skipped tests where everything is installed (``SKITTER_TEST_ALL=1``, as in CI)."""
    report = yield
    if report.skipped and os.environ.get("SKITTER_TEST_ALL"):
        report.outcome = "failed"
        report.longrepr = f"skipped, where nothing may be missing: {report.longrepr}"
    return report


_passed = set()


def pytest_runtest_logreport(report):
    """Record passed tests. With several test processes, the one that collects the reports records all of them."""
    if report.when == "call" and report.passed:
        _passed.add(report.nodeid.rpartition("::")[2].partition("[")[0])


def pytest_sessionfinish(session):
    """Append the names of passed tests to the file ``SKITTER_PASSED``, which ``proofs.py`` reads."""
    path = os.environ.get("SKITTER_PASSED")
    if path and not hasattr(session.config, "workerinput"):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with Path(path).open("a", encoding="utf-8") as file:
            file.writelines(f"{name}\n" for name in sorted(_passed))


@pytest.fixture(autouse=True)
def no_blocking_calls():
    """Fail a test in which skitter's code blocks an event loop. Threads without a loop may block."""
    with blockbuster_ctx("skitter") as guard:
        # Starting and stopping a test server waits briefly for its thread.
        for function in guard.functions.values():
            function.can_block_in("skitter/testing/server.py", {"__enter__", "__exit__"})
            # This event loop runs in its own thread and is meant to be blocked.
            function.can_block_in("skitter/service/queries.py", {"_on_own_loop"})
            # Short writes without fsync.
            function.can_block_in("skitter/_utils/concurrency.py", {"run_short"})
            # The frontier's database is in memory.
            function.can_block_in("skitter/frontier/embedded/journal.py", {"__init__", "append", "read"})
            # From Python 3.13 on, uvloop stats its socket.
            function.can_block_in("skitter/frontier/rpc/server.py", {"start", "close"})
            # Database drivers read one or two files for each connection.
            function.can_block_in("asyncpg/connect_utils.py", {"_parse_connect_arguments"})
            function.can_block_in("pymongo/pool_options.py", {"get_container_env_info"})
        yield guard


@pytest.fixture
def serve():
    """Start test sites that are closed after the test: ``server = serve(site, hosts=2)``."""
    running = []

    def start(site, **options):
        server = SiteServer(site, **options)
        running.append(server.__enter__())
        return server

    yield start
    for server in reversed(running):
        server.__exit__(None, None, None)


@pytest.fixture(scope="session")
def python_docs():
    """Folder with the HTML documentation of Python 3.11. Skips the test if it is unavailable."""
    try:
        return docs_folder()
    except DocsUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def docs_server(python_docs, serve):
    """Serve the documentation of Python 3.11 as a site."""
    return serve(StaticSite(python_docs))


@pytest.fixture
def free_port():
    """A port of 127.0.0.1 on which no process listens."""
    return processes.free_port()


@pytest.fixture(scope="session")
def tests_folder():
    """The folder from which :class:`~skitter.testing.SiteProcess` can import ``sites``."""
    return Path(__file__).parent


@pytest.fixture(params=["compiled", "python"])
def link_table(request):
    """Run the test with each of the two classes of the table of known links."""
    if request.param == "python":
        return links.PythonLinkTable
    if links.LinkTable is links.PythonLinkTable:
        pytest.skip("the table of links was not compiled: install a C compiler, then skitter again")
    return links.LinkTable
