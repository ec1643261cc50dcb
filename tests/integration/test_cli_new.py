"""`skitter new`: the created project runs, and its test passes and can fail."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import skitter as package
from cli_command import lines_of, skitter, usage_error
from skitter.testing import Answer


@pytest.fixture(params=["spider", "collector"])
def kind(request):
    return request.param


@pytest.fixture
def project(tmp_path, kind):
    options = ["--collector"] if kind == "collector" else []
    result = skitter("new", "book-shop", *options, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert f"skitter run book_shop.{kind}" in result.stderr
    return tmp_path / "book-shop"


def test_a_project_is_created_in_the_current_folder(tmp_path):
    folder = tmp_path / "book-shop"
    folder.mkdir()
    result = skitter("new", ".", cwd=folder)
    assert result.stderr == "created .; continue with `skitter run book_shop.spider -o items.jsonl`\n"
    assert (folder / "README.md").read_text().startswith("# book-shop")


def run_tests(project):
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=project, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip


def test_the_test_of_a_new_project_passes_and_notices_a_broken_one(project, kind):
    result = run_tests(project)
    assert result.returncode == 0, result.stdout
    assert "1 passed" in result.stdout
    spider = project / "book_shop" / f"{kind}.py"
    spider.write_text(spider.read_text().replace("li.next a", "li.previous a"))
    assert run_tests(project).returncode == 1


def test_a_new_project_runs_with_the_command_of_its_readme(project, kind, serve):
    server = serve(lambda _: Answer(b'<div class="quote"><span class="text">Hi</span></div>'))
    assert f"skitter run book_shop.{kind} -o items.jsonl" in (project / "README.md").read_text()
    result = skitter(
        "run",
        f"book_shop.{kind}",
        "-o",
        "items.jsonl",
        "-a",
        f"url={server.url}",
        "--workers",
        2,
        cwd=project,
    )
    assert result.returncode == 0, result.stderr
    [item] = lines_of(project / "items.jsonl")
    assert (item["text"], item["author"] or None, item["tags"]) == ("Hi", None, [])


def test_a_new_project_is_formatted_and_free_of_lint(project):
    for command in (["check"], ["format", "--check", "--line-length", "110"]):
        result = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--isolated", "."],
            cwd=project, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert result.returncode == 0, result.stdout


_TYPES = Path(__file__).parents[2] / ".cache" / "mypy-of-projects"
"""What mypy knows of the modules that a project imports. Without it, the check takes ten times as long."""


_PROGRAM = """
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import skitter
from skitter import Crawl, HookAction, JobSpec, LinkExtractor, Request, Response, Rule, Spider
from skitter.errors import FetchError, RedirectError, StatusError


class Hook:
    async def before_request(self, request: Request) -> Request | None:
        return request.replace(headers={**request.headers, "X-Token": "1"})

    def after_request(self, response: Response) -> HookAction | None:
        return HookAction.RETRY if response.css("#captcha") else None


class Pages(Spider):
    start_urls = ["http://127.0.0.1/"]
    hooks = [Hook()]
    rules = [Rule(LinkExtractor(allow="/page/"), callback="parse_page")]
    custom_settings = {"delay": 0}

    async def start(self) -> AsyncIterator[Request]:
        yield Request("http://127.0.0.1/", self.parse, errback=self.failed, meta={"page": 1})

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"title": response.css("title::text").get(), "links": response.xpath("//a/@href").getall()}
        yield response.follow_all("a.next", self.parse, cb_kwargs={"page": 2})

    def failed(self, request: Request, error: Exception) -> Iterator[Any]:
        if isinstance(error, StatusError):
            yield {"url": request.url, "status": error.status, "title": error.response.css("title::text").get()}
        elif isinstance(error, FetchError):
            yield {"url": request.url, "failure": error.kind}
        elif isinstance(error, RedirectError):
            yield {"url": request.url, "failure": str(error)}


async def main() -> None:
    async with aclosing(skitter.stream(Pages, settings={"delay": 0})) as items:
        async for item in items:
            print(item["title"])
            break
    result = await Crawl(JobSpec(job="pages", spider=Pages, outputs=[Path("pages.jsonl"), "pages.csv"], home=Path("jobs"))).run()
    print(result.state, result.counters["pages"])


def blocking() -> None:
    with closing(skitter.iter_items(Pages)) as items:
        print(next(items))
"""


@pytest.mark.timeout(900)
def test_new_projects_and_a_program_pass_the_strict_type_check(tmp_path):
    (tmp_path / "program.py").write_text(_PROGRAM)
    for name, *options in (("book-shop",), ("quote-shop", "--collector")):
        assert skitter("new", name, *options, cwd=tmp_path).returncode == 0
    # The types are those of skitter's code under test, whose own errors another check reports.
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", str(_TYPES), "book-shop", "quote-shop", "program.py"],
        cwd=tmp_path, env={**os.environ, "MYPYPATH": str(Path(package.__file__).parents[1])}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert result.stdout == "Success: no issues found in 9 source files\n"


def test_a_folder_with_something_in_it_is_not_touched(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    assert "is not empty" in usage_error("new", "mine", cwd=tmp_path)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("name", ["1st", "class", "skitter", "a+b"])
def test_a_name_that_no_package_can_have_is_refused(name, tmp_path):
    assert "cannot be the name" in usage_error("new", name, cwd=tmp_path)
    assert not list(tmp_path.iterdir())
