"""Failed requests get another attempt when all other requests are done."""

import pytest

from cli_command import lines_of, skitter
from crawl_harness import Scripted
from skitter.testing import Answer


@pytest.mark.parametrize("workers", [1, 2])
def test_failed_requests_are_retried_once_at_the_end(serve, tmp_path, workers):
    gone = Answer(b"", status=404)
    site = Scripted({"/": ["/late", "/gone", "/b"], "/late": (gone, Answer(b"<title>now</title>")), "/b": []})
    arguments = ("crawl", serve(site).url, "--job", "j", "-o", "out.jsonl", "--delay", 0, "--no-robots", "-q")
    result = skitter(*arguments, "-s", "retry_failed_at_end=yes", "--workers", workers, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert len(lines_of(tmp_path / "out.jsonl")) == 3
    assert site.counts == {"/": 1, "/b": 1, "/late": 2, "/gone": 2}
    order = [visit.target for visit in site.visits]
    assert set(order[-2:]) == {"/late", "/gone"}
    left = skitter("failures", "list", "j", cwd=tmp_path).stdout
    assert "/gone" in left
    assert "/late" not in left
