"""Fixtures shared by all tests."""

import os
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx
from hypothesis import HealthCheck, settings

from services import processes
from sites.docs import DocsUnavailable, docs_folder
from skitter.testing import SiteServer, StaticSite
from skitter.worker import links

# What is shown depends on the terminal from which the tests are run, unless they say what it is.
os.environ.update(COLUMNS="80", LINES="25", TERM="xterm")
for colours in ("NO_COLOR", "FORCE_COLOR"):
    os.environ.pop(colours, None)

# How long an example takes says how busy the machine is: 0.2 s, the usual bound, is nothing where others are at work.
# In CI the examples are the same in each run, so what is red there is due to the change; elsewhere each run draws new ones.
settings.register_profile(
    "skitter",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="SKITTER_TEST_ALL" in os.environ,
)
settings.load_profile("skitter")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Where everything is installed (``SKITTER_TEST_ALL=1``, as in CI), a skipped test is a failed one."""
    report = yield
    if report.skipped and os.environ.get("SKITTER_TEST_ALL"):
        report.outcome = "failed"
        report.longrepr = f"skipped, where nothing may be missing: {report.longrepr}"
    return report


_passed = set()


def pytest_runtest_logreport(report):
    """Note the tests that passed; with several processes, the one that collects the reports notes them all."""
    if report.when == "call" and report.passed:
        _passed.add(report.nodeid.rpartition("::")[2].partition("[")[0])


def pytest_sessionfinish(session):
    """Append the names of the tests that passed to the file ``SKITTER_PASSED``, for ``proofs.py``."""
    path = os.environ.get("SKITTER_PASSED")
    if path and not hasattr(session.config, "workerinput"):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with Path(path).open("a", encoding="utf-8") as file:
            file.writelines(f"{name}\n" for name in sorted(_passed))


@pytest.fixture(autouse=True)
def no_blocking_calls():
    """Fail a test in which our code blocks an event loop. Threads without a loop may block."""
    with blockbuster_ctx("skitter") as guard:
        # Starting and ending a test server waits, for a moment, for its thread.
        for function in guard.functions.values():
            function.can_block_in("skitter/testing/server.py", {"__enter__", "__exit__"})
            # An event loop that is there to be blocked, in a thread of its own.
            function.can_block_in("skitter/service/queries.py", {"_on_own_loop"})
            # Short writes that are not synchronised with the disk.
            function.can_block_in("skitter/_utils/concurrency.py", {"run_short"})
            # The database of a frontier in memory.
            function.can_block_in("skitter/frontier/embedded/journal.py", {"__init__", "append", "read"})
            # From Python 3.13 on, uvloop asks for the inode of its socket.
            function.can_block_in("skitter/frontier/rpc/server.py", {"start", "close"})
            # Drivers that look at a file or two, once a connection.
            function.can_block_in("asyncpg/connect_utils.py", {"_parse_connect_arguments"})
            function.can_block_in("pymongo/pool_options.py", {"get_container_env_info"})
        yield guard


@pytest.fixture
def serve():
    """Start test sites that end with the test: ``server = serve(site, hosts=2)``."""
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
    """Folder of the HTML documentation of Python 3.11, or a skip with the reason."""
    try:
        return docs_folder()
    except DocsUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def docs_server(python_docs, serve):
    """The documentation of Python 3.11 as a site."""
    return serve(StaticSite(python_docs))


@pytest.fixture
def free_port():
    """A port of 127.0.0.1 that nothing listens on."""
    return processes.free_port()


@pytest.fixture(scope="session")
def tests_folder():
    """Where ``sites`` can be imported from, for :class:`~skitter.testing.SiteProcess`."""
    return Path(__file__).parent


@pytest.fixture(params=["compiled", "python"])
def link_table(request):
    """Both classes of the table of known links in turn."""
    if request.param == "python":
        return links.PythonLinkTable
    if links.LinkTable is links.PythonLinkTable:
        pytest.skip("the table of links was not compiled: install a C compiler, then skitter again")
    return links.LinkTable
