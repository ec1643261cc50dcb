"""`skitter demo`: it proves what it says, twice in a row, and says so when it does not hold."""

import pytest

from cli_command import skitter, urls_of


@pytest.mark.slow
def test_the_demo_loses_a_worker_and_nothing_else_and_can_be_run_again(tmp_path):
    for _ in range(2):
        result = skitter("demo", cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        assert "killed worker" in result.stderr
        assert "0 pages lost" in result.stderr
        assert "WRONG" not in result.stderr
    urls = urls_of(tmp_path / ".skitter" / "demo" / "items.jsonl")
    assert len(urls) == len(set(urls)) > 100
