"""Crawls and sites in separate processes, which are ended with the test."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from crawling import Crawling, kills
from dead_link_site import DeadLinkSite

from skitter.testing import SiteProcess


def pytest_terminal_summary(terminalreporter):
    if kills:
        by_kind = ", ".join(f"{kind}: {count}" for kind, count in sorted(kills.items()))
        terminalreporter.write_line(f"{kills.total()} processes were killed ({by_kind})")


@pytest.fixture
def crawling(tmp_path):
    """Prepare a job: ``job = crawling("Everything", workers=2, ...)``, then ``job.run()``."""
    made = []

    def make(spider, **options):
        made.append(Crawling(tmp_path, spider, **options))
        return made[-1]

    yield make
    for crawl in made:
        crawl.end()


def _starter(stack, tests_folder):
    def start(factory, arguments=None, **options):
        search = [tests_folder, Path(__file__).parent]
        return stack.enter_context(SiteProcess(factory, arguments, search=search, **options))

    return start


@pytest.fixture
def site_process(tests_folder):
    """Serve a site from a separate process: ``site = site_process("dead_link_site:DeadLinkSite", {...}, hosts=2)``."""
    with ExitStack() as stack:
        yield _starter(stack, tests_folder)


@pytest.fixture
def bounded_site(site_process, tmp_path):
    """Serve a site that waits for each kill of ``at_moments``: ``site = bounded_site("sites.texts:TextSite", {...})``."""

    def start(factory, arguments=None, **options):
        bound = tmp_path / "bound"
        given = {"factory": factory, "arguments": arguments or {}, "bound": str(bound)}
        site = site_process("bounded_site:BoundedSite", given, **options)
        site.bound = bound
        return site

    return start


@pytest.fixture
def site(site_process, request, tmp_path):
    """Serve the site that the module describes in ``SITE``. It waits for each kill of ``at_moments``."""
    described = request.module.SITE
    bound = tmp_path / "bound"
    site = site_process(
        "dead_link_site:DeadLinkSite",
        {**described, "bound": str(bound)},
        hosts=described["hosts"],
        delay=0.02,
    )
    site.bound = bound
    return site


@pytest.fixture
def truth(site, request):
    """The available pages of ``SITE``, and its dead links."""
    return DeadLinkSite(**request.module.SITE).urls(site.origins)


@pytest.fixture(scope="module")
def start_site(tests_folder):
    """Like ``site_process``, for a site that all tests of a module share."""
    with ExitStack() as stack:
        yield _starter(stack, tests_folder)
