"""Bad input: every mistake of a user causes one line with a remedy and exit 2, never a traceback."""

import json
import os
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from cli_command import Running, skitter, usage_error
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
def workdir(tmp_path):
    (tmp_path / "first.py").write_text(SPIDER)
    return tmp_path


def write(workdir, name, text):
    (workdir / name).write_text(text)
    return name


@pytest.mark.parametrize(
    "url", ["example.com", "htp://example.com/", "http://exa mple/", "", "file:///etc/passwd", "//x"]
)
def test_wrong_url(url, workdir):
    assert "not an absolute http(s) URL" in usage_error("crawl", url, cwd=workdir)
    assert not (workdir / ".skitter").exists()


def test_a_host_without_its_scheme_is_answered_with_the_url_that_was_meant(workdir):
    assert usage_error("crawl", "example.com/a", cwd=workdir).endswith("; write https://example.com/a")


@pytest.mark.parametrize("url", ["/books/1", "./page.html", "../up", "?page=2"])
def test_a_relative_url_is_not_taken_for_a_host(workdir, url):
    assert usage_error("crawl", url, cwd=workdir).endswith("; write it like https://example.com/")


def test_a_spider_instead_of_a_url_is_answered_with_the_command_that_runs_it(workdir):
    assert usage_error("crawl", "first.py", cwd=workdir).endswith(
        "; `skitter run first.py` runs a spider or a recipe"
    )
    for name in ("first", "first-css"):
        expected = f"; write https://{name}/, or run a spider with `skitter run FILE.py`"
        assert usage_error("crawl", name, cwd=workdir).endswith(expected)
    assert usage_error("crawl", "localhost", cwd=workdir).endswith("; write http://localhost/")


@pytest.mark.parametrize("host", ["127.0.0.1:9", "localhost:9", "[::1]:9"])
def test_a_local_host_without_its_scheme_is_answered_with_a_url_without_tls(host, workdir):
    assert usage_error("crawl", host, cwd=workdir).endswith(f"; write http://{host}/")


@pytest.mark.parametrize("group", ["failures", "recipe", "task"])
def test_a_group_without_a_command_is_answered_with_its_commands(group, workdir):
    error = usage_error(group, cwd=workdir)
    assert error.startswith("skitter: Missing command; its commands are ")
    assert error.endswith(f"; see `skitter {group} --help`")


def test_wrong_url_to_fetch(workdir):
    for command in ("fetch", "shell"):
        line = usage_error(command, "127.0.0.1:9/a", cwd=workdir)
        assert line.endswith("not an absolute http(s) URL: '127.0.0.1:9/a'; write http://127.0.0.1:9/a")


def test_spider_with_a_syntax_error(workdir):
    name = write(workdir, "bad.py", "from skitter import Spider\nclass A(Spider)\n    pass\n")
    assert "bad.py line 2: expected ':'" in usage_error("run", name, cwd=workdir)


def test_spider_whose_import_fails_on_several_lines(workdir):
    name = write(workdir, "bad.py", "raise ValueError('one\\ntwo')")
    assert "bad.py cannot be imported: ValueError: one two" in usage_error("run", name, cwd=workdir)


@pytest.mark.parametrize("code", ["0", "3", "'the site is closed'"])
def test_spider_that_ends_the_process_when_it_is_imported(workdir, code):
    name = write(workdir, "bad.py", f"import sys\nimport skitter\nsys.exit({code})\n")
    for words in (("run", name), ("parse", "http://127.0.0.1:1/", "--spider", name), ("check", name)):
        message = usage_error(*words, cwd=workdir)
        assert f"bad.py ends the process when it is imported: SystemExit({code})" in message
        assert 'if __name__ == "__main__":' in message
    listed = skitter("list", cwd=workdir)
    assert "first.py:First" in listed.stdout
    assert "bad.py ends the process" in listed.stderr


def test_spider_with_a_null_byte(workdir):
    name = write(workdir, "bad.py", "text = '\0'\n")
    message = usage_error("run", name, cwd=workdir)
    assert "bad.py: source code string cannot contain null bytes" in message
    assert "None" not in message


def test_relative_import_in_a_folder_without_init_file(workdir):
    (workdir / "shop").mkdir()
    name = write(workdir, "shop/books.py", "from skitter import Spider\nfrom .urls import START\n")
    assert "name the module with its package instead of the file, such as shop.books" in usage_error(
        "run", name, cwd=workdir
    )


def test_spider_with_a_failing_import(workdir):
    name = write(workdir, "bad.py", "import nowhere_at_all\n")
    assert "nowhere_at_all" in usage_error("run", name, cwd=workdir)


def test_no_such_file_module_or_class(workdir):
    assert "file not found: none.py" in usage_error("run", "none.py", cwd=workdir)
    assert "module not found: 'none'" in usage_error("run", "none.spiders:One", cwd=workdir)
    assert "`skitter list` lists the spiders" in usage_error("run", "first_spider", cwd=workdir)
    assert "has no spider 'Second'; spiders there: First" in usage_error(
        "run", "first.py:Second", cwd=workdir
    )


def test_a_folder_in_place_of_a_spider(workdir):
    (workdir / "my-spiders").mkdir()
    for folder in (".", "my-spiders"):
        line = usage_error("run", folder, cwd=workdir)
        assert f"{folder} is a folder" in line
        assert "`skitter list`" in line
    assert "neither a Python file" in usage_error("run", "my-notes.txt", cwd=workdir)


def test_a_module_that_imports_a_missing_module(workdir):
    write(workdir, "importing.py", "import nowhere_at_all\n")
    line = usage_error("run", "importing", cwd=workdir)
    assert "module importing cannot be imported" in line
    assert "nowhere_at_all" in line


def test_a_file_of_a_project_that_is_run_from_another_folder(workdir):
    package = workdir / "stall" / "stall"
    package.mkdir(parents=True)
    for name, text in (
        ("__init__.py", ""),
        ("settings.py", "SLOW = 1\n"),
        ("spider.py", f"from stall.settings import SLOW\n{SPIDER}"),
    ):
        (package / name).write_text(text)
    line = usage_error("run", "stall/stall/spider.py", cwd=workdir)
    assert line.endswith(
        f"; name the module instead of the file: stall.spider, in the folder {workdir / 'stall'}"
    )


def test_several_spiders_of_which_none_is_named(workdir):
    name = write(workdir, "two.py", SPIDER + "class Second(First): pass\n")
    assert "contains several spiders; choose one of them, such as two.py:First" in usage_error(
        "run", name, cwd=workdir
    )


def test_a_class_that_is_not_a_spider_and_a_file_without_spiders(workdir):
    name = write(workdir, "other.py", "class Thing: pass\n")
    assert "is not a spider" in usage_error("run", f"{name}:Thing", cwd=workdir)
    assert "contains no spider" in usage_error("run", name, cwd=workdir)


def test_arguments_that_the_spider_does_not_take(workdir):
    name = write(workdir, "strict.py", SPIDER + "    def __init__(self): super().__init__()\n")
    assert "cannot create spider" in usage_error("run", name, "-a", "colour=red", cwd=workdir)
    assert "-a 'colour' has no value" in usage_error("run", "first.py", "-a", "colour", cwd=workdir)
    assert "-s 'delay' has no value" in usage_error("run", "first.py", "-s", "delay", "3", cwd=workdir)
    name = write(workdir, "named.py", SPIDER + "    def __init__(self, color): super().__init__()\n")
    assert usage_error("run", name, "-a", "colour=red", cwd=workdir).endswith(
        "; its arguments are -a color=..."
    )


def test_unknown_setting_and_values_that_it_cannot_have(workdir):
    assert "'concurency_per_slot'; did you mean concurrency_per_slot?" in usage_error(
        "run", "first.py", "-s", "concurency_per_slot=2", cwd=workdir
    )
    assert "setting concurrency_per_slot cannot be 'two'" in usage_error(
        "run", "first.py", "-s", "concurrency_per_slot=two", cwd=workdir
    )
    assert "setting delay is -1" in usage_error("run", "first.py", "--delay", "-1", cwd=workdir)
    assert "setting max_pages is 0" in usage_error("crawl", URL, "--limit", 0, cwd=workdir)
    assert "-s 'robots' has no value" in usage_error("run", "first.py", "-s", "robots", cwd=workdir)


def test_an_unknown_value_of_a_setting_is_answered_with_its_choices(workdir):
    for name, choices in (("changes", "all, changed, new"), ("scope", "any, host, domain, prefix")):
        line = usage_error("run", "first.py", "-s", f"{name}=sometimes", cwd=workdir)
        assert line.endswith(f"; give one of {choices}")
    assert "'all', 'changed', 'new'" in usage_error("run", "first.py", "--changes", "sometimes", cwd=workdir)


@pytest.mark.parametrize(
    ("setting", "remedy"),
    [
        ("robots=maybe", "yes or no"), ("concurrency=two", "an integer"), ("delay=1s", "a number or none"),
        ("max_pages=many", "an integer or none"),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_answered_with_the_values_that_fit(setting, remedy, workdir):
    assert usage_error("run", "first.py", "-s", setting, cwd=workdir).endswith(f"; give {remedy}")


def test_a_file_that_a_setting_names_is_not_found(workdir):
    assert usage_error("run", "first.py", "-s", "cookie_file=none.txt", cwd=workdir).endswith(
        "file not found: 'none.txt'; check the path in cookie_file=PATH"
    )


def test_unknown_setting_of_the_spider_itself(workdir):
    name = write(workdir, "wrong.py", SPIDER + "    custom_settings = {'dealy': 1}\n")
    assert "'dealy'; did you mean delay?" in usage_error("run", name, cwd=workdir)


def test_bad_regular_expression(workdir):
    assert "regular expression '[a'" in usage_error("crawl", URL, "--allow", "[a", cwd=workdir)
    assert "regular expression '('" in usage_error("crawl", URL, "--deny", "(", cwd=workdir)


def test_bad_limit_rule_and_rate(workdir):
    assert "rate" in usage_error("crawl", URL, "-s", 'rates=["often"]', cwd=workdir)
    assert "no field" in usage_error(
        "crawl", URL, "-s", 'limit_rules=[{"domain_glob": "a", "speed": 1}]', cwd=workdir
    )


def test_unwritable_output(workdir):
    (workdir / "folder.jsonl").mkdir()
    assert "folder.jsonl" in usage_error("crawl", URL, "-o", "folder.jsonl", cwd=workdir)
    assert "nowhere" in usage_error("crawl", URL, "-o", "nowhere/items.jsonl", cwd=workdir)


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="there is no folder in which nobody may write")
def test_output_in_a_folder_that_may_not_be_written(workdir):
    assert "/proc/items.jsonl" in usage_error("crawl", URL, "-o", "/proc/items.jsonl", cwd=workdir)


def test_output_of_unknown_kind(workdir):
    line = usage_error("crawl", URL, "-o", "items.docx", cwd=workdir)
    assert "items.docx" in line
    assert "jsonl" in line


def test_output_that_holds_something_else_is_not_replaced(workdir):
    (workdir / "items.jsonl").write_text("precious\n")
    line = usage_error("crawl", URL, "-o", "items.jsonl", cwd=workdir)
    assert "holds something that job '127.0.0.1-9' did not write" in line
    assert (workdir / "items.jsonl").read_text() == "precious\n"


def test_unwritable_summary(workdir):
    assert "nowhere/s.json" in usage_error("crawl", URL, "--summary", "nowhere/s.json", cwd=workdir)


def test_frontier_file_that_is_not_a_database(workdir):
    (workdir / "junk.db").write_text("this is a letter to my aunt, and longer than a header" * 100)
    assert "junk.db" in usage_error("crawl", URL, "--frontier", "sqlite:junk.db", cwd=workdir)


def test_a_file_that_is_not_a_frontier_is_not_deleted_by_fresh(workdir):
    with closing(sqlite3.connect(workdir / "mine.db")) as file, file:
        file.execute("CREATE TABLE thesis (chapter)")
    before = (workdir / "mine.db").read_bytes()
    for more in ((), ("--fresh",)):
        line = usage_error("crawl", URL, "--frontier", "sqlite:mine.db", *more, cwd=workdir)
        assert "mine.db" in line
        assert "frontier of skitter" in line
    assert (workdir / "mine.db").read_bytes() == before


def test_frontier_file_of_a_newer_version(workdir, serve):
    server = serve(GeneratedSite(pages=2, links_per_page=12))
    skitter("crawl", server.url, "--job", "j", "-o", "items.jsonl", cwd=workdir)
    with closing(sqlite3.connect(workdir / ".skitter" / "j" / "frontier.db")) as file, file:
        file.execute("PRAGMA user_version = 99")
    line = usage_error("crawl", server.url, "--job", "j", "-o", "items.jsonl", cwd=workdir)
    assert "has frontier format 99" in line
    assert "--fresh" in line
    assert "has frontier format 99" in usage_error("status", "j", cwd=workdir)


def test_unknown_frontier(workdir):
    line = usage_error("crawl", URL, "--frontier", "oracle:scott", cwd=workdir)
    assert "unknown frontier: 'oracle:scott'" in line
    for kind in ("memory", "nsq", "redis", "redis+cluster", "sqlite"):
        assert f"{kind}, " in line or f", {kind}" in line


def test_a_file_in_place_of_the_url_of_a_frontier(workdir):
    assert usage_error("crawl", URL, "--frontier", "pages.db", cwd=workdir).endswith("write sqlite:pages.db")


def test_the_address_of_a_server_in_place_of_the_url_of_a_frontier(workdir):
    line = usage_error("crawl", URL, "--frontier", "cache:6379", cwd=workdir)
    assert line.endswith("unknown frontier: 'cache:6379'; for a Redis server, write redis://cache:6379")


def test_a_run_that_could_not_begin_does_not_take_the_name_of_the_job(workdir, serve):
    server = serve(GeneratedSite(pages=2, links_per_page=12))
    usage_error("crawl", server.url, "--job", "j", "--frontier", "oracle:scott", cwd=workdir)
    usage_error("crawl", server.url, "--job", "j", "-o", "nowhere/x.jsonl", cwd=workdir)
    assert skitter("crawl", server.url, "--job", "j", cwd=workdir).returncode == 0


def test_fresh_forgets_nothing_if_the_run_cannot_begin(workdir, serve):
    server = serve(GeneratedSite(pages=3, links_per_page=12))
    skitter("crawl", server.url, "--job", "j", "-o", "items.jsonl", cwd=workdir)
    for wrong in (
        ("-o", "nowhere/x.jsonl"),
        ("-s", "dealy=1"),
        ("--deny", "("),
        ("--frontier", "oracle:scott"),
    ):
        usage_error("crawl", server.url, "--job", "j", "--fresh", *wrong, cwd=workdir)
    status = json.loads(skitter("status", "j", "--json", cwd=workdir).stdout)
    assert (status["state"], status["counts"]["done"]) == ("finished", 3)


@pytest.mark.parametrize("name", ["", "../up", "a/b", "-x", "a b", "x" * 101])
def test_a_name_that_no_job_can_have(name, workdir):
    error = usage_error("crawl", URL, f"--job={name}", cwd=workdir)
    assert "invalid job name" in error
    assert "at most 100" in error


def test_a_job_that_was_never_started(workdir):
    for command in (
        ("status",),
        ("pause",),
        ("resume",),
        ("stop",),
        ("failures", "list"),
        ("failures", "retry"),
    ):
        line = usage_error(*command, "none", cwd=workdir)
        assert "there is no job 'none'" in line
        assert "or name the server of the job with --frontier" in line


def test_a_note_that_cannot_be_read(workdir):
    (workdir / ".skitter" / "j").mkdir(parents=True)
    (workdir / ".skitter" / "j" / "job.json").write_text("{")
    assert "job.json cannot be read" in usage_error("status", "j", cwd=workdir)


@pytest.mark.parametrize("frontier", ["sqlite:", "memory:"])
def test_a_job_that_is_being_run_is_neither_run_nor_started_again_by_another_process(
    frontier, workdir, serve
):
    gated = GatedSite(GeneratedSite(pages=100, links_per_page=12), answers=5)
    server = serve(gated)
    command = ("crawl", server.url, "--delay", 0, "--job", "j", "-o", "items.jsonl", "--frontier", frontier)
    with Running(*command, cwd=workdir) as running:
        assert gated.reached.wait(60)
        for more in ((), ("--fresh",)):
            line = usage_error(*command, *more, cwd=workdir)
            assert f"the job is being run by process {running.process.pid}" in line
        assert json.loads(skitter("status", "j", "--json", cwd=workdir).stdout)["live"]
        gated.released.set()
        code, _, stderr = running.end()
    assert code == 0, stderr
    assert len((workdir / "items.jsonl").read_text().splitlines()) == 100


def test_a_port_in_use(workdir):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert "cannot listen on 127.0.0.1" in usage_error(
            "demo", "--port", taken.getsockname()[1], cwd=workdir
        )


def test_unknown_commands_and_options_and_what_is_missing(workdir):
    for command in (
        ("run",), ("crawl", URL, "--dept", 1), ("crawl", URL, "--scope", "world"),
        ("crawl", URL, "--workers", 0), ("crawl", URL, "--depth", "deep"), ("failures",), ("failures", "list"),
        ("crawl", URL, "--log-level", "loud"), ("demo", "--port", 99_999),
    ):  # fmt: skip
        assert "; see `skitter" in usage_error(*command, cwd=workdir)
    assert "'--workers'" in usage_error("crawl", URL, "--worker", 2, cwd=workdir)


def test_an_option_that_is_named_like_a_setting_is_answered_with_the_setting(workdir):
    for words in (("run", "first.py"), ("fetch", URL)):
        line = usage_error(*words, "--max-pages", 3, cwd=workdir)
        assert line.endswith("No such option '--max-pages'; it is a setting: write -s max_pages=VALUE")
    assert "; see `skitter status --help`" in usage_error("status", "x", "--max-pages", 3, cwd=workdir)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_standard_output_on_a_full_disk_is_one_line(workdir):
    for words in (("--help",), ("run", "--help"), ("list",)):
        with Path("/dev/full").open("w") as full:
            result = subprocess.run(
                [sys.executable, "-m", "skitter", *words], cwd=workdir, stdout=full, stderr=subprocess.PIPE,
                text=True, timeout=60, check=False,
            )  # fmt: skip
        (line,) = result.stderr.splitlines()
        assert line.startswith("skitter: cannot write standard output: No space left on device; ")
        assert result.returncode == 1


@pytest.mark.skipif(sys.platform != "linux", reason="file names are Unicode on other systems")
def test_a_file_name_that_is_not_unicode_is_refused(workdir):
    name = os.fsdecode(b"caf\xe9.py")
    (workdir / name).write_text(SPIDER)
    line = usage_error("run", name, cwd=workdir)
    assert "a file name that is not valid Unicode" in line
    assert r"caf\udce9.py" in line


def test_the_command_of_an_option_is_named(workdir):
    assert usage_error("run", "first.py", "-o", cwd=workdir).endswith("; see `skitter run --help`")
    assert usage_error("failures", "list", "j", "--kind", cwd=workdir).endswith(
        "; see `skitter failures list --help`"
    )
    assert usage_error("-o", "x.jsonl", "run", "first.py", cwd=workdir).endswith(
        "; write options after the command: `skitter run ... -o ...`"
    )


def test_the_server_of_a_redis_output_that_is_not_running(workdir, free_port):
    line = usage_error("run", "first.py", "-o", f"redis://127.0.0.1:{free_port}/0/items", cwd=workdir)
    assert f"127.0.0.1:{free_port}" in line
    assert "Connection refused; start the server, or correct its address" in line


def test_a_job_without_workers_is_not_profiled(workdir, serve):
    server = serve(GeneratedSite(pages=1))
    assert skitter("crawl", server.url, "--job", "j", cwd=workdir).returncode == 0
    assert "no worker of job 'j' runs on this machine; profile a job while it runs" in usage_error(
        "profile", "j", cwd=workdir
    )


def test_a_package_that_is_not_installed_is_named_with_its_extra_and_the_job_begins_later(workdir, serve):
    server = serve(GeneratedSite(pages=2, links_per_page=12))
    (workdir / "absent").mkdir()
    write(
        workdir / "absent",
        "pyarrow.py",
        "raise ModuleNotFoundError(\"No module named 'pyarrow'\", name='pyarrow')",
    )
    path = os.pathsep.join([str(workdir / "absent"), os.environ.get("PYTHONPATH", "")])
    command = ("crawl", server.url, "--job", "j", "-o", "items.parquet")
    refused = skitter(*command, cwd=workdir, environment={"PYTHONPATH": path})
    assert refused.returncode == 2
    (line,) = refused.stderr.splitlines()
    assert "the package pyarrow is missing" in line
    assert line.endswith('in the clone of skitter: pip install ".[parquet]"')
    assert skitter(*command, cwd=workdir).returncode == 0
    assert (workdir / "items.parquet").stat().st_size


def test_a_working_folder_that_may_not_be_written_is_reported(workdir):
    (workdir / ".skitter").write_text("a file where the jobs should be")
    line = usage_error("crawl", URL, cwd=workdir)
    assert ".skitter" in line


def test_a_command_that_is_mistyped_is_answered_with_the_one_that_was_meant(workdir):
    assert usage_error("crwl", URL, cwd=workdir).endswith("'crwl'; did you mean crawl?")


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
def test_commands_and_options_of_scrapy_are_translated(workdir, words, remedy):
    line = usage_error(*words, cwd=workdir)
    assert remedy in line
    assert "Did you mean" not in line


def test_a_job_name_that_is_mistyped_is_answered_with_the_one_that_was_meant(workdir, serve):
    server = serve(GeneratedSite(pages=1))
    assert skitter("crawl", server.url, "--job", "books", cwd=workdir).returncode == 0
    assert usage_error("status", "boks", cwd=workdir).endswith("; did you mean books?")


def test_a_site_function_in_place_of_a_factory_is_named(workdir):
    write(workdir, "own_site.py", "def site(visit):\n    return None\n")
    words = [sys.executable, "-m", "skitter.testing", "own_site:site"]
    result = subprocess.run(words, cwd=workdir, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert "def make(): return site" in line
