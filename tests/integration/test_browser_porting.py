"""Features of scrapy-playwright and crawlee's PlaywrightCrawler: recorded answers, initial scripts, context options."""

import json

import pytest

from browsers import crawl_headings as crawl
from browsers import require_browser
from crawl_harness import Scripted
from skitter import Request
from skitter.browser.executable import check_settings
from skitter.browsing import Click, Hover, Wait
from skitter.errors import RequestError, SettingsError
from skitter.settings import Settings
from skitter.testing import Answer


@pytest.fixture(autouse=True, scope="module")
def browser():
    require_browser()


def html(text):
    return Answer(f"<!doctype html><title>t</title>{text}".encode())


def data(value):
    return Answer(json.dumps(value).encode(), content_type="application/json")


async def test_answers_that_match_a_pattern_are_recorded_with_their_bodies(serve, tmp_path):
    script = """<h1>shop</h1><button id=more>more</button><script>
        fetch('/api/items?page=1'); fetch('/other');
        more.onclick = () => fetch('/api/items?page=2').then(() => more.remove());
    </script>"""
    site = Scripted({
        "/": html(script),
        "/plain": html("<h1>plain</h1><script>fetch('/other')</script>"),
        "/api/items?page=1": data([1, 2]),
        "/api/items?page=2": data([3]),
        "/other": data("no"),
    })  # fmt: skip
    url = serve(site).url_of
    options = {"record": "/api/items", "actions": [Click("#more"), Wait("#more", state="detached")]}
    requests = [Request(url("/"), browsing=options), Request(url("/plain"))]
    _, ran = await crawl(tmp_path, requests, browser_pages=1)
    captured = {item["path"]: item["captured"] for item in ran.items}
    answers = captured["/"]["responses"]
    assert sorted((answer["url"], answer["status"], json.loads(answer["body"])) for answer in answers) == [
        (url("/api/items?page=1"), 200, [1, 2]),
        (url("/api/items?page=2"), 200, [3]),
    ]
    assert captured["/plain"] == {}


async def test_a_script_of_the_request_runs_before_those_of_its_page_only(serve, tmp_path):
    body = "<h1></h1><script>document.querySelector('h1').textContent = typeof mine</script>"
    url = serve(Scripted({"/with": html(body), "/without": html(body)})).url_of
    requests = [Request(url("/with"), browsing={"init_script": "window.mine = 1"}), Request(url("/without"))]
    found, _ = await crawl(tmp_path, requests, concurrency=1, browser_pages=1)
    assert found == {
        "/with": "number",
        "/without": "undefined",
    }


async def test_a_menu_opens_below_the_mouse(serve, tmp_path):
    body = """<style>#in {display: none} #menu:hover #in {display: block}</style><h1>menu</h1>
        <div id=menu>menu<a id=in href=/inside>in</a></div>"""
    url = serve(Scripted({"/": html(body), "/inside": html("<h1>inside</h1>")})).url
    actions = [Hover("#menu"), Wait("#in", state="visible"), Click("#in"), Wait("h1")]
    found, _ = await crawl(tmp_path, [Request(url, browsing={"actions": actions})])
    assert found == {"/inside": "inside"}


async def test_the_context_has_the_options_of_the_settings(serve, tmp_path):
    body = """<h1></h1><script>document.querySelector('h1').textContent = JSON.stringify([
        innerWidth, navigator.language, Intl.DateTimeFormat().resolvedOptions().timeZone])</script>"""
    url = serve(Scripted({"/": html(body)})).url
    options = {"viewport": {"width": 500, "height": 700}, "locale": "de-DE", "timezone_id": "Europe/Berlin"}
    found, _ = await crawl(tmp_path, [Request(url)], browser_context=options)
    assert json.loads(found["/"]) == [500, "de-DE", "Europe/Berlin"]


def test_an_option_that_other_settings_decide_is_refused():
    with pytest.raises(SettingsError, match="proxy") as caught:
        check_settings(Settings(browser_context={"proxy": {"server": "http://127.0.0.1:1"}}))
    assert caught.value.field == "browser_context"


def test_a_wrong_pattern_is_refused_with_its_field():
    with pytest.raises(RequestError, match="record") as caught:
        Request("http://site.test/", browsing={"record": "("})
    assert caught.value.field.startswith("browsing")
