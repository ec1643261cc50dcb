"""Crawls with signed requests, the command that creates a key, and the directory of a service."""

import json
import stat
from types import SimpleNamespace

import pytest

from api_caller import Caller, application
from cli_command import skitter, usage_error
from crawl_harness import CrawlHarness, page, redirect
from signed_messages import request, verify
from skitter import Request, Spider
from skitter.errors import SettingsError
from skitter.fetch.http import HttpFetcher
from skitter.fetch.signatures import DIRECTORY_PATH, SigningKey, new_signing_key
from skitter.service.config import ServiceConfig
from skitter.service.models import JobRecord, JobRun, StoredRecipe
from skitter.settings import Settings
from skitter.testing import Answer

AGENT = "https://bot.example.com"


class Follower(Spider):
    async def start(self):
        yield Request(self.url)

    def parse(self, response):
        yield {"url": response.url, "headers": [name.lower() for name in response.request.headers]}
        yield response.follow_all("a")


class Visited:
    """A site that records its visits. The page /late fails once."""

    def __init__(self):
        self.visits = []

    def __call__(self, visit):
        self.visits.append(visit)
        if visit.target == "/moved":
            return redirect("/target")
        if visit.target == "/late" and [seen.target for seen in self.visits].count("/late") == 1:
            return Answer(status=503)
        return page("/moved", "/late") if visit.target == "/" else Answer(b"page")


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "key.pem"
    path.write_text(new_signing_key())
    return path


@pytest.fixture
def key(key_file):
    return SigningKey(key_file.read_text())


async def test_every_request_of_a_crawl_is_signed(serve, tmp_path, key_file, key):
    site = Visited()
    server = serve(site)
    settings = {"signing_key": f"file:{key_file}", "signature_agent": AGENT}
    ran = await CrawlHarness(Follower(url=server.url), tmp_path, **settings).run()
    assert sorted(visit.target for visit in site.visits) == [
        "/",
        "/late",
        "/late",
        "/moved",
        "/robots.txt",
        "/target",
    ]
    nonces = set()
    for visit in site.visits:
        result = verify(request(server.url.rstrip("/") + visit.target, visit.headers), key.directory())
        assert result.covered_components['"signature-agent";key="sig1"'] == f'"{AGENT}"'
        nonces.add(result.parameters["nonce"])
    assert len(nonces) == len(site.visits)
    assert not any("signature" in item["headers"] for item in ran.items), (
        "callbacks see the request of the queue"
    )


async def test_requests_are_unsigned_by_default(serve, tmp_path):
    site = Visited()
    await CrawlHarness(Follower(url=serve(site).url), tmp_path).run()
    assert not any(name.startswith("signature") for visit in site.visits for name in visit.headers)


async def test_a_fetcher_with_half_of_the_settings_is_refused():
    with pytest.raises(SettingsError):
        await HttpFetcher(Settings(signature_agent=AGENT)).open()


def test_the_command_creates_a_key_once_and_prints_its_directory(tmp_path):
    made = skitter("signing-key", "key.pem", cwd=tmp_path)
    assert made.stderr == "created the private key key.pem\n"
    path = tmp_path / "key.pem"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = skitter("signing-key", "key.pem", cwd=tmp_path)
    assert (again.stdout, again.stderr) == (made.stdout, "")
    assert json.loads(made.stdout) == json.loads(SigningKey.load(f"file:{path}").directory())
    private = path.read_text().splitlines()[1]
    assert private not in made.stdout


@pytest.mark.parametrize("arguments", [("missing/key.pem",), (".",)])
def test_a_key_that_cannot_be_written_is_one_line(arguments, tmp_path):
    usage_error("signing-key", *arguments, cwd=tmp_path)


def test_a_file_with_something_else_is_left_alone(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("notes")
    usage_error("signing-key", "notes.txt", cwd=tmp_path)
    assert path.read_text() == "notes"


def test_a_crawl_with_a_missing_key_is_refused(serve, tmp_path):
    url = serve(Visited()).url
    line = usage_error(
        "crawl", url, "-s", "signing_key=file:missing.pem", "-s", f"signature_agent={AGENT}", cwd=tmp_path
    )
    assert "missing.pem" in line


@pytest.mark.parametrize("option", [("--signing-key", "file:missing.pem"), ("--signature-agent", AGENT)])
def test_a_node_with_an_invalid_key_does_not_start(option, tmp_path):
    usage_error("serve", "--port", "0", *option, cwd=tmp_path)


async def test_a_service_publishes_its_key_without_a_token(tmp_path, key):
    app, jobs = application(tmp_path, signing_key=key)
    await jobs.store.open()
    call = Caller(app)
    status, directory = await call("GET", DIRECTORY_PATH, token=None, headers={"host": "bot.example.com"})
    assert status == 200
    assert call.headers[b"content-type"] == b"application/http-message-signatures-directory+json"
    headers = {name.decode(): value.decode() for name, value in call.headers.items()}
    answer = SimpleNamespace(
        status_code=200, headers=headers, request=request(f"{AGENT}{DIRECTORY_PATH}", {})
    )
    assert verify(answer, json.dumps(directory)).parameters["tag"] == "http-message-signatures-directory"
    await jobs.store.close()


async def test_a_service_signs_the_requests_of_all_jobs(tmp_path):
    config = ServiceConfig(tmp_path, signing_key="file:key.pem", signature_agent=AGENT)
    recipe = StoredRecipe(name="web", text="", syntax="yaml")
    job = JobRecord(
        name="web", recipe="web", settings={"delay": 1}, run=JobRun(id="web.1", began=0, recipe=recipe)
    )
    settings = config.spec(job, job.run).settings
    assert (settings["signing_key"], settings["signature_agent"], settings["delay"]) == (
        "file:key.pem",
        AGENT,
        1,
    )


async def test_a_service_without_a_key_has_no_directory(tmp_path):
    app, jobs = application(tmp_path)
    await jobs.store.open()
    assert (await Caller(app)("GET", DIRECTORY_PATH, token=None))[0] == 404
    await jobs.store.close()
