"""Bad input: every mistake of a user is one line with its remedy and exit 2, never a traceback."""

import json
import os
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from cli_command import Running, complaint, skitter
from sites.gated import GatedSite
from skitter.testing import GeneratedSite

SPIDER = """
from skitter import Spider

class First(Spider):
    start_urls = ["http://127.0.0.1:9/"]

    def parse(self, response):
        yield {}
"""
URL = "http://127.0.0.1:9/"


@pytest.fixture
def here(tmp_path):
    (tmp_path / "first.py").write_text(SPIDER)
    return tmp_path


def write(here, name, text):
    (here / name).write_text(text)
    return name


@pytest.mark.parametrize(
    "url", ["example.com", "htp://example.com/", "http://exa mple/", "", "file:///etc/passwd", "//x"]
)
def test_wrong_url(url, here):
    assert "not an absolute http(s) URL" in complaint("crawl", url, cwd=here)
    assert not (here / ".skitter").exists()


def test_a_host_without_its_scheme_is_answered_with_the_url_that_was_meant(here):
    assert complaint("crawl", "example.com/a", cwd=here).endswith("; write https://example.com/a")


def test_a_spider_instead_of_a_url_is_answered_with_the_command_that_runs_it(here):
    assert complaint("crawl", "first.py", cwd=here).endswith(
        "; `skitter run first.py` runs a spider or a recipe"
    )
    for name in ("first", "first-css"):
        expected = f"; write https://{name}/, or run a spider with `skitter run FILE.py`"
        assert complaint("crawl", name, cwd=here).endswith(expected)
    assert complaint("crawl", "localhost", cwd=here).endswith("; write http://localhost/")


@pytest.mark.parametrize("host", ["127.0.0.1:9", "localhost:9", "[::1]:9"])
def test_a_local_host_without_its_scheme_is_answered_with_a_url_without_tls(host, here):
    assert complaint("crawl", host, cwd=here).endswith(f"; write http://{host}/")


def test_wrong_url_to_fetch(here):
    for command in ("fetch", "shell"):
        line = complaint(command, "127.0.0.1:9/a", cwd=here)
        assert line.endswith("not an absolute http(s) URL: '127.0.0.1:9/a'; write http://127.0.0.1:9/a")


def test_spider_with_a_syntax_error(here):
    name = write(here, "bad.py", "from skitter import Spider\nclass A(Spider)\n    pass\n")
    assert "bad.py line 2: expected ':'" in complaint("run", name, cwd=here)


def test_spider_whose_import_fails_on_several_lines(here):
    name = write(here, "bad.py", "raise ValueError('one\\ntwo')")
    assert "bad.py cannot be imported: ValueError: one two" in complaint("run", name, cwd=here)


def test_spider_with_a_failing_import(here):
    name = write(here, "bad.py", "import nowhere_at_all\n")
    assert "nowhere_at_all" in complaint("run", name, cwd=here)


def test_no_such_file_module_or_class(here):
    assert "file not found: none.py" in complaint("run", "none.py", cwd=here)
    assert "module not found: 'none'" in complaint("run", "none.spiders:One", cwd=here)
    assert "`skitter list` lists the spiders" in complaint("run", "first_spider", cwd=here)
    assert "has no spider 'Second'; spiders there: First" in complaint("run", "first.py:Second", cwd=here)


def test_a_folder_in_place_of_a_spider(here):
    (here / "my-spiders").mkdir()
    for folder in (".", "my-spiders"):
        line = complaint("run", folder, cwd=here)
        assert f"{folder} is a folder" in line
        assert "`skitter list`" in line
    assert "neither a Python file" in complaint("run", "my-notes.txt", cwd=here)


def test_a_module_that_imports_a_missing_module(here):
    write(here, "importing.py", "import nowhere_at_all\n")
    line = complaint("run", "importing", cwd=here)
    assert "module importing cannot be imported" in line
    assert "nowhere_at_all" in line


def test_a_file_of_a_project_that_is_run_from_another_folder(here):
    package = here / "stall" / "stall"
    package.mkdir(parents=True)
    for name, text in (
        ("__init__.py", ""),
        ("settings.py", "SLOW = 1\n"),
        ("spider.py", f"from stall.settings import SLOW\n{SPIDER}"),
    ):
        (package / name).write_text(text)
    line = complaint("run", "stall/stall/spider.py", cwd=here)
    assert line.endswith(
        f"; name the module instead of the file: stall.spider, in the folder {here / 'stall'}"
    )


def test_several_spiders_of_which_none_is_named(here):
    name = write(here, "two.py", SPIDER + "class Second(First): pass\n")
    assert "contains several spiders; choose one of them, such as two.py:First" in complaint(
        "run", name, cwd=here
    )


def test_a_class_that_is_not_a_spider_and_a_file_without_spiders(here):
    name = write(here, "other.py", "class Thing: pass\n")
    assert "is not a spider" in complaint("run", f"{name}:Thing", cwd=here)
    assert "contains no spider" in complaint("run", name, cwd=here)


def test_arguments_that_the_spider_does_not_take(here):
    name = write(here, "strict.py", SPIDER + "    def __init__(self): super().__init__()\n")
    assert "cannot create spider" in complaint("run", name, "-a", "colour=red", cwd=here)
    assert "-a 'colour' has no value" in complaint("run", "first.py", "-a", "colour", cwd=here)
    assert "-s 'delay' has no value" in complaint("run", "first.py", "-s", "delay", "3", cwd=here)
    name = write(here, "named.py", SPIDER + "    def __init__(self, color): super().__init__()\n")
    assert complaint("run", name, "-a", "colour=red", cwd=here).endswith("; its arguments are -a color=...")


def test_unknown_setting_and_values_that_it_cannot_have(here):
    assert "'concurency_per_slot'; did you mean concurrency_per_slot?" in complaint(
        "run", "first.py", "-s", "concurency_per_slot=2", cwd=here
    )
    assert "setting concurrency_per_slot cannot be 'two'" in complaint(
        "run", "first.py", "-s", "concurrency_per_slot=two", cwd=here
    )
    assert "setting delay is -1" in complaint("run", "first.py", "--delay", "-1", cwd=here)
    assert "setting max_pages is 0" in complaint("crawl", URL, "--limit", 0, cwd=here)
    assert "-s 'robots' has no value" in complaint("run", "first.py", "-s", "robots", cwd=here)


def test_an_unknown_value_of_a_setting_is_answered_with_its_choices(here):
    for name, choices in (("changes", "all, changed, new"), ("scope", "any, host, domain, prefix")):
        line = complaint("run", "first.py", "-s", f"{name}=sometimes", cwd=here)
        assert line.endswith(f"; give one of {choices}")
    assert "'all', 'changed', 'new'" in complaint("run", "first.py", "--changes", "sometimes", cwd=here)


@pytest.mark.parametrize(
    ("setting", "remedy"),
    [
        ("robots=maybe", "yes or no"), ("concurrency=two", "an integer"), ("delay=1s", "a number or none"),
        ("max_pages=many", "an integer or none"),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_answered_with_the_values_that_fit(setting, remedy, here):
    assert complaint("run", "first.py", "-s", setting, cwd=here).endswith(f"; give {remedy}")


def test_a_file_that_a_setting_names_is_not_found(here):
    assert complaint("run", "first.py", "-s", "cookie_file=none.txt", cwd=here).endswith(
        "file not found: 'none.txt'; check the path in cookie_file=PATH"
    )


def test_unknown_setting_of_the_spider_itself(here):
    name = write(here, "wrong.py", SPIDER + "    custom_settings = {'dealy': 1}\n")
    assert "'dealy'; did you mean delay?" in complaint("run", name, cwd=here)


def test_bad_regular_expression(here):
    assert "regular expression '[a'" in complaint("crawl", URL, "--allow", "[a", cwd=here)
    assert "regular expression '('" in complaint("crawl", URL, "--deny", "(", cwd=here)


def test_bad_limit_rule_and_rate(here):
    assert "rate" in complaint("crawl", URL, "-s", 'rates=["often"]', cwd=here)
    assert "no field" in complaint(
        "crawl", URL, "-s", 'limit_rules=[{"domain_glob": "a", "speed": 1}]', cwd=here
    )


def test_unwritable_output(here):
    (here / "folder.jsonl").mkdir()
    assert "folder.jsonl" in complaint("crawl", URL, "-o", "folder.jsonl", cwd=here)
    assert "nowhere" in complaint("crawl", URL, "-o", "nowhere/items.jsonl", cwd=here)


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="there is no folder in which nobody may write")
def test_output_in_a_folder_that_may_not_be_written(here):
    assert "/proc/items.jsonl" in complaint("crawl", URL, "-o", "/proc/items.jsonl", cwd=here)


def test_output_of_unknown_kind(here):
    line = complaint("crawl", URL, "-o", "items.docx", cwd=here)
    assert "items.docx" in line
    assert "jsonl" in line


def test_output_that_holds_something_else_is_not_replaced(here):
    (here / "items.jsonl").write_text("precious\n")
    line = complaint("crawl", URL, "-o", "items.jsonl", cwd=here)
    assert "holds something that job '127.0.0.1-9' did not write" in line
    assert (here / "items.jsonl").read_text() == "precious\n"


def test_unwritable_summary(here):
    assert "nowhere/s.json" in complaint("crawl", URL, "--summary", "nowhere/s.json", cwd=here)


def test_frontier_file_that_is_not_a_database(here):
    (here / "junk.db").write_text("this is a letter to my aunt, and longer than a header" * 100)
    assert "junk.db" in complaint("crawl", URL, "--frontier", "sqlite:junk.db", cwd=here)


def test_a_file_that_is_not_a_frontier_is_not_deleted_by_fresh(here):
    with closing(sqlite3.connect(here / "mine.db")) as file, file:
        file.execute("CREATE TABLE thesis (chapter)")
    before = (here / "mine.db").read_bytes()
    for more in ((), ("--fresh",)):
        line = complaint("crawl", URL, "--frontier", "sqlite:mine.db", *more, cwd=here)
        assert "mine.db" in line
        assert "frontier of skitter" in line
    assert (here / "mine.db").read_bytes() == before


def test_frontier_file_of_a_newer_version(here, serve):
    server = serve(GeneratedSite(pages=2, links_per_page=12))
    skitter("crawl", server.url, "--job", "j", "-o", "items.jsonl", cwd=here)
    with closing(sqlite3.connect(here / ".skitter" / "j" / "frontier.db")) as file, file:
        file.execute("PRAGMA user_version = 99")
    line = complaint("crawl", server.url, "--job", "j", "-o", "items.jsonl", cwd=here)
    assert "has frontier format 99" in line
    assert "--fresh" in line
    assert "has frontier format 99" in complaint("status", "j", cwd=here)


def test_unknown_frontier(here):
    line = complaint("crawl", URL, "--frontier", "oracle:scott", cwd=here)
    assert "unknown frontier: 'oracle:scott'" in line
    for kind in ("memory", "nsq", "redis", "redis+cluster", "sqlite"):
        assert f"{kind}, " in line or f", {kind}" in line


def test_a_file_in_place_of_the_url_of_a_frontier(here):
    assert complaint("crawl", URL, "--frontier", "pages.db", cwd=here).endswith("write sqlite:pages.db")


def test_the_address_of_a_server_in_place_of_the_url_of_a_frontier(here):
    line = complaint("crawl", URL, "--frontier", "cache:6379", cwd=here)
    assert line.endswith("unknown frontier: 'cache:6379'; for a Redis server, write redis://cache:6379")


def test_a_run_that_could_not_begin_does_not_take_the_name_of_the_job(here, serve):
    server = serve(GeneratedSite(pages=2, links_per_page=12))
    complaint("crawl", server.url, "--job", "j", "--frontier", "oracle:scott", cwd=here)
    complaint("crawl", server.url, "--job", "j", "-o", "nowhere/x.jsonl", cwd=here)
    assert skitter("crawl", server.url, "--job", "j", cwd=here).returncode == 0


def test_fresh_forgets_nothing_if_the_run_cannot_begin(here, serve):
    server = serve(GeneratedSite(pages=3, links_per_page=12))
    skitter("crawl", server.url, "--job", "j", "-o", "items.jsonl", cwd=here)
    for wrong in (
        ("-o", "nowhere/x.jsonl"),
        ("-s", "dealy=1"),
        ("--deny", "("),
        ("--frontier", "oracle:scott"),
    ):
        complaint("crawl", server.url, "--job", "j", "--fresh", *wrong, cwd=here)
    status = json.loads(skitter("status", "j", "--json", cwd=here).stdout)
    assert (status["state"], status["counts"]["done"]) == ("finished", 3)


@pytest.mark.parametrize("name", ["", "../up", "a/b", "-x", "a b", "x" * 101])
def test_a_name_that_no_job_can_have(name, here):
    assert "invalid job name" in complaint("crawl", URL, f"--job={name}", cwd=here)


def test_a_job_that_was_never_started(here):
    for command in (
        ("status",),
        ("pause",),
        ("resume",),
        ("stop",),
        ("failures", "list"),
        ("failures", "retry"),
    ):
        line = complaint(*command, "none", cwd=here)
        assert "there is no job 'none'" in line
        assert "or name the server of the job with --frontier" in line


def test_a_note_that_cannot_be_read(here):
    (here / ".skitter" / "j").mkdir(parents=True)
    (here / ".skitter" / "j" / "job.json").write_text("{")
    assert "job.json cannot be read" in complaint("status", "j", cwd=here)


@pytest.mark.parametrize("frontier", ["sqlite:", "memory:"])
def test_a_job_that_is_being_run_is_neither_run_nor_started_again_by_another_process(frontier, here, serve):
    gated = GatedSite(GeneratedSite(pages=100, links_per_page=12), answers=5)
    server = serve(gated)
    command = ("crawl", server.url, "--delay", 0, "--job", "j", "-o", "items.jsonl", "--frontier", frontier)
    with Running(*command, cwd=here) as running:
        assert gated.reached.wait(60)
        for more in ((), ("--fresh",)):
            line = complaint(*command, *more, cwd=here)
            assert f"the job is being run by process {running.process.pid}" in line
        assert json.loads(skitter("status", "j", "--json", cwd=here).stdout)["live"]
        gated.go_on.set()
        code, _, stderr = running.end()
    assert code == 0, stderr
    assert len((here / "items.jsonl").read_text().splitlines()) == 100


def test_a_port_in_use(here):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert "cannot listen on 127.0.0.1" in complaint("demo", "--port", taken.getsockname()[1], cwd=here)


def test_unknown_commands_and_options_and_what_is_missing(here):
    for command in (
        ("run",), ("crawl", URL, "--dept", 1), ("crawl", URL, "--scope", "world"),
        ("crawl", URL, "--workers", 0), ("crawl", URL, "--depth", "deep"), ("failures",), ("failures", "list"),
        ("crawl", URL, "--log-level", "loud"), ("demo", "--port", 99_999),
    ):  # fmt: skip
        assert "; see `skitter" in complaint(*command, cwd=here)
    assert "'--workers'" in complaint("crawl", URL, "--worker", 2, cwd=here)


def test_the_command_of_an_option_is_named(here):
    assert complaint("run", "first.py", "-o", cwd=here).endswith("; see `skitter run --help`")
    assert complaint("failures", "list", "j", "--kind", cwd=here).endswith(
        "; see `skitter failures list --help`"
    )
    assert complaint("-o", "x.jsonl", "run", "first.py", cwd=here).endswith(
        "; write options after the command: `skitter run ... -o ...`"
    )


def test_the_server_of_a_redis_output_that_is_not_running(here, free_port):
    line = complaint("run", "first.py", "-o", f"redis://127.0.0.1:{free_port}/0/items", cwd=here)
    assert f"127.0.0.1:{free_port}" in line
    assert "Connection refused; start the server, or correct its address" in line


def test_a_job_without_workers_is_not_profiled(here, serve):
    server = serve(GeneratedSite(pages=1))
    assert skitter("crawl", server.url, "--job", "j", cwd=here).returncode == 0
    assert "no worker of job 'j' runs on this machine; profile a job while it runs" in complaint(
        "profile", "j", cwd=here
    )


def test_a_package_that_is_not_installed_is_named_with_its_extra_and_the_job_begins_later(here, serve):
    server = serve(GeneratedSite(pages=2, links_per_page=12))
    (here / "absent").mkdir()
    write(
        here / "absent",
        "pyarrow.py",
        "raise ModuleNotFoundError(\"No module named 'pyarrow'\", name='pyarrow')",
    )
    path = os.pathsep.join([str(here / "absent"), os.environ.get("PYTHONPATH", "")])
    command = ("crawl", server.url, "--job", "j", "-o", "items.parquet")
    refused = skitter(*command, cwd=here, environment={"PYTHONPATH": path})
    assert refused.returncode == 2
    (line,) = refused.stderr.splitlines()
    assert "the package pyarrow is missing" in line
    assert line.endswith('in the clone of skitter: pip install ".[parquet]"')
    assert skitter(*command, cwd=here).returncode == 0
    assert (here / "items.parquet").stat().st_size


def test_a_working_folder_that_may_not_be_written_is_reported(here):
    (here / ".skitter").write_text("a file where the jobs should be")
    line = complaint("crawl", URL, cwd=here)
    assert ".skitter" in line


def test_a_command_that_is_mistyped_is_answered_with_the_one_that_was_meant(here):
    assert complaint("crwl", URL, cwd=here).endswith("'crwl'; did you mean crawl?")


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (("runspider", "first.py"), "skitter run FILE.py"), (("startproject", "shop"), "skitter new NAME"),
        (("genspider", "shop", "shop.test"), "skitter new NAME"), (("version",), "skitter --version"),
        (("view", URL), "skitter fetch URL"), (("run", "first.py", "-O", "x.json"), "-o FILE --fresh"),
        (("run", "first.py", "-L", "DEBUG"), "--log-level"), (("crawl", URL, "--nolog"), "--quiet"),
        (("fetch", URL, "--headers"), "write --verbose"),
        (("parse", URL, "--spider", "first.py", "-d", "2"), "skitter run FILE.py --limit N"),
        (("parse", URL, "--spider", "first.py", "--pipelines"), "calls no hook"),
    ],
    ids=str,
)  # fmt: skip
def test_commands_and_options_of_scrapy_are_translated(here, words, remedy):
    line = complaint(*words, cwd=here)
    assert remedy in line
    assert "Did you mean" not in line


def test_a_job_name_that_is_mistyped_is_answered_with_the_one_that_was_meant(here, serve):
    server = serve(GeneratedSite(pages=1))
    assert skitter("crawl", server.url, "--job", "books", cwd=here).returncode == 0
    assert complaint("status", "boks", cwd=here).endswith("; did you mean books?")


def test_a_site_function_in_place_of_a_factory_is_named(here):
    write(here, "own_site.py", "def site(visit):\n    return None\n")
    words = [sys.executable, "-m", "skitter.testing", "own_site:site"]
    result = subprocess.run(words, cwd=here, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert "def make(): return site" in line
