"""Common mistakes of new users: each is reported with its remedy and the right exit status, and no data is lost.

The commands run in this process, so that many tests take little time. Mistakes on the command line, in outputs and in
frontiers are in ``test_bad_input.py``; folders and spiders that were moved are in ``test_moved_jobs.py``.
"""

import codecs
import json
import logging
import re

import pytest

from cli_command import lines_of, skitter
from crawl_harness import Scripted
from skitter.cli.main import run
from skitter.testing import Answer

HEAD = "import logging\nfrom skitter import Request, Spider\n\n\nclass X(Spider):\n    name = 'x'\n"
START = "    start_urls = ['{url}']\n"
PARSE = "    def parse(self, response):\n        yield {{'url': response.url}}\n        yield response.follow_all('a')\n"
PAGES = {"/": ["/1", "/2"], "/1": ["/"], "/2": ["/1"], "/private": []}


@pytest.fixture(autouse=True)
def no_blocking_calls():
    """Commands may block between their calls of the frontier, because they usually run in a separate process."""


@pytest.fixture
def site(serve):
    robots = Answer(b"User-agent: *\nDisallow: /private\n", content_type="text/plain")
    return serve(Scripted({**PAGES, "/robots.txt": robots}))


@pytest.fixture
def command(tmp_path, monkeypatch, capfd):
    """Run a command in the folder of the test. Return its exit status and its standard error."""
    monkeypatch.chdir(tmp_path)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level

    def run_command(*words):
        capfd.readouterr()
        status = run([str(word) for word in words])
        return status, capfd.readouterr().err

    yield run_command
    logging.captureWarnings(capture=False)
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


def spider(folder, name, body, site):
    (folder / name).write_text(HEAD + body.format(url=site.url))
    return name


QUICK = ("-s", "delay=0", "-s", "retry_delay=0.01", "-s", "unreachable_timeout=0.2")

CALLBACKS = {
    "raises": ("yield {{'a': 1}}\n        raise ValueError('boom')", "ValueError: boom"),
    "text": ("yield response.urljoin('/1')", "response.follow"),
    "selector": ("yield response.css('a')", ".get()"),
    "field": ("yield {{'sel': response.css('a::text')}}", "field sel"),
    "value": ("yield {{'thing': object()}}", "give strings, numbers, dates, lists and dicts"),
    "relative": ("yield Request('/1')", "response.follow('/1')"),
    "lambda": ("yield Request(response.urljoin('/1'), callback=lambda r: None)", "lambda"),
    "misspelt": ("yield response.follow_all('a', callback='pasre')", "did you mean parse?"),
    "misspelt_errback": ("yield response.follow('/1', errback='pasre')", "did you mean parse?"),
}


@pytest.mark.parametrize("name", CALLBACKS)
def test_a_mistake_in_a_callback_fails_the_run_and_a_corrected_spider_gets_everything(
    command, site, tmp_path, name
):
    body, words = CALLBACKS[name]
    wrong = spider(tmp_path, "wrong.py", f"{START}    def parse(self, response):\n        {body}\n", site)
    right = spider(tmp_path, "right.py", START + PARSE, site)
    status, shown = command("run", wrong, "-o", "x.jsonl", *QUICK)
    assert status == 1
    assert words in shown
    assert "no page could be processed" in shown
    assert "skitter failures list x" in shown
    assert command("failures", "retry", "x")[0] == 0
    status, shown = command("resume", "x", "--spider", right)
    assert status == 0, shown
    assert sorted(item["url"] for item in lines_of(tmp_path / "x.jsonl")) == [
        site.url, f"{site.url}1", f"{site.url}2",
    ]  # fmt: skip
    assert not re.search(r"^  failed", shown, re.MULTILINE), "what was tried again is no failure any more"


def test_none_is_ignored(command, site, tmp_path):
    body = (
        START + "    def parse(self, response):\n        yield None\n        yield {{'url': response.url}}\n"
    )
    status, shown = command("run", spider(tmp_path, "ok.py", body, site), "-o", "x.jsonl", *QUICK)
    assert status == 0, shown
    assert lines_of(tmp_path / "x.jsonl") == [{"url": site.url}]


SPIDERS = {
    "no_parse": (START, "parse"),
    "parse_without_response": (START + "    def parse(self):\n        yield {{}}\n", "parse(self, response)"),
    "start_url": ("    start_url = '{url}'\n" + PARSE, "start_urls"),
    "start_urls_text": ("    start_urls = '{url}'\n" + PARSE, "start_urls = ["),
    "domains_text": (START + "    allowed_domains = '127.0.0.1'\n" + PARSE, "allowed_domains = ["),
    "domain_url": (START + "    allowed_domains = ['http://127.0.0.1']\n" + PARSE, "without a scheme"),
    "scrapy_setting": (START + "    custom_settings = {{'DOWNLOAD_DELAY': 1}}\n" + PARSE, "write delay"),
    "scrapy_import": (
        START + PARSE + "\n\nraise ModuleNotFoundError('No module named scrapy', name='scrapy')\n", "from skitter import",
    ),
    "missing_import": (START + PARSE + "\n\nimport pandaz\n", "pandaz"),
    "relative_import": (START + PARSE + "\n\nfrom ..items import Book\n", "shop.spiders.mine"),
    "syntax": (START + "    def parse(self, response)\n", "line 8"),
}  # fmt: skip


@pytest.mark.parametrize("name", SPIDERS)
def test_a_mistake_in_a_spider_is_found_before_the_crawl(command, site, tmp_path, name):
    body, words = SPIDERS[name]
    folder = tmp_path / "shop" / "spiders"
    folder.mkdir(parents=True)
    for package in (folder.parent, folder):
        (package / "__init__.py").touch()
    spider(folder, "mine.py", body, site)
    status, shown = command("run", "shop/spiders/mine.py", "-o", "x.jsonl")
    assert status == 2
    assert words in shown
    assert shown.splitlines()[-1].startswith("skitter: ")
    assert "; " in shown.splitlines()[-1], "there is no remedy"
    assert "Traceback" not in shown
    output = tmp_path / "x.jsonl"
    assert not output.exists() or not output.read_bytes()
    assert not [hit for hit in site.log.hits if hit.target != "/robots.txt"]


def test_a_spider_of_scrapy_is_refused_with_both_remedies(command, tmp_path):
    (tmp_path / "mine.py").write_text("import scrapy\n\n\nclass Mine(scrapy.Spider):\n    name = 'mine'\n")
    status, shown = command("run", "mine.py")
    assert status == 2
    assert len(shown.splitlines()) == 1
    assert "skitter.scrapy.Addon" in shown
    assert "from skitter import" in shown


SEEDS = {
    "refused": ("http://127.0.0.1:{free_port}/", "connect", "check the port"),
    "dns": ("http://no-such-name.invalid/", "dns", "check the name of the host"),
    "robots": ("{url}private", "robots.txt", "--no-robots"),
    "missing": ("{url}nothing", "status/404", ""),
}


@pytest.mark.parametrize("name", SEEDS)
def test_a_run_without_a_page_fails_and_names_the_cause(command, site, free_port, name):
    url, kind, remedy = SEEDS[name]
    url = url.format(url=site.url, free_port=free_port)
    status, shown = command("crawl", url, "--job", "none", "-o", "x.jsonl", *QUICK)
    assert status == 1
    (line,) = [line for line in shown.splitlines() if f"seed {url}" in line]
    assert kind in line
    assert remedy in line
    if name != "robots":  # a page forbidden by robots.txt does not count as failed
        assert "`skitter failures retry none`" in shown
    assert "Traceback" not in shown


def test_names_of_scrapy_that_are_never_called_are_pointed_out_and_the_crawl_continues(
    command, site, tmp_path
):
    wrong = spider(
        tmp_path, "wrong.py", START + PARSE + "\n    def closed(self, reason):\n        pass\n", site
    )
    status, shown = command("run", wrong, "-o", "x.jsonl", *QUICK)
    assert status == 0
    assert [line for line in shown.splitlines() if "closed" in line and "on_stop" in line]
    assert len(lines_of(tmp_path / "x.jsonl")) == 3


def test_values_of_scrapy_in_meta_are_pointed_out_and_the_crawl_continues(command, site, tmp_path):
    body = (
        START + "    def parse(self, response):\n        if response.meta.get('depth', 0) < 1:\n"
        "            yield response.follow_all('a')\n"
    )
    status, shown = command("run", spider(tmp_path, "wrong.py", body, site), "-o", "x.jsonl", *QUICK)
    assert status == 0
    assert (
        "skitter does not set meta['depth'], so meta.get('depth') finds nothing; read response.depth" in shown
    )


def test_an_error_is_logged_once_with_its_traceback_and_kept_with_each_dead_letter(
    command, serve, tmp_path, capfd
):
    pages = [f"/{n}" for n in range(25)]
    site = serve(Scripted({"/": pages, **{path: [] for path in pages}}))
    body = (
        START + "    def parse(self, response):\n        yield response.follow_all('a', callback='two')\n\n"
        "    def two(self, response):\n        yield {{'a': 1}}\n        yield response.follow('/')\n"
        "        helper(response)\n\n\ndef helper(response):\n    raise KeyError('absent\\u2028')\n"
    )
    status, shown = command("run", spider(tmp_path, "wrong.py", body, site), "-o", "x.jsonl", *QUICK)
    assert status == 0
    assert shown.count("Traceback (most recent call last)") == 1
    assert len([line for line in shown.splitlines() if "in helper" in line and "ERROR" in line]) == 2
    assert "10 pages have failed with this error" in shown
    assert "skitter/worker" not in shown, "frames of skitter say nothing to a user"
    assert "skitter failures list x" in shown
    assert "25 (callback 25)" in shown

    run(["failures", "list", "x", "--json"])
    letters = json.loads(capfd.readouterr().out)
    assert len(letters) == 25
    for letter in letters:
        assert letter["error"].startswith("callback: KeyError")
        assert "1 link and 1 item" in letter["error"]
        assert "\n" not in letter["error"]
        assert letter["traceback"].splitlines()[0].startswith("Traceback")
        assert "in helper" in letter["traceback"]
        assert len(letter["traceback"]) < 2_100
    run(["failures", "show", "x", str(letters[0]["id"])])
    shown = capfd.readouterr().out
    assert 'wrong.py", line' in shown
    assert "\u2028" not in shown
    run(["failures", "list", "x", "--kind", "callback"])
    assert len(capfd.readouterr().out.splitlines()) == 26


def test_a_password_in_a_url_is_sent_and_never_shown_or_stored(command, serve, tmp_path, capfd):
    seen = []

    def answer(visit):
        seen.append(visit.headers.get("authorization", ""))
        return Answer(status=404) if visit.path == "/robots.txt" else Answer(b"<a href='/1'>x</a>")

    server = serve(answer)
    url = server.url.replace("://", "://user:p4ssw0rd@")
    printed = ""
    for words in (
        ("fetch", url, "-v"),
        ("crawl", url, "-o", "x.jsonl", "--job", "x", "--log-level", "debug", "--log-file", "x.log", *QUICK),
        ("status", "x", "--json"),
        ("failures", "list", "x", "--json"),
        ("fetch", f"{url}?{'x' * 5000}", "-v"),
    ):
        command(*words)
        assert run([str(word) for word in words]) == 0
        captured = capfd.readouterr()
        printed += captured.out + captured.err
    assert server.url in printed
    assert "p4ssw0rd" not in printed
    assert seen.count("Basic dXNlcjpwNHNzdzByZA==") > 4
    stored = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert stored
    assert not [content for content in stored if b"p4ssw0rd" in content or b"dXNlcjpwNHNzdzByZA" in content]


CONTRACTS = """
from skitter import Spider


class Checked(Spider):
    def parse(self, response):
        '''A page.

        @url {url}
        @returns items 1 1
        @returns requests 2
        @scrapes url
        '''
        yield {{"url": response.url}}
        yield response.follow_all("a")

    def too_few(self, response, word):
        '''
        @url http://h.test/
        @body page.html
        @cb_kwargs {{"word": "x"}}
        @returns items 2 3
        @returns requests 1
        @scrapes title word
        '''
        yield {{"word": word, "title": response.css("title::text").get()}}

    def raises(self, response):
        '''
        @url http://h.test/
        @body page.html
        @meta {{"key": 1}}
        '''
        raise KeyError(response.meta["key"])
"""


def test_contracts_in_docstrings_are_checked(command, site, tmp_path, capfd):
    (tmp_path / "checked.py").write_text(CONTRACTS.format(url=site.url))
    (tmp_path / "page.html").write_text("<p>no title</p>")
    assert run(["check", "checked.py"]) == 1
    lines = capfd.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == [
        "ok   Checked.parse: items: 1, requests: 2",
        "FAIL Checked.raises: the callback raised an exception",
        "FAIL Checked.too_few: items: 1, requests: 0",
    ]
    problems = " ".join(line for line in lines if line.startswith(" "))
    assert "KeyError: 1" in problems
    assert "items: 1, expected 2 to 3" in problems
    assert "requests: 0, expected at least 1" in problems
    assert "'title'" in problems
    assert not (tmp_path / ".skitter").exists()


@pytest.mark.parametrize(
    "line", ["@retruns items 1", "@returns pages 1", "@meta {", "@body nothing.html", ""]
)
def test_a_wrong_contract_is_named(command, tmp_path, line):
    text = f"from skitter import Spider\nclass X(Spider):\n    def parse(self, response):\n        '''\n        {line}\n"
    text += "        @url http://127.0.0.1:9/\n        '''\n" if line else "        '''\n"
    (tmp_path / "x.py").write_text(text)
    status, shown = command("check", "x.py")
    assert status == (1 if "body" in line else 2)
    assert "Traceback" not in shown


def test_settings_that_were_changed_between_two_runs_apply_to_the_rest_of_the_job(command, site, tmp_path):
    name = spider(tmp_path, "ok.py", START + PARSE, site)
    first = command("run", name, "-o", "x.jsonl", *QUICK, "-s", "depth_limit=0")
    assert first[0] == 0, first
    assert [item["url"] for item in lines_of(tmp_path / "x.jsonl")] == [site.url]
    assert command("add", "x", f"{site.url}1")[0] == 0
    status, shown = command(
        "run", name, "-o", "x.jsonl", *QUICK, "-s", "depth_limit=5", "-s", "concurrency=2"
    )
    assert status == 0, shown
    stored = json.loads((tmp_path / ".skitter/x/job.json").read_text())["settings"]
    assert stored["depth_limit"] == "5"
    assert command("add", "x", f"{site.url}2")[0] == 0
    status, shown = command("resume", "x")  # with the settings of the previous run
    assert status == 0, shown
    urls = sorted(item["url"] for item in lines_of(tmp_path / "x.jsonl"))
    assert urls == [site.url, f"{site.url}1", f"{site.url}2"]


def test_files_that_were_written_on_windows_are_read(command, site, tmp_path):
    (tmp_path / "ok.py").write_bytes(
        codecs.BOM_UTF8 + (HEAD + START + PARSE).format(url=site.url).replace("\n", "\r\n").encode()
    )
    assert command("run", "ok.py", "-o", "x.jsonl", *QUICK, "-s", "depth_limit=0")[0] == 0
    lines = ["# two pages", f"{site.url}1", "", f'{{"url": "{site.url}2"}}']
    (tmp_path / "urls.txt").write_bytes(codecs.BOM_UTF8 + "\r\n".join(lines).encode())
    status, shown = command("add", "x", "--file", "urls.txt")
    assert (status, shown.partition(";")[0]) == (0, "added: 2")
    (tmp_path / "no_comment.txt").write_bytes(codecs.BOM_UTF8 + f"{site.url}1\r\n".encode())
    assert "known before: 1" in command("add", "x", "--file", "no_comment.txt")[1]
    status, shown = command("resume", "x")
    assert status == 0, shown
    urls = sorted(item["url"] for item in lines_of(tmp_path / "x.jsonl"))
    assert urls == [site.url, f"{site.url}1", f"{site.url}2"]
    recipe = RECIPE.format(url=site.url).replace("\n", "\r\n")
    (tmp_path / "pages.yaml").write_bytes(codecs.BOM_UTF8 + recipe.encode())
    status, shown = command("run", "pages.yaml", "-o", "y.jsonl", *QUICK)
    assert status == 0, shown
    assert len(lines_of(tmp_path / "y.jsonl")) == 1


RECIPE = "name: pages\nstart: {url}\npages:\n  p: {{items: {{fields: {{link: a}}}}}}\n"

SHELF = """from shelf.items import Book
from skitter import Spider


class {name}(Spider):
    start_urls = ["{url}{path}"]

    def parse(self, response):
        yield Book(response.url, "{name}")
"""


@pytest.mark.parametrize(
    "way", ["shelf.spiders.{file}", "shelf/spiders/{file}.py", "shelf.spiders.{file}:{name}"]
)
def test_each_spider_of_a_package_with_several_runs_by_its_module_and_its_file(command, site, tmp_path, way):
    folder = tmp_path / "shelf" / "spiders"
    folder.mkdir(parents=True)
    for package in (folder.parent, folder):
        (package / "__init__.py").touch()
    items = (
        "from dataclasses import dataclass\n\n\n@dataclass\nclass Book:\n    url: str\n    found_by: str\n"
    )
    (tmp_path / "shelf" / "items.py").write_text(items)
    for name, path in (("First", "1"), ("Second", "2")):
        text = SHELF.format(name=name, url=site.url, path=path)
        (folder / f"{name.lower()}.py").write_text(text)
    for name, path in (("First", "1"), ("Second", "2")):
        # Use a separate process, because Python looks for modules in the folder of the spider.
        words = (
            "run",
            way.format(file=name.lower(), name=name),
            "-o",
            f"{name}.jsonl",
            "--workers",
            2,
            *QUICK,
        )
        result = skitter(*words, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        assert lines_of(tmp_path / f"{name}.jsonl") == [{"url": f"{site.url}{path}", "found_by": name}]
    refused = skitter("run", "shelf.spiders", cwd=tmp_path)
    assert refused.returncode == 2
    assert "contains no spider" in refused.stderr


def test_a_request_that_kills_its_worker_is_shown_with_its_kind_and_no_reason_is_promised(serve, tmp_path):
    url = serve(Scripted({"/": []})).url
    (tmp_path / "killer.py").write_text(
        f"import os, signal\nfrom skitter import Spider\n\n\nclass Killer(Spider):\n    start_urls = ['{url}']\n\n"
        "    def parse(self, response):\n        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    command = ("run", "killer.py", "--no-robots", "--workers", 2, "-s", "max_worker_crashes=0")
    ran = skitter(*command, "-o", "items.jsonl", cwd=tmp_path)
    assert ran.returncode == 1
    assert re.search(r"^  failed +1 \(lost 1\)$", ran.stderr, re.MULTILINE), ran.stderr
    assert "the reasons are above" not in ran.stderr
    assert "`skitter failures list killer` lists the failed requests" in ran.stderr


def test_the_reasons_are_above_only_in_the_run_that_logs_them(serve, tmp_path):
    server = serve(Scripted({}))
    command = ("crawl", server.url, "--no-robots", "--job", "empty", "-o", "items.jsonl")
    first, again = skitter(*command, cwd=tmp_path).stderr, skitter(*command, cwd=tmp_path).stderr
    assert f"seed {server.url}: status/404" in first.partition("the reasons are above")[0]
    assert "the reasons are above; `skitter failures list empty` lists them again" in first
    assert "the reasons are above" not in again
    assert (
        "already finished; `skitter failures retry empty` queues its failed requests again; or use --fresh"
        in again
    )
