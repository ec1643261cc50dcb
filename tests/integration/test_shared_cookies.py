"""A login holds for all workers of a job without any setting, and costs nothing in a job without cookies."""

import uuid

import pytest

from cli_command import lines_of, skitter
from services.redis_servers import running
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
        return Answer(b"members", status=200 if "pass=yes" in visit.headers.get("cookie", "") else 404)


class Open(MembersOnly):
    """Sets no cookie and needs none."""

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


@pytest.mark.parametrize(("site", "workers"), [(Open, 2), (MembersOnly, 1)])
def test_a_job_that_need_not_share_cookies_does_not(tmp_path, serve, site, workers):
    (tmp_path / "members.py").write_text(SPIDER.format(url=serve(site()).url))
    result = skitter(
        "run", "members.py", "--job=job", "-o", "items.jsonl", f"--workers={workers}", *OPTIONS, cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    assert len(lines_of(tmp_path / "items.jsonl")) == PAGES + 1
    assert skitter("config", "job", cwd=tmp_path).stderr == "job job: no changes\n"
