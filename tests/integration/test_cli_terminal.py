"""Terminal output: tables within the width of the terminal, and completion of names."""

import io
import re

import pytest
from rich.console import Console

from cli_command import SHOP, run_in_terminal, skitter
from skitter.cli.console import aligned, fitted
from skitter.cli.live_view import live_table
from skitter.cli.tables import status_lines, top_rows
from skitter.frontier.records import FrontierStatus, JobState, SlotStatus
from skitter.frontier.workers import WorkerReport, WorkerStatus
from skitter.run.job_access import JobStatus
from skitter.testing import Answer

ROWS = [["JOB", "PAGES", "HOSTS", "OLD"], ["a-long-name", "1,234,567", "12", "3.0 s"]]


@pytest.mark.parametrize("width, columns", [(80, 4), (36, 4), (35, 3), (28, 2), (3, 2)])
def test_columns_that_do_not_fit_are_left_out_whole(width, columns):
    rows = fitted(ROWS, width, ["OLD", "HOSTS"])
    assert len(rows[0]) == columns
    if columns > 2:
        assert max(map(len, aligned(rows).splitlines())) <= width


def test_the_list_of_commands_fits_80_columns_without_cutting_a_sentence(tmp_path):
    shown = skitter("--help", cwd=tmp_path).stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert "..." not in shown.partition("Commands:")[2]


@pytest.mark.parametrize("width", [60, 80, 100, 120])
@pytest.mark.parametrize("name", ["a", "a-name-of-22-characters"])
def test_no_figure_of_the_live_table_is_cut(width, name):
    counters = {"pages": 1_234_567, "items": 1}
    counts = FrontierStatus(JobState.RUNNING, 1, 3, 0, 4, 5, 7_654, False, counters, 1, [], 2.0)
    job = JobStatus(job=name, state="running", live=True, spider="s", outputs=[], frontier="", counts=counts)

    shown = io.StringIO()
    Console(file=shown, width=width).print(live_table([job], width))
    lines = [line.split() for line in shown.getvalue().splitlines()]
    assert lines == [" ".join(row).split() for row in top_rows([job], width)]


def test_the_status_shows_the_wait_of_the_first_delayed_request():
    counts = FrontierStatus(JobState.RUNNING, 2, 0, 2, 0, 0, 0, False, {}, 0, [], 0.0, next_due=200.0)
    job = JobStatus(job="a", state="running", live=True, spider="s", outputs=[], frontier="", counts=counts)
    (line,) = [line for line in status_lines(job).splitlines() if line.startswith("delayed")]
    assert line.split(maxsplit=1)[1] == "2 (the first one for 3:20 min)"


def test_the_status_shows_how_long_a_host_is_paused():
    hosts = [SlotStatus("a.test", 40, 0, 0.0, 64.0), SlotStatus("b.test", 10, 0, 0.0, 0.0)]
    counts = FrontierStatus(JobState.RUNNING, 50, 50, 0, 0, 0, 0, False, {}, 2, hosts, 0.0)
    job = JobStatus(job="a", state="running", live=True, spider="s", outputs=[], frontier="", counts=counts)
    (line,) = [line for line in status_lines(job).splitlines() if line.startswith("busiest")]
    assert line.split(maxsplit=1)[1] == "a.test (40, paused for 1:04 min), b.test (10)"


def test_the_status_names_once_what_the_workers_wait_for():
    counts = FrontierStatus(JobState.RUNNING, 2, 0, 0, 0, 0, 0, False, {}, 0, [], 0.0)
    reports = [WorkerReport(name, "m", 1, "0", 1.0, 32, 0, 0, 0, 0, 0, 0.0, waits=waits)
               for name, waits in (("a", "no proxy responds"), ("b", "no proxy responds"), ("c", ""))]  # fmt: skip
    workers = [WorkerStatus(report, 1.0) for report in reports]
    job = JobStatus(
        job="a",
        state="running",
        live=True,
        spider="s",
        outputs=[],
        frontier="",
        counts=counts,
        workers=workers,
    )
    lines = [line.split(maxsplit=1) for line in status_lines(job).splitlines() if line.startswith("waits")]
    assert lines == [["waits", "no proxy responds"]]


@pytest.mark.parametrize(
    "words, found",
    [
        ("skitter sta", {"plain,status", "plain,stats"}),
        ("skitter resume sh", {"plain,shop"}),
        ("skitter pause x", {""}),
        ("skitter run bo", {"file,bo"}),
        ("skitter run shop.py -s concurrency", {"plain,concurrency=", "plain,concurrency_per_slot="}),
        ("skitter config shop max_pages", {"plain,max_pages="}),
        ("skitter run shop.py --log-file bo", {"file,bo"}),
        ("skitter export shop -o bo", {"file,bo"}),
        ("skitter add shop --file bo", {"file,bo"}),
        ("skitter dedup a.jsonl -o bo", {"file,bo"}),
        ("skitter recipe check bo", {"file,bo"}),
        ("skitter task add bo", {"file,bo"}),
        ("skitter task add tasks.book bo", {"file,bo"}),
    ],
)
def test_completion_offers_commands_jobs_settings_and_files(serve, tmp_path, words, found):
    site = serve(lambda _visit: Answer(b"x"))
    (tmp_path / "shop.py").write_text(SHOP.format(url=site.url))
    assert skitter("run", "shop.py", "--job", "shop", "--quiet", cwd=tmp_path).returncode == 0
    environment = {
        "_SKITTER_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    result = skitter(cwd=tmp_path, environment=environment)
    assert set(result.stdout.splitlines()) == found


def test_completion_after_a_mistyped_command_reports_no_error(tmp_path):
    environment = {
        "_SKITTER_COMPLETE": "bash_complete",
        "COMP_WORDS": "skitter nosuch ",
        "COMP_CWORD": "2",
    }
    result = skitter(cwd=tmp_path, environment=environment)
    assert "plain,crawl" in result.stdout.splitlines()
    assert result.stderr == ""


def test_a_terminal_has_colours_unless_no_color_or_a_pipe_forbids_them(serve, tmp_path):
    site = serve(lambda visit: Answer(b"<a href=/1>x</a>") if visit.path == "/" else Answer(status=404))
    (tmp_path / "shop.py").write_text(SHOP.format(url=site.url))
    assert skitter("run", "shop.py", "--job", "shop", "--quiet", cwd=tmp_path).returncode == 0
    plain = skitter("status", "shop", cwd=tmp_path).stdout
    assert "failed     1 (status/404 1)\n" in plain.replace("  ", " " * 2)
    assert "errors" not in plain, "attempts that failed look like requests that were given up"
    assert run_in_terminal("status", "shop", cwd=tmp_path, NO_COLOR="1") == (0, plain)
    _, shown = run_in_terminal("status", "shop", cwd=tmp_path)
    assert "state      \x1b[32mfinished\x1b[0m\n" in shown
    assert "\x1b[31mfailed" in shown
    _, shown = run_in_terminal("status", "absent", cwd=tmp_path)
    assert shown.startswith("\x1b[31mskitter:\x1b[0m there is no job 'absent'")
    _, shown = run_in_terminal("status", "absent", cwd=tmp_path, TERM="dumb")
    assert shown.startswith("skitter: ")


COLOR = re.compile(r"\x1b\[(?:\d+;)*3[0-7]m")
CHECKED = """
from skitter import Spider

class Checked(Spider):
    def parse(self, response):
        '''
        @url http://h.test/
        @body page.html
        @returns items 1 1
        '''
        yield {"a": 1}

    def wrong(self, response):
        '''
        @url http://h.test/
        @body page.html
        @returns items 1 1
        '''
"""


def test_the_results_of_check_have_colours_unless_no_color_or_a_pipe_forbids_them(tmp_path):
    (tmp_path / "checked.py").write_text(CHECKED)
    (tmp_path / "page.html").touch()
    piped = skitter("check", "checked.py", cwd=tmp_path)
    plain = piped.stdout + piped.stderr
    assert piped.returncode == 1
    assert plain.startswith("ok   Checked.parse")
    status, shown = run_in_terminal("check", "checked.py", cwd=tmp_path)
    assert status == 1
    assert "\x1b[32mok  \x1b[0m Checked.parse" in shown
    assert "\x1b[31mFAIL\x1b[0m Checked.wrong" in shown
    assert run_in_terminal("check", "checked.py", cwd=tmp_path, NO_COLOR="1") == (1, plain)


def test_the_live_table_has_colours_unless_no_color_forbids_them(serve, tmp_path):
    site = serve(lambda _visit: Answer(b"x"))
    (tmp_path / "shop.py").write_text(SHOP.format(url=site.url))
    assert skitter("run", "shop.py", "--job", "shop", "--quiet", cwd=tmp_path).returncode == 0
    quit_key = {"typed": b"q", "after": b"quit"}
    status, shown = run_in_terminal("top", cwd=tmp_path, TERM="xterm", **quit_key)
    assert status == 0
    assert "\x1b[32mfinished" in shown
    status, shown = run_in_terminal("top", cwd=tmp_path, TERM="xterm", NO_COLOR="1", **quit_key)
    assert status == 0
    assert "finished" in shown
    assert not COLOR.search(shown)


def test_without_a_terminal_a_crawl_shows_its_summary_without_codes(serve, tmp_path):
    site = serve(lambda _visit: Answer(b"x"))
    (tmp_path / "shop.py").write_text(SHOP.format(url=site.url))
    result = skitter("run", "shop.py", "--job", "shop", "-o", "x.jsonl", cwd=tmp_path)
    assert result.returncode == 0
    assert "job shop is finished" in result.stderr
    assert "output    x.jsonl" in result.stderr
    assert "\x1b" not in result.stderr + result.stdout
