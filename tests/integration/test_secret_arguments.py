"""Secrets on the command line and in the API: they are in no process list, file, log or answer."""

import base64
import json
import threading
import time

import psutil
import pytest

from api_caller import Caller, application
from cli_command import Running, skitter, urls_of, usage_error
from sites.gated import gated
from skitter.service.recipe_trial import TrialCommand, run_trial
from skitter.testing import Answer

WORD = "hunter2hunter2"
BASIC = base64.b64encode(f"ann:{WORD}".encode()).decode()
SPIDER = """
from skitter import Spider

class Shop(Spider):
    def __init__(self, url, password):
        super().__init__()
        self.start_urls = [url]
        self.hooks = [self]
        self.password = password

    def before_send(self, request):
        return request.replace(headers={**request.headers, "X-Password": self.password})

    def parse(self, response):
        yield {"url": response.url}
        yield response.follow_all("a")
"""


class Guarded:
    """Answers requests with all secrets. Only the first ones wait until ``released`` is set. ``/gone`` is missing."""

    def __init__(self):
        self.released = threading.Event()
        self.reached = threading.Event()
        self.refused = []

    def __call__(self, visit):
        wanted = {"authorization": f"Basic {BASIC}", "x-password": WORD, "x-api-key": WORD}
        if any(visit.headers.get(name) != value for name, value in wanted.items()):
            self.refused.append(visit.target)
            return Answer(status=403)
        if visit.target == "/gone":
            return Answer(status=404)
        if visit.target == "/":
            links = "".join(f"<a href=/{number}>x</a>" for number in range(20)) + "<a href=/gone>x</a>"
            return Answer(links.encode())
        self.reached.set()
        return gated(Answer(b"page"), self.released.is_set)


def processes_of(run, workers):
    """Return the processes of a run and of its workers, once all have been started."""
    owner = psutil.Process(run.process.pid)
    while len(found := owner.children(recursive=True)) < workers:
        assert run.process.poll() is None
        time.sleep(0.02)  # polls another process
    return [owner, *found]


def interrupted(run, site):
    """Interrupt a run whose responses are held back, and release them afterwards. Return status, stdout and stderr."""
    run.interrupt()
    lines = [""]
    while "press Ctrl-C again" not in lines[-1]:
        lines.append(run.process.stderr.readline())
        assert lines[-1], "".join(lines)
    site.released.set()
    status, out, err = run.end()
    return status, out, "".join(lines) + err


def leaks_in(folder):
    """Return the files that contain a secret."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any(path.suffix == ".db" for path in files)  # the frontier
    return [
        path for path in files if any(word in path.read_bytes() for word in (WORD.encode(), BASIC.encode()))
    ]


def test_secrets_of_a_command_are_in_no_process_list_file_or_output_and_the_command_continues(
    serve, tmp_path
):
    site = Guarded()
    server = serve(site)
    (tmp_path / "shop.py").write_text(SPIDER)
    url = server.url.replace("://", f"://ann:{WORD}@")
    words = (
        "run", "shop.py", "--no-robots", "--delay", 0, "--workers", 2, "-o", "items.jsonl", "--summary", "sum.json",
        "--log-level", "debug", "--log-file", "shop.log", "-a", f"url={url}", "-a", f"password={WORD}", "-s", f'headers={{"X-Api-Key": "{WORD}"}}',
    )  # fmt: skip
    with Running(*words, cwd=tmp_path) as run:
        assert site.reached.wait(60)
        processes = processes_of(run, 2)
        assert len(processes) == 3
        for process in processes:
            assert WORD not in " ".join(process.cmdline())
            assert WORD not in " ".join(process.environ().values())
        assert "shop.py" in processes[0].cmdline()
        answers = [
            skitter(*command, cwd=tmp_path)
            for command in (("status", "shop", "--json"), ("jobs", "--json"), ("top", "--json"))
        ]
        status, out, err = interrupted(run, site)
    assert status == 130, err
    assert leaks_in(tmp_path) == []
    line = usage_error("resume", "shop", cwd=tmp_path)
    assert "passwords in argument url and argument password and headers, which are not stored" in line
    assert "env:NAME or file:PATH" in line
    assert skitter("add", "shop", f"{server.url}0", cwd=tmp_path).returncode == 0
    ended = skitter(*words, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    answers += [
        ended,
        *(
            skitter("failures", *words, "shop", cwd=tmp_path)
            for words in (["list"], ["show"], ["list", "--json"])
        ),
        skitter("status", "shop", "--json", cwd=tmp_path),
        skitter("report", "shop", cwd=tmp_path),
    ]
    assert "/gone" in answers[-3].stdout
    assert leaks_in(tmp_path) == []
    for text in (out, err, *(answer.stdout + answer.stderr for answer in answers)):
        assert WORD not in text
        assert BASIC not in text
    assert urls_of(tmp_path / "items.jsonl") == sorted([server.url, *(f"{server.url}{n}" for n in range(20))])
    assert site.refused == []


def test_a_job_with_references_is_resumed_with_its_secrets_alone(serve, tmp_path, monkeypatch):
    site = Guarded()
    server = serve(site)
    (tmp_path / "shop.py").write_text(SPIDER)
    (tmp_path / "word").write_text(WORD)
    words = (
        "run", "shop.py", "--no-robots", "--delay", 0, "-o", "items.jsonl", "-a", f"url={server.url}", "-a", "password=file:word",
        "-s", f'credentials={{"{server.url}": "env:LOGIN"}}', "-s", 'headers={"X-Api-Key": "env:KEY"}',
    )  # fmt: skip
    monkeypatch.setenv("LOGIN", f"ann:{WORD}")
    monkeypatch.setenv("KEY", WORD)
    with Running(*words, cwd=tmp_path) as run:
        assert site.reached.wait(60)
        status, _, err = interrupted(run, site)
    assert status == 130, err
    monkeypatch.delenv("KEY")
    line = usage_error("resume", "shop", cwd=tmp_path)
    assert "header X-Api-Key names the environment variable 'KEY', which is not set; export KEY" in line
    assert skitter("add", "shop", f"{server.url}1", cwd=tmp_path).returncode == 0
    monkeypatch.setenv("KEY", WORD)
    ended = skitter("resume", "shop", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert urls_of(tmp_path / "items.jsonl") == sorted([server.url, *(f"{server.url}{n}" for n in range(20))])
    assert site.refused == []
    assert leaks_in(tmp_path) == [tmp_path / "word"]


RECIPE = """
name: web
variables: {password: x}
start: http://127.0.0.1:1/
pages: {p: {items: {fields: {password: {value: "${password}"}}}}}
"""


@pytest.fixture
async def call(tmp_path):
    app, jobs = application(tmp_path)
    await jobs.store.open()
    call = Caller(app)
    call.jobs = jobs
    yield call
    await jobs.store.close()


async def test_the_api_shows_no_secret_of_a_job_and_a_caller_reads_no_secret_of_a_node(call):
    assert (await call("PUT", "/recipes/web", RECIPE, kind="application/yaml"))[0] == 201
    body = {
        "name": "web", "recipe": "web", "arguments": {"password": WORD},
        "settings": {"headers": {"Authorization": WORD, "X-Other": "env:HOME"}},
    }  # fmt: skip
    status, created = await call("POST", "/jobs", body)
    assert status == 201, created
    answers = [
        created,
        *[(await call("GET", path))[1] for path in ("/jobs", "/jobs/web", "/jobs?figures=true", "/audit")],
    ]
    assert WORD not in str(answers)
    assert answers[2]["arguments"] == {"password": "***"}
    job = await call.jobs.records.job("web")
    spec = call.jobs.config.spec(job, job.run)
    assert spec.arguments == {"password": WORD}
    assert not spec.reads_references


async def test_a_trial_of_a_recipe_reads_no_file_for_its_caller(serve):
    server = serve(lambda _: Answer(b"page"))
    order = TrialCommand(
        RECIPE.replace("http://127.0.0.1:1/", server.url), "yaml", {"password": "file:/etc/hostname"}, None, "",
        {"allow_networks": ["127.0.0.0/8"]},
    )  # fmt: skip
    result = await run_trial(order)
    assert result.error == ""
    assert [json.loads(bytes(item)) for item in result.items] == [{"password": "file:/etc/hostname"}]
