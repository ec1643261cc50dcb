"""A login is valid for all workers and runs of a job without any setting, and a job without cookies has no overhead."""

import uuid

import pytest

from cli_command import Logged, lines_of, skitter
from services.redis_servers import running
from sites.gated import GatedSite
from skitter.testing import Answer

PAGES = 60
SPIDER = """
from skitter import Spider


class Members(Spider):
    start_urls = ["{url}"]

    def parse(self, response):
        yield {{"url": response.url}}
        yield response.follow_all("a")
"""
OPTIONS = ("--no-robots", "--delay", 0, "-s", "concurrency_per_slot=12", "-s", "concurrency=4", "--quiet")


class MembersOnly:
    """Shows its pages only with the cookie that the front page sets."""

    def __call__(self, visit):
        if visit.path == "/":
            links = "".join(f'<a href="/p/{number}">p</a>' for number in range(PAGES))
            return Answer(links.encode(), headers={"Set-Cookie": "pass=yes; Path=/"})
        is_member = "pass=yes" in visit.headers.get("cookie", "")
        return Answer(b"members", status=200 if is_member else 404)


class Open(MembersOnly):
    """Sets no cookies and needs none."""

    def __call__(self, visit):
        answer = super().__call__(visit)
        return Answer(answer.body)


@pytest.mark.parametrize("frontier", ["sqlite", "redis"])
def test_all_workers_are_logged_in(tmp_path, serve, frontier):
    server = serve(MembersOnly())
    urls = sorted([server.url, *(f"{server.url}p/{number}" for number in range(PAGES))])
    (tmp_path / "members.py").write_text(SPIDER.format(url=server.url))
    job, options = f"job{uuid.uuid4().hex}", []
    if frontier == "redis":
        options.append(f"--frontier={running('valkey').url}")
    result = skitter(
        "run",
        "members.py",
        "--job",
        job,
        "-o",
        "items.jsonl",
        "--workers=3",
        *OPTIONS,
        *options,
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr
    assert sorted(item["url"] for item in lines_of(tmp_path / "items.jsonl")) == urls
    config = skitter("config", job, cwd=tmp_path).stderr
    assert "shared_cookies=yes" in config


@pytest.mark.parametrize("workers", [1, 2])
def test_a_job_without_cookies_shares_and_stores_none(tmp_path, serve, workers):
    (tmp_path / "members.py").write_text(SPIDER.format(url=serve(Open()).url))
    result = skitter(
        "run", "members.py", "--job=job", "-o", "items.jsonl", f"--workers={workers}", *OPTIONS, cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    assert len(lines_of(tmp_path / "items.jsonl")) == PAGES + 1
    assert skitter("config", "job", cwd=tmp_path).stderr == "job job: no changes\n"


@pytest.mark.parametrize("workers", [1, 2])
def test_the_next_run_of_a_job_with_one_worker_is_logged_in(tmp_path, serve, workers):
    server = serve(MembersOnly())
    (tmp_path / "members.py").write_text(SPIDER.format(url=server.url))
    words = ("run", "members.py", "--job=job", "-o", "items.jsonl", *OPTIONS)
    stopped = skitter(*words, "--limit=10", cwd=tmp_path)
    assert stopped.returncode == 0, stopped.stderr
    assert 1 < len(lines_of(tmp_path / "items.jsonl")) <= PAGES
    assert "shared_cookies=yes" in skitter("config", "job", cwd=tmp_path).stderr
    result = skitter(*words, f"--workers={workers}", "--fail-on-errors", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    urls = sorted([server.url, *(f"{server.url}p/{number}" for number in range(PAGES))])
    assert sorted(item["url"] for item in lines_of(tmp_path / "items.jsonl")) == urls


def test_a_run_after_a_kill_is_logged_in(tmp_path, serve):
    site = GatedSite(MembersOnly(), answers=12)
    server = serve(site)
    (tmp_path / "members.py").write_text(SPIDER.format(url=server.url))
    words = ("run", "members.py", "--job=job", "-o", "items.jsonl", *OPTIONS)
    with Logged(*words, cwd=tmp_path) as run:
        run.wait_for(site.reached.is_set)
        run.process.kill()
        run.process.wait()
    site.released.set()
    result = skitter(*words, "--fail-on-errors", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    urls = sorted([server.url, *(f"{server.url}p/{number}" for number in range(PAGES))])
    assert sorted(item["url"] for item in lines_of(tmp_path / "items.jsonl")) == urls
