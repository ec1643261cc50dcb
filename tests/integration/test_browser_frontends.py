"""Browser pages on the command line, in recipes and in the collector."""

import contextlib
import json
import os
import subprocess
import time
from urllib.request import urlopen

from browsers import require_browser
from cli_command import skitter, usage_error
from crawl_harness import Scripted
from sites.javascript import WORDS, javascript_site
from skitter.browser.executable import find_executable
from skitter.settings import Settings
from skitter.testing import Answer
from skitter.testing.javascript_site import JavaScriptSite

RECIPE = """
name: words
start: {url}
pages:
  list:
    fetch: browser
    wait_for: li
    actions:
      - {{do: load_more, selector: "#more", timeout: 15}}
    items: {{each: li, fields: {{word: {{xpath: .}}}}}}
settings: {{robots: false}}
"""
COLLECTOR = """
from skitter.frontends.collector import Collector

crawler = Collector(ignore_robots_txt=True)

@crawler.on_html("h1")
def heading(element):
    yield {{"title": element.text}}

crawler.visit("{url}", fetcher="browser", browsing={{"wait_for": "h1"}})
"""


def items(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_fetch_shows_the_final_document_and_saves_a_picture(serve, tmp_path):
    require_browser()
    url = serve(javascript_site).url_of
    result = skitter("fetch", "--browser", url("/js/3"), cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "<h1>page 3</h1>" in result.stdout
    result = skitter("fetch", url("/js/3"), "--screenshot", "shot.png", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, ""), result.stderr
    assert (tmp_path / "shot.png").read_bytes()[:4] == b"\x89PNG"


def test_the_shell_has_the_final_document(serve, tmp_path):
    require_browser()
    url = serve(javascript_site).url_of
    commands = (
        "print('first:', response.css('h1::text').get())\n"
        f"print('second:', fetch({url('/js/4')!r}).css('h1::text').get())\n"
    )
    result = skitter("shell", "--browser", url("/js/3"), "--no-robots", cwd=tmp_path, stdin=commands)
    assert result.returncode == 0, result.stderr
    assert "first: page 3" in result.stdout
    assert "second: page 4" in result.stdout


@contextlib.contextmanager
def running_browser(folder):
    """Start a browser independently of skitter. Yields its DevTools URL."""
    command = [
        find_executable(Settings()), "--headless", "--no-first-run", "--remote-debugging-port=0",
        f"--user-data-dir={folder}", *(["--no-sandbox"] if os.geteuid() == 0 else []), "about:blank",
    ]  # fmt: skip
    port = folder / "DevToolsActivePort"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as browser:
        try:
            while not (port.exists() and "\n" in port.read_text()):
                assert browser.poll() is None, "the browser does not start"
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port.read_text().splitlines()[0]}"
        finally:
            browser.terminate()


def test_a_crawl_uses_a_running_browser_behind_the_guard_and_leaves_it_as_it_was(serve, tmp_path):
    require_browser()
    forbidden = Scripted({"/": Answer(b"secret")})
    target = serve(forbidden, hosts=2).url_of(origin_index=1)
    script = f"<script src='{target}'></script><script>document.write('<h1>fine</h1>')</script>"
    pages = {
        "/": Answer(script.encode()),
        "/away": Answer(f"<script>location = '{target}'</script>".encode()),
    }
    urls = [serve(Scripted(pages)).url_of(path) for path in pages]
    with running_browser(tmp_path / "profile") as address:

        def targets():
            with urlopen(f"{address}/json/list") as listed:
                return [(target["type"], target["url"]) for target in json.load(listed)]

        before = targets()
        result = skitter(
            "crawl", *urls, "--browser", "--no-robots", "--quiet", "-o", "pages.jsonl", "-s", f"browser_url={address}",
            "-s", "allow_networks=127.0.0.1/32", "-s", "seeds_open_networks=no", cwd=tmp_path,
        )  # fmt: skip
        assert targets() == before, "what the crawl has opened is closed, and the browser still runs"
    assert [item["url"] for item in items(tmp_path / "pages.jsonl")] == urls[:1], result.stderr
    assert forbidden.visits == []


def test_a_running_browser_that_is_unavailable_is_named_with_the_remedy(serve, free_port, tmp_path):
    require_browser()
    arguments = ["--browser", serve(javascript_site).url_of("/js/1"), "--no-robots"]
    result = skitter("fetch", *arguments, "-s", f"browser_url=http://127.0.0.1:{free_port}", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("skitter: ")]
    assert "browser_url" in line
    assert "start it" in line


def test_doctor_names_the_browser_and_starts_it(tmp_path):
    require_browser()
    result = skitter("doctor", "--start", cwd=tmp_path)
    assert result.returncode == 0, result.stdout
    assert "chromium    starts" in result.stdout.splitlines()


def test_a_missing_browser_is_one_line_with_the_command_that_installs_it(serve, tmp_path):
    url = serve(javascript_site).url_of("/js/1")
    line = usage_error(
        "crawl", url, "--browser", "-s", "browser_executable=no-such-browser", "--quiet", cwd=tmp_path
    )
    assert "no-such-browser" in line


def test_crawl_adaptive_finds_the_links_that_scripts_make(serve, tmp_path):
    require_browser()
    url = serve(JavaScriptSite(products=3)).url
    arguments = [
        "--adaptive",
        "--no-robots",
        "--quiet",
        "-o",
        "pages.jsonl",
        "-s",
        "wait_until=networkidle",
        "--job",
        "a",
    ]
    result = skitter("crawl", url, *arguments, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    paths = sorted(item["url"].removeprefix(url) for item in items(tmp_path / "pages.jsonl"))
    assert paths == ["", "about", "product/0", "product/1", "product/2"]
    rules = json.loads(skitter("browser-rules", "a", "--json", cwd=tmp_path).stdout)
    assert [key.partition("/")[2] for key in rules] == ["", "product/*"]
    assert "deleted 2 rules" in skitter("browser-rules", "a", "--reset", cwd=tmp_path).stderr
    assert json.loads(skitter("browser-rules", "a", "--json", cwd=tmp_path).stdout) == {}


def test_a_recipe_names_the_actions_of_its_pages(serve, tmp_path):
    require_browser()
    (tmp_path / "words.yaml").write_text(RECIPE.format(url=serve(javascript_site).url_of("/more")))
    result = skitter("run", "words.yaml", "-o", "items.jsonl", "--quiet", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert [item["word"] for item in items(tmp_path / "items.jsonl")] == list(WORDS)


def test_a_recipe_with_an_unknown_action_is_refused(tmp_path):
    text = RECIPE.format(url="http://127.0.0.1/").replace("load_more", "fly")
    (tmp_path / "words.yaml").write_text(text)
    result = skitter("recipe", "check", "words.yaml", cwd=tmp_path)
    assert result.returncode == 2
    assert "pages.list.actions" in result.stderr


def test_a_collector_visits_with_the_browser(serve, tmp_path):
    require_browser()
    (tmp_path / "crawler.py").write_text(COLLECTOR.format(url=serve(javascript_site).url_of("/js/4")))
    result = skitter("run", "crawler.py", "-o", "items.jsonl", "--quiet", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert items(tmp_path / "items.jsonl") == [{"title": "page 4"}]
