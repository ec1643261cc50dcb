"""Attacks on a service by a caller with a valid token: forbidden resources, and limits on consumption."""

import asyncio
import os
import stat
from functools import partial

import pytest

from api_caller import TOKEN, Caller, application
from cli_command import usage_error
from skitter.service.api import auth
from skitter.service.api.access import ApiTokens
from skitter.service.api.auth import RequestRate
from skitter.service.node import Node
from skitter.service.recipe_check import RecipeChecker
from skitter.testing import Answer

RECIPE = "name: web\nstart: {url}\npages:\n  p: {{items: {{fields: {{url: {{value: '{{url}}'}}}}}}}}\n"


@pytest.fixture
async def call(tmp_path):
    app, jobs = application(tmp_path, max_jobs=3, max_processes=8)
    await jobs.store.open()
    yield Caller(app)
    await jobs.store.close()


async def put(call, text, kind="yaml"):
    return await call("PUT", "/recipes/web", text, kind=f"application/{kind}")


# --- recipes that exhaust a parser -------------------------------------------------------------------------------

ALIASES = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 10)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (ALIASES, "yaml"),
        ("name: " + "[" * 9000, "yaml"),
        ("name: " + "[" * 4000 + "]" * 4000, "yaml"),
        ("name: " + "{a: " * 2000, "yaml"),
        ("name: &a [*a]", "yaml"),
        ("name: " + "9" * 9000, "yaml"),
        ("name: !!python/object/apply:os.system ['true']", "yaml"),
        ("name = " + "[" * 9000, "toml"),
        ("name = " + "9" * 9000, "toml"),
        (".".join("a" * 4000) + " = 1", "toml"),
        ("variables: {a: '" + "x" * 4000 + "'}\nname: '" + "${a}" * 1400 + "'", "yaml"),
        (RECIPE.format(url="http://x/").replace("value: '{url}'", "css: '" + "a>" * 4000 + "a'"), "yaml"),
        (RECIPE.format(url="http://x/").replace("value: '{url}'", "json: '" + "[" * 9000 + "'"), "yaml"),
    ],
    ids=["aliases", "brackets", "closed", "braces", "recursive", "digits", "tag", "toml-brackets", "toml-digits", "toml-dots",
         "variables", "css", "jmespath"],
)  # fmt: skip
async def test_a_recipe_that_exhausts_a_parser_is_refused_and_the_next_one_is_read(call, text, kind):
    async with asyncio.timeout(60):
        status, problem = await put(call, text, kind)
    assert status == 422
    assert problem["errors"]
    assert (await put(call, RECIPE.format(url="http://x/")))[0] == 201


async def test_a_checker_that_dies_is_a_refusal_and_the_next_recipe_is_checked(tmp_path):
    app, jobs = application(tmp_path, checker=RecipeChecker())
    await jobs.store.open()
    call = Caller(app)
    assert (await put(call, RECIPE.format(url="http://x/")))[0] == 201
    os.kill(jobs.checker._process.pid, 9)
    assert (await put(call, RECIPE.format(url="http://x/")))[0] == 422
    assert (await put(call, RECIPE.format(url="http://x/")))[0] == 200
    await jobs.store.close()
    jobs.checker.close()


# --- settings of the operator ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"proxy": "http://127.0.0.1:1"}, {"proxies": ["http://127.0.0.1:1"]}, {"proxies": "file:/etc/passwd"},
        {"cookie_file": "/etc/passwd"}, {"ca_file": "/etc/passwd"}, {"cache_dir": "/tmp"}, {"fetcher": "os:system"},
        {"user_agents": "file:/etc/passwd"}, {"sessions": "os:system"}, {"cookies": "os:system"}, {"verify_tls": False},
        {"allow_networks": ["0.0.0.0/0"]}, {"seeds_open_networks": True}, {"seed_keys": ["other"]}, {"durability": "machine"},
        {"group_counter_prefix": "x"}, {"nonsense": 1}, {"signing_key": "file:/etc/passwd"}, {"signature_agent": "https://x"},
        {"fetcher_rules": [{"domain_glob": "*", "fetcher": "os:abort"}]},
        {"concurrency": 1_001}, {"max_body": 2**30}, {"max_page_memory": 2**31}, {"browser_pages": 33}, {"page_memory": 2**33},
        {"page_max_bytes": 2**30}, {"max_links": 10**6}, {"queues": {"a": {"concurrency": 1_001}}}, {"max_pages": 2**53},
    ],
    ids=lambda settings: next(iter(settings)),
)  # fmt: skip
async def test_settings_of_files_code_proxies_and_networks_are_the_operators(call, settings):
    await put(call, RECIPE.format(url="http://x/"))
    status, problem = await call("POST", "/jobs", {"name": "j", "recipe": "web", "settings": settings})
    assert (status, problem["errors"][0]["field"]) == (422, f"settings.{next(iter(settings))}")
    text = RECIPE.format(url="http://x/") + f"settings: {settings!r}\n".replace("True", "true")
    assert (await put(call, text))[0] == 422


@pytest.mark.parametrize(
    "output",
    [
        "/tmp/x.jsonl",
        "../x.csv",
        "redis://127.0.0.1/0",
        "s3://bucket/x",
        "postgresql://127.0.0.1/x",
        "file:///etc/x",
        "-",
    ],
)
async def test_a_recipe_writes_nowhere(call, output):
    status, problem = await put(call, RECIPE.format(url="http://x/") + f"outputs: ['{output}']\n")
    assert status == 422
    assert problem["errors"][0]["field"] in {
        "outputs",
        "recipe",
    }  # an unknown kind of output is a mistake in the recipe


async def test_a_recipe_reads_only_variables_of_the_environment_with_the_prefix(tmp_path, monkeypatch):
    monkeypatch.setenv("SKITTER_RECIPE_MINE", "http://x/")
    app, jobs = application(tmp_path, checker=RecipeChecker())
    await jobs.store.open()
    call = Caller(app)
    await put(call, RECIPE.format(url="${env.MINE}"))
    assert (await call("POST", "/jobs", {"name": "good", "recipe": "web", "start": False}))[0] == 201
    for name in ("SKITTER_SERVE_TOKEN", "HOME", "PATH", "../HOME"):
        await put(call, RECIPE.format(url="${env." + name + "}"))
        status, _ = await call("POST", "/jobs", {"name": "bad", "recipe": "web", "start": False})
        assert status == 422, name
    await jobs.store.close()
    jobs.checker.close()


# --- addresses ---------------------------------------------------------------------------------------------------


async def test_the_seeds_of_callers_open_no_network(tmp_path, serve):
    site = serve(lambda _: Answer(b"ok"), hosts=2)
    forbidden = site.url_of("/", 1)
    app, jobs = application(tmp_path, Node)
    await jobs.store.open()
    call, stopping = Caller(app), asyncio.Event()
    await put(call, RECIPE.format(url=f"['{site.url}', '{forbidden}']"))
    settings = {"robots": False, "wait_for_seeds": True}
    work = asyncio.create_task(Node(jobs).work(stopping))
    await call("POST", "/jobs", {"name": "j", "recipe": "web", "settings": settings})
    async with asyncio.timeout(60):
        more = [forbidden + "seed", {"url": forbidden.replace("127.0.0.2", "127.2") + "spelled"}]
        while (await call("POST", "/jobs/j/seeds", {"seeds": more}))[0] == 409:  # it has not started yet
            await asyncio.sleep(0.1)
        while len((failures := await call("GET", "/jobs/j/failures"))[1]["failures"]) < 3:
            await asyncio.sleep(0.1)
        for seed in (
            {"url": site.url, "proxy": forbidden},
            {"url": site.url, "fetcher": "os:abort"},
            {"url": site.url, "max_body": 2**30},
            f'{{"url": "{site.url}", "proxy": "{forbidden}"}}',
        ):
            assert (await call("POST", "/jobs/j/seeds", {"seeds": [seed]}))[0] == 422
    stopping.set()
    await work
    await jobs.store.close()
    assert {failure["error"].partition(":")[0] for failure in failures[1]["failures"]} == {"forbidden"}
    assert {hit.host for hit in site.log.hits} == {"127.0.0.1"}


# --- limits ------------------------------------------------------------------------------------------------------


async def test_the_numbers_of_jobs_and_recipes_are_limited(call):
    for number in range(3):
        assert (await call("PUT", f"/recipes/r{number}", RECIPE.format(url="http://x/"), kind="yaml"))[
            0
        ] == 201
        assert (await call("POST", "/jobs", {"name": f"j{number}", "recipe": "r0", "start": False}))[0] == 201
    assert (await call("PUT", "/recipes/r3", RECIPE.format(url="http://x/"), kind="yaml"))[0] == 422
    assert (await call("POST", "/jobs", {"name": "j3", "recipe": "r0", "start": False}))[0] == 422
    assert (await call("PUT", "/recipes/r0", RECIPE.format(url="http://y/"), kind="yaml"))[0] == 200
    assert (await call("POST", "/jobs", {"name": "j0", "recipe": "r0", "start": False}))[0] == 409
    assert (await call("DELETE", "/jobs/j0"))[0] == 204
    assert (await call("POST", "/jobs", {"name": "j3", "recipe": "r0", "start": False}))[0] == 201


async def test_a_job_with_more_processes_than_a_node_runs_is_refused(call):
    await put(call, RECIPE.format(url="http://x/"))
    job = {"name": "j", "recipe": "web", "workers": 9, "start": False}
    status, problem = await call("POST", "/jobs", job)
    assert (status, problem["errors"][0]["field"]) == (422, "workers")
    assert (await call("POST", "/jobs", {**job, "workers": 8}))[0] == 201


async def test_a_job_waits_while_a_node_runs_as_many_processes_as_it_may(tmp_path, serve):
    site = serve(lambda _: Answer(b"ok"))
    app, jobs = application(tmp_path, Node, max_processes=1)
    await jobs.store.open()
    call, stopping = Caller(app), asyncio.Event()
    await put(call, RECIPE.format(url=site.url))
    settings = {"robots": False, "wait_for_seeds": True}
    await call("POST", "/jobs", {"name": "a", "recipe": "web", "settings": settings})
    await call("POST", "/jobs", {"name": "b", "recipe": "web", "settings": {"robots": False}})
    work = asyncio.create_task(Node(jobs).work(stopping))
    async with asyncio.timeout(60):
        while not (b := (await call("GET", "/jobs/b"))[1])["node_errors"]:
            await asyncio.sleep(0.05)
        assert b["state"] != "finished"
        await call("POST", "/jobs/a/stop")
        while (b := (await call("GET", "/jobs/b"))[1])["state"] != "finished":
            await asyncio.sleep(0.05)
    assert not b["node_errors"]
    stopping.set()
    await work
    await jobs.store.close()


def test_the_rate_of_each_caller_is_limited_and_recovers():
    now = [100.0]
    rate = RequestRate(10, lambda: now[0])
    assert [rate.seconds_to_wait(b"a") for _ in range(21)] == [0.0] * 21
    assert 0 < rate.seconds_to_wait(b"a") <= 0.1
    assert rate.seconds_to_wait(b"b") == 0.0
    now[0] += 0.1
    assert rate.seconds_to_wait(b"a") == 0.0
    assert rate.seconds_to_wait(b"a") > 0
    now[0] += 1000
    assert [rate.seconds_to_wait(b"a") for _ in range(21)] == [0.0] * 21
    assert rate.seconds_to_wait(b"a") > 0


async def test_too_many_calls_are_answered_with_the_time_to_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(auth, "RequestRate", partial(RequestRate, clock=lambda: 100.0))
    app, jobs = application(tmp_path, max_rate=1)
    await jobs.store.open()
    call = Caller(app)
    found = [(await call("GET", "/jobs"))[0] for _ in range(5)]
    assert found == [200, 200, 200, 429, 429]
    assert int(call.headers[b"retry-after"]) >= 1
    assert (await call("GET", "/health"))[0] == 200
    guesses = [(await call("GET", "/jobs", token=f"another-token-of-nobody-{n}"))[0] for n in range(5)]
    assert guesses == [401, 401, 401, 429, 429]  # whatever the token, they come from one address
    assert int(call.headers[b"retry-after"]) >= 1
    await jobs.store.close()


# --- responses, tokens, files ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "token"), [("/health", None), ("/jobs", TOKEN), ("/jobs", None), ("/nowhere", TOKEN)]
)
async def test_no_browser_interprets_or_keeps_a_response(call, path, token):
    await call("GET", path, token=token)
    assert call.headers[b"x-content-type-options"] == b"nosniff"
    assert call.headers[b"cache-control"] == b"no-store"
    assert call.headers[b"x-frame-options"] == b"DENY"
    assert b"default-src 'none'" in call.headers[b"content-security-policy"]


def test_only_the_digest_of_a_token_is_kept():
    tokens = ApiTokens([TOKEN])
    assert TOKEN not in repr(vars(tokens))
    assert tokens.accept(TOKEN.encode()) is not None
    for wrong in ("", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "x" * 100_000):
        assert tokens.accept(wrong.encode()) is None


def test_the_files_of_a_node_are_private_even_in_a_folder_that_was_not(tmp_path):
    from skitter.cli.serve import _make_private

    for folder in (tmp_path / "new", tmp_path / "old"):
        if folder.name == "old":
            folder.mkdir(mode=0o755)
        _make_private(folder)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_an_invalid_network_is_reported_at_the_start(tmp_path, monkeypatch):
    monkeypatch.setenv("SKITTER_SERVE_TOKEN", TOKEN)
    assert "10.0.0.0/99" in usage_error(
        "serve", "--port", "0", "--allow-network", "10.0.0.0/99", cwd=tmp_path
    )
