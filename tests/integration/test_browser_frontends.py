"""Browser pages in the other front ends: the command line, recipes and the collector."""

import json

import pytest

from browsers import require_browser
from cli_command import complaint, skitter
from sites.javascript import WORDS, javascript_site
from skitter.testing.javascript_site import JavaScriptSite

pytestmark = pytest.mark.timeout(180)
RECIPE = """
name: words
start: {url}
pages:
  list:
    fetch: browser
    wait_for: li
    actions:
      - {{do: load_more, selector: "#more", timeout: 3}}
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


def test_doctor_names_the_browser_and_starts_it(tmp_path):
    require_browser()
    result = skitter("doctor", "--start", cwd=tmp_path)
    assert result.returncode == 0, result.stdout
    assert "chromium    starts" in result.stdout.splitlines()


def test_a_missing_browser_is_one_line_with_the_command_that_installs_it(serve, tmp_path):
    url = serve(javascript_site).url_of("/js/1")
    line = complaint(
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
    assert "forgot 2 rules" in skitter("browser-rules", "a", "--reset", cwd=tmp_path).stderr
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
