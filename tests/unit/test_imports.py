"""Imports of a process: each loads only the modules that it needs."""

import subprocess
import sys
from importlib.metadata import version

from skitter._version import VERSION

HEAVY = ("pycurl", "turbohtml", "lxml", "parsel", "selectolax", "redis", "IPython")


def test_the_owner_of_a_fleet_loads_neither_fetcher_nor_parser():
    """It would take a fifth of its memory, and time at each start."""
    program = (
        "import sys, skitter.cli.running, skitter.frontends.page_spider; from skitter import Spider;"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


def test_a_worker_of_this_machine_does_not_load_the_frontier_that_its_owner_has():
    program = "import sys, skitter.run.child; print([name for name in sys.modules if name == 'skitter.frontier.embedded.journal'])"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


def test_a_worker_loads_nothing_of_the_life_cycle_that_it_does_not_use():
    program = (
        "import sys, skitter.run.crawl, skitter.worker.worker, skitter.cli.main, skitter.frontends.collector;"
        "print([name for name in sys.modules if name.startswith('skitter.frontends.lifecycle')])"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


def test_a_crawl_without_files_and_secrets_loads_nothing_for_them():
    """It took a twentieth of the time of all imports."""
    unneeded = ("skitter.worker.media", "skitter.store.media", "bz2", "lzma", "tempfile", "mimetypes")
    program = (
        "import sys, skitter.cli.main, skitter.cli.running, skitter.run.fetcher_factory, skitter.worker.worker;"
        f"print([name for name in {unneeded} if name in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


def test_a_command_loads_no_modules_of_other_commands():
    program = (
        "import sys; from skitter.cli.main import run; run(['run', 'nothing.py']);"
        "print([name for name in ('skitter.cli.serve', 'skitter.cli.shell', 'importlib.metadata') if name in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


def test_a_parser_loads_its_core_only_and_the_rest_when_it_is_wanted():
    program = (
        "import sys; from skitter.html.selector import Selector;"
        "page = Selector('<article><p>text</article>'); assert page.css('p::text').get() == 'text';"
        "assert 'turbohtml.extract' not in sys.modules;"
        "{wanted};"
        "assert 'turbohtml.extract' in sys.modules"
    )
    for wanted in (
        "assert page.css('p').get() == '<p>text</p>'",
        "assert page.markdown() == 'text'",
        "assert page.structured_data()['json_ld'] == []",
        "from turbohtml import parse; assert parse('<article>').article() is not None",
        "import turbohtml; assert turbohtml.parse('<article>').article() is not None; assert not hasattr(turbohtml, 'x')",
    ):
        subprocess.run([sys.executable, "-c", program.format(wanted=wanted)], check=True)


def test_the_version_is_that_of_the_package():
    assert version("skitter") == VERSION
