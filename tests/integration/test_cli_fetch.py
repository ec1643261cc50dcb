"""`skitter fetch` and `skitter shell`: single pages as a job would fetch them."""

import os
import re

import pytest

from cli_command import skitter
from skitter.testing import Answer


def site(visit):
    if visit.path == "/robots.txt":
        return Answer(b"User-agent: *\nDisallow: /private", content_type="text/plain")
    if visit.path == "/moved":
        return Answer(status=302, headers={"Location": "/page"})
    if visit.path == "/trap":
        return Answer(status=302, headers={"Location": "/private"})
    if visit.path == "/page":
        agent = visit.headers["user-agent"]
        return Answer(f"<title>Käse</title><p>{agent}</p>".encode(), headers={"X-Shelf": "3"})
    return Answer(b"gone", status=404) if visit.path == "/gone" else Answer(b"secret")


def test_fetch_follows_redirects_and_prints_the_body_alone(serve, tmp_path):
    server = serve(site)
    result = skitter("fetch", server.url_of("/moved"), "-s", "user_agent=tester", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "<title>Käse</title><p>tester</p>"


def test_verbose_shows_redirects_and_headers_on_standard_error(serve, tmp_path):
    server = serve(site)
    result = skitter("fetch", "-v", server.url_of("/moved"), cwd=tmp_path)
    assert f"> {server.url_of('/moved')} redirects" in result.stderr
    assert "< X-Shelf: 3" in result.stderr
    assert "Käse" in result.stdout


def test_robots_txt_is_obeyed_at_every_redirect_unless_disabled(serve, tmp_path):
    server = serve(site)
    for path in ("/private", "/trap"):
        refused = skitter("fetch", server.url_of(path), cwd=tmp_path)
        assert refused.returncode == 2
        assert refused.stdout == ""
        assert f"robots.txt forbids {server.url_of('/private')}; use --no-robots" in refused.stderr
    assert skitter("fetch", server.url_of("/private"), "--no-robots", cwd=tmp_path).stdout == "secret"


def test_a_status_other_than_success_is_shown_beside_the_body(serve, tmp_path):
    result = skitter("fetch", serve(site).url_of("/gone"), cwd=tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "gone", "status 404\n")


@pytest.mark.parametrize("command", [("fetch",), ("shell", "--code", "response")])
def test_no_answer_is_one_line_and_exit_1(free_port, tmp_path, command):
    result = skitter(*command, f"http://127.0.0.1:{free_port}/", "--no-robots", cwd=tmp_path)
    assert result.returncode == 1
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("skitter: connect: ")


@pytest.fixture(params=["Python", "IPython"])
def prompt(request, tmp_path):
    """The environment of a command in which ``skitter shell`` has this prompt."""
    if request.param == "IPython":
        return {"IPYTHONDIR": str(tmp_path / "ipython")}
    folder = tmp_path / "without-ipython"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("import sys\nsys.modules['IPython'] = None\n")
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)}


def test_the_shell_has_the_response_and_fetches_others(serve, tmp_path, prompt):
    server = serve(site)
    commands = (
        "print('title:', response.css('title::text').get(), response.status)\n"
        f"print('status:', fetch({server.url_of('/gone')!r}).status)\n"
        "print('body:', response.body)\n"
    )
    result = skitter("shell", server.url_of("/page"), cwd=tmp_path, stdin=commands, environment=prompt)
    assert result.returncode == 0, result.stderr
    printed = [re.sub(r"^(>>> |In \[\d+\]: )+", "", line) for line in result.stdout.splitlines()]
    assert [line for line in printed if line.startswith(("title:", "status:", "body:"))] == [
        "title: Käse 200",
        "status: 404",
        "body: b'gone'",
    ]


def test_the_shell_has_the_request_of_the_last_response(serve, tmp_path, prompt):
    address = serve(site).url_of
    commands = f"print('url:', request.url)\nr = fetch(Request('{address('/gone')}', meta={{'page': 2}}))\nprint('meta:', request.meta)\n"
    result = skitter("shell", address("/page"), cwd=tmp_path, stdin=commands, environment=prompt)
    assert f"url: {address('/page')}\n" in result.stdout
    assert "meta: {'page': 2}\n" in result.stdout


def test_a_page_that_the_shell_cannot_fetch_is_one_line(serve, free_port, tmp_path, prompt):
    commands = f"fetch('http://127.0.0.1:{free_port}/')\nprint('still here')\n"
    result = skitter(
        "shell", serve(site).url_of("/page"), "--no-robots", cwd=tmp_path, stdin=commands, environment=prompt
    )
    assert "Traceback" not in result.stdout + result.stderr
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("skitter: ")]
    assert f"127.0.0.1:{free_port}" in line
    assert "still here" in result.stdout


def test_the_shell_prints_the_value_of_an_expression(serve, tmp_path):
    url = serve(site).url_of("/page")
    result = skitter("shell", url, "-c", "response.css('title::text').get()", cwd=tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "Käse\n", "")
    result = skitter("shell", "--code", "request", url, cwd=tmp_path)
    assert result.stdout == f"Request(url='{url}')\n"  # defaults are omitted


@pytest.mark.parametrize(
    ("code", "status", "problem"),
    [
        ("x = 1", 2, "is not an expression: invalid syntax; write one expression"),
        (
            "response.titel",
            1,
            "AttributeError: 'Response' object has no attribute 'titel'; correct the expression",
        ),
        ("response.css('a[')", 2, "invalid CSS query 'a['"),
    ],
)
def test_an_expression_that_has_no_value_is_one_line(serve, tmp_path, code, status, problem):
    result = skitter("shell", serve(site).url_of("/page"), "-c", code, cwd=tmp_path)
    assert result.returncode == status
    (line,) = result.stderr.splitlines()
    assert problem in line


@pytest.mark.parametrize("call", ["view()", "view(response)"])
def test_the_shell_shows_the_response_in_a_browser(serve, tmp_path, call):
    result = skitter(
        "shell", serve(site).url_of("/page"), cwd=tmp_path, stdin=f"print({call})\n",
        environment={"BROWSER": "echo shown %s", "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert f"shown file://{tmp_path}/skitter-" in result.stdout
    (page,) = tmp_path.glob("skitter-*.html")
    assert "Käse" in page.read_text()
