"""Loading spiders from files and modules, with a clear error for each mistake."""

import os
import sys

import pytest

from skitter import Spider
from skitter.errors import SettingsError, SpiderError
from skitter.frontends.page_spider import PageSpider
from skitter.frontier.workers import worker_name
from skitter.run.builder import JobBuilder
from skitter.run.job import JobSpec
from skitter.run.loader import build_spider, find_spider, load_spider_class

ONE = """
from skitter import Spider
from skitter.frontends.page_spider import PageSpider

class One(Spider):
    start_urls = ["http://h.test/"]
    custom_settings = {"concurrency": 7, "delay": 2.0}
"""
TWO = ONE + "\nclass Two(One):\n    pass\n"


@pytest.fixture
def file(tmp_path):
    def write(text, name="spiders.py"):
        path = tmp_path / name
        path.write_text(text)
        return path

    yield write
    sys.path[:] = [place for place in sys.path if place != str(tmp_path)]


def test_the_only_spider_of_a_file_needs_no_name(file):
    assert load_spider_class(str(file(ONE))).__name__ == "One"


def test_a_spider_is_found_by_its_name_also_if_it_is_imported_there(file):
    path = file(TWO)
    assert load_spider_class(f"{path}:Two").__name__ == "Two"
    assert load_spider_class(f"{path}:PageSpider") is PageSpider
    assert load_spider_class("skitter.frontends.page_spider:PageSpider") is PageSpider


def test_a_file_may_import_its_neighbours(file):
    file("NAME = 'neighbour'", "neighbours_of_a_spider.py")
    path = file(ONE + "    from neighbours_of_a_spider import NAME as name\n")
    assert load_spider_class(str(path)).name == "neighbour"


def test_a_file_is_loaded_once_and_once_more_after_a_change(file):
    path = file(ONE)
    before = load_spider_class(f"{path}:One")
    assert load_spider_class(f"{path}:One") is before
    file(ONE + "\n    def detail(self, response):\n        pass\n")
    assert hasattr(load_spider_class(f"{path}:One"), "detail")
    assert not hasattr(before, "detail")


def test_the_name_for_other_processes_is_absolute_and_unambiguous(file, monkeypatch):
    path = file(ONE)
    monkeypatch.chdir(path.parent)
    assert find_spider("spiders.py")[0] == f"{path.resolve()}:One"


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (None, "nowhere.py", "file not found: nowhere.py"),
        (None, "no_such_package_at_all.spiders:X", "module not found: 'no_such_package_at_all'"),
        ("x = 1", "{}", "contains no spider"),
        (TWO, "{}", "contains several spiders"),
        (ONE, "{}:Three", "has no spider 'Three'"),
        (ONE + "number = 7", "{}:number", "number in .* is not a spider"),
        ("class One(:\n", "{}", "spiders.py line 1: invalid syntax"),
        ("import no_such_module_at_all", "{}", "cannot be imported: ModuleNotFoundError"),
        ("1 / 0", "{}", r"cannot be imported: ZeroDivisionError: division by zero \(line 1 of spiders.py"),
    ],
)
def test_a_mistake_is_reported_with_a_remedy(file, text, name, message):
    path = file(text) if text is not None else ""
    with pytest.raises(SpiderError, match=message) as caught:
        load_spider_class(name.format(path))
    assert caught.value.remedy


def test_a_syntax_error_in_an_imported_module_names_the_file_of_that_module(file):
    path = file("import broken_helper_of_a_spider\n")
    path.with_name("broken_helper_of_a_spider.py").write_text("x = 1\ndef (:\n")
    with pytest.raises(SpiderError, match=r"broken_helper_of_a_spider\.py line 2: "):
        load_spider_class(str(path))


def test_arguments_become_attributes():
    assert build_spider(Spider, {"shop": "x", "name": "s"}).shop == "x"


def test_a_spider_that_cannot_be_created_is_reported_with_the_reason():
    class Picky(Spider):
        def __init__(self, shop):
            super().__init__()

    with pytest.raises(SpiderError, match=r"cannot create spider Picky: TypeError: .*'shop'") as caught:
        build_spider(Picky, {})
    assert "-a shop=..." in caught.value.remedy


def assemble_spider(path, **fields):
    return JobBuilder(JobSpec(job="j", spider=str(path), **fields))


def test_the_command_line_is_stronger_than_the_spiders_settings(file):
    assembly = assemble_spider(file(ONE), settings={"delay": "0.5"})
    assert (assembly.settings.concurrency, assembly.settings.delay) == (7, 0.5)


def test_the_frontier_receives_the_limits_and_the_politeness(file):
    settings = {
        "max_pages": 5,
        "max_errors": 6,
        "lease_seconds": 9,
        "queue_order": "lifo",
        "concurrency_per_slot": 3,
    }
    context = assemble_spider(file(ONE), settings=settings, home="/h").frontier_context()
    options = context.options
    assert (options.max_pages, options.max_errors, options.lease_seconds) == (5, 6, 9)
    assert (options.queue_order, context.directory) == ("lifo", "/h/j")
    slot = context.politeness.limits_of("h.test")
    assert (slot.delay, slot.concurrency_per_slot) == (2.0, 3)


def test_the_scope_comes_from_the_start_urls(file):
    assembly = assemble_spider(file(ONE), settings={"scope": "host"})
    assert assembly.scope.refuse("http://h.test/x", "h.test") is None
    assert assembly.scope.refuse("http://www.h.test/x", "www.h.test") == "host"


def test_a_scope_without_start_urls_is_refused(file):
    with pytest.raises(SpiderError, match="scope 'host' needs start_urls"):
        assemble_spider(file(ONE.replace("start_urls", "urls")), settings={"scope": "host"})


def test_a_bad_limit_rule_is_found_before_the_crawl(file):
    with pytest.raises(SettingsError, match="regular expression"):
        assemble_spider(file(ONE), settings={"limit_rules": [{"domain_regexp": "("}]})


def test_a_spiders_hooks_are_its_methods_and_its_collections(file):
    text = (
        ONE
        + "    def on_error(self, request, error): pass\n    hooks = [type('C', (), {'on_stop': print})()]\n"
    )
    hooks = assemble_spider(file(text)).hooks()
    assert (len(hooks["on_error"]), len(hooks["on_stop"]), len(hooks["on_start"])) == (1, 1, 0)


def test_no_two_workers_have_the_same_name():
    names = {worker_name() for _ in range(100)}
    assert len(names) == 100
    assert all(name.startswith(f"{os.getpid()}-") for name in names)
