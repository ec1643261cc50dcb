"""Progress and summary of a crawl, for people and for programs."""

import io
import json
import logging

import pytest
from msgspec.structs import replace

from skitter.errors import UsageError
from skitter.frontier.records import FrontierStatus, JobState, SlotStatus
from skitter.observe.figures import amount, duration, errors, kinds
from skitter.observe.progress import LineView, LiveView, NoView, make_view, progress_line, progress_table
from skitter.observe.report import charts
from skitter.observe.summary import summary_of, summary_rows
from skitter.run.crawl import Progress, RunResult
from skitter.worker.timings import Throughput

COUNTERS = {
    "pages": 1200, "items": 1100, "bytes": 2_500_000, "failed/status/404": 3, "failed/timeout": 1,
    "retried/timeout": 4, "refused/duplicate": 9, "status/200": 1200, "status/404": 3,
}  # fmt: skip


def reading(state=JobState.RUNNING, counters=COUNTERS):
    return FrontierStatus(
        state=state, added=1300, queued=50, delayed=2, leased=32, done=1212, failed=4, seeds_loading=False,
        counters=dict(counters), slots=7, busiest=[], oldest_lease=0.0,
    )  # fmt: skip


def look(seconds=12.0):
    return Progress(reading(), seconds, workers=2, pages_per_second=45.25)


def test_the_rate_is_that_of_the_last_ten_seconds():
    pace = Throughput()
    assert pace.record(0.0, 500) == 0.0
    assert pace.record(5.0, 550) == 10.0
    for second in range(6, 31):
        last = pace.record(float(second), 550)
    assert last == 0.0, "nothing came for ten seconds"


def test_errors_count_retries_and_failures():
    assert errors(COUNTERS) == {"timeout": 5, "status/404": 3}
    assert kinds(COUNTERS, "failed") == {"status/404": 3, "timeout": 1}


def test_the_chart_of_failed_requests_leaves_out_those_that_were_retried_or_dropped():
    counters = {"failed/status/404": 3, "failed/timeout": 1, "settled/status/404": 2, "settled/timeout": 1}
    assert dict(charts(reading(counters=counters)))["Failed requests by kind"] == {"status/404": 1}


def test_a_line_shows_every_value():
    assert progress_line(look()) == (
        "1,200 pages, 45.2 pages/s, 1,100 items, 50 queued, 2 delayed, 32 in flight, 4 failed, 7 hosts;"
        " failed attempts: timeout 5, status/404 3"
    )


def test_a_crawl_that_only_waits_says_for_how_long():
    waiting = replace(reading(), queued=0, leased=0, delayed=1, next_due=200.0)
    remark = "all remaining requests are delayed, the first one for 3:20 min"
    assert progress_line(replace(look(), status=waiting)).endswith(f"; {remark}")
    assert progress_table("job", replace(look(), status=waiting)).caption.endswith(f"\n{remark}")
    for other in (replace(waiting, leased=1), replace(waiting, next_due=0.5)):
        assert "first one" not in progress_line(replace(look(), status=other))


def test_a_crawl_whose_hosts_are_all_paused_says_for_how_long():
    hosts = [SlotStatus("a.test", 40, 0, 0.0, 200.0), SlotStatus("b.test", 10, 0, 0.0, 64.0)]
    waiting = replace(reading(), leased=0, slots=2, busiest=hosts)
    remark = "all hosts are paused, b.test for 1:04 min"
    assert progress_line(replace(look(), status=waiting)).endswith(f"; {remark}")
    busy = [*hosts, SlotStatus("c.test", 1, 0, 0.0, 0.0)]
    for other in (replace(waiting, leased=1), replace(waiting, busiest=busy, slots=3)):
        assert "paused" not in progress_line(replace(look(), status=other))


def test_without_a_terminal_a_line_is_logged_every_ten_seconds(caplog):
    view = make_view("job", io.StringIO(), live=False, quiet=False)
    assert isinstance(view, LineView)
    with caplog.at_level(logging.INFO, "skitter.progress"):
        for half_seconds in range(51):
            view.show(look(half_seconds / 2))
    assert len(caplog.records) == 2, "at 10 and 20 of 25 seconds"
    assert caplog.records[0].fields["status"]["queued"] == 50


def test_a_terminal_sees_every_figure_and_gets_its_cursor_back():
    screen = io.StringIO()
    screen.isatty = lambda: True
    view = LiveView("shop", screen)
    view.show(look())
    view.close()
    view.close()
    shown = screen.getvalue()
    for figure in ("shop: running", "1,200", "1,100", "50", "32", "workers: 2", "timeout 5, status/404 3"):
        assert figure in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l"), "the cursor is shown again"


def test_quiet_shows_nothing():
    assert isinstance(make_view("job", io.StringIO(), live=True, quiet=True), NoView)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (59.9, "59.9 s"),
        (59.96, "1:00 min"),
        (61.2, "1:01 min"),
        (3599.9, "1:00:00"),
        (90061, "25:01:01"),
    ],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_960, "1.0 MB"),
        (2_500_000, "2.5 MB"),
        (7 * 10**15, "7,000.0 TB"),
    ],
)
def test_amounts(size, text):
    assert amount(size) == text


def result(state=JobState.FINISHED, reason=""):
    before = reading(counters={"pages": 200})
    return RunResult(
        job="shop",
        state=state,
        reason=reason,
        seconds=10.0,
        before=before,
        status=reading(state),
        outputs=["a.jsonl"],
    )


def test_a_summary_counts_this_run_and_the_whole_job(tmp_path):
    summary = summary_of(result(JobState.STOPPING, "interrupted"), 130)
    summary.write(tmp_path / "s.json")
    written = json.loads((tmp_path / "s.json").read_text())
    assert (written["state"], written["reason"], written["exit_code"]) == ("stopped", "interrupted", 130)
    assert (written["pages"], written["pages_this_run"], written["pages_per_second"]) == (1200, 1000, 100.0)
    assert written["refused_by_reason"] == {"duplicate": 9}
    assert written["statuses"] == {"200": 1200, "404": 3}


def test_the_representation_of_a_result_is_one_line():
    counts = "1,200 pages, 1,100 items, 4 failed, 10.0 s"
    assert repr(result()) == f"<RunResult of job 'shop': finished; {counts}>"
    stopped = result(JobState.STOPPED, "limit reached: max_pages")
    assert repr(stopped) == f"<RunResult of job 'shop': stopped, limit reached: max_pages; {counts}>"


def test_a_summary_that_cannot_be_written_is_reported(tmp_path):
    with pytest.raises(UsageError) as caught:
        summary_of(result(), 0).write(tmp_path / "nowhere" / "s.json")
    assert caught.value.field == "summary"


def test_the_summary_shows_the_dropped_items():
    ended = result()
    ended.status.counters.update({"dropped_items/hook": 1_200, "dropped_items/invalid": 5})
    assert dict(summary_rows(summary_of(ended, 0)))["dropped"] == "1,205 (hook 1,200, invalid 5)"


def test_the_summary_distinguishes_items_of_all_machines_from_those_in_the_files_of_this_one():
    ended = result()
    here = dict(summary_rows(summary_of(ended, 0)))
    ended.elsewhere = 1_500
    fleet = dict(summary_rows(summary_of(ended, 0)))
    assert fleet["items"] == f"{here['items']} on all machines"
    assert fleet["elsewhere"] == "1,500 bytes of items are in part files of other machines"
    assert "elsewhere" not in here


def test_the_summary_omits_empty_sections():
    rows = dict(summary_rows(summary_of(result(), 0)))
    assert rows["failed"] == "4 (status/404 3, timeout 1)"
    assert rows["left"] == "84 waiting"
    assert not {"reason", "dropped"} & rows.keys()
    bare = reading(counters={})
    empty = RunResult(
        job="j",
        state=JobState.FINISHED,
        reason="",
        seconds=0.0,
        before=bare,
        status=bare,
        outputs=["-?item_classes=Book"],
    )
    assert dict(summary_rows(summary_of(empty, 0)))["output"] == "standard output"
    assert "refused" not in dict(summary_rows(summary_of(empty, 0)))


def test_a_summary_distinguishes_the_pages_of_this_run_from_those_of_earlier_ones():
    before = reading(counters={**COUNTERS, "pages": 1000})
    result = RunResult(
        job="j", state=JobState.FINISHED, reason="", seconds=1.0, before=before, status=reading(), outputs=[]
    )
    assert dict(summary_rows(summary_of(result, 0)))["pages"] == "1,200 (200 in this run)"
