"""`skitter demo`: its claims hold twice in a row, and it reports if one does not hold."""

import pytest

from cli_command import run_in_terminal, skitter, urls_of


@pytest.mark.slow
def test_the_demo_kills_a_worker_loses_no_page_and_runs_again_in_colours(tmp_path):
    piped = skitter("demo", cwd=tmp_path)
    in_colours = run_in_terminal("demo", cwd=tmp_path, TERM="xterm")
    for status, shown in ((piped.returncode, piped.stderr), in_colours):
        assert status == 0, shown
        assert "killed worker" in shown
        assert "0 pages lost" in shown
        assert "WRONG" not in shown
    assert "\x1b" not in piped.stderr
    assert in_colours[1].count("\x1b[32mok     \x1b[0m") == piped.stderr.count("  ok     ") == 8
    urls = urls_of(tmp_path / ".skitter" / "demo" / "items.jsonl")
    assert len(urls) == len(set(urls)) > 100
