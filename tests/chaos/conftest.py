"""Crawls and sites in processes of their own, ended with the test."""

from pathlib import Path

import pytest
from crawling import Crawling

from skitter.testing import SiteProcess


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


@pytest.fixture
def site_process(tests_folder):
    """Serve a site from a process of its own: ``site = site_process("holey:HoleySite", {...}, hosts=2)``."""
    running = []

    def start(factory, arguments=None, **options):
        search = [tests_folder, Path(__file__).parent]
        site = SiteProcess(factory, arguments, search=search, **options)
        running.append(site.__enter__())
        return site

    yield start
    for site in running:
        site.__exit__(None, None, None)
