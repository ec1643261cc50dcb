"""Access control of a service: scopes, limits to jobs, expiry, browser sessions, and the audit log."""

import asyncio

import pytest

from api_caller import Caller, application
from skitter.errors import UsageError
from skitter.service.api.access import ApiTokens, TokenScope, needed_scope

READER, OPERATOR, ADMIN, SHOP, EXPIRED = (
    f"the-token-of-the-{name}" for name in ("reader", "operator", "admin", "shop", "former-admin")
)
RECIPE = "name: web\nstart: http://127.0.0.1:1/\npages:\n  p: {items: {fields: {url: {value: '{url}'}}}}\n"


@pytest.fixture
async def call(tmp_path):
    tokens = [
        f"{READER} name=rita scope=read", f"{OPERATOR} name=otto scope=operate", f"{ADMIN} name=ada",
        f"{SHOP} name=sam scope=admin jobs=shop-*,news expires=2999-01-01",
        f"{EXPIRED} name=fred expires=2001-01-01",
    ]  # fmt: skip
    app, jobs = application(tmp_path, tokens=tokens)
    await jobs.store.open()
    call = Caller(app)
    assert (await call("PUT", "/recipes/web", RECIPE, token=ADMIN, kind="application/yaml"))[0] == 201
    assert (await call("POST", "/jobs", {"name": "web", "recipe": "web"}, token=ADMIN))[0] == 201
    yield call
    await jobs.store.close()


CALLS = [
    ("GET", "/jobs", TokenScope.READ), ("GET", "/jobs/web", TokenScope.READ), ("GET", "/recipes/web", TokenScope.READ),
    ("GET", "/nodes", TokenScope.READ), ("GET", "/metrics", TokenScope.READ), ("GET", "/settings", TokenScope.READ),
    ("POST", "/jobs/web/pause", TokenScope.OPERATE), ("POST", "/jobs/web/resume", TokenScope.OPERATE),
    ("POST", "/jobs/web/stop", TokenScope.OPERATE), ("POST", "/jobs/web/seeds", TokenScope.OPERATE),
    ("PATCH", "/jobs/web/settings", TokenScope.OPERATE), ("PUT", "/jobs/web/schedule", TokenScope.OPERATE),
    ("POST", "/jobs/web/failures/retry", TokenScope.OPERATE), ("POST", "/jobs/web/failures/drop", TokenScope.OPERATE),
    ("POST", "/jobs/web/tasks", TokenScope.OPERATE), ("DELETE", "/jobs/web/tasks/x", TokenScope.OPERATE),
    ("GET", "/audit", TokenScope.ADMIN), ("POST", "/jobs", TokenScope.ADMIN), ("PUT", "/recipes/new", TokenScope.ADMIN),
    ("POST", "/recipes/web/try", TokenScope.ADMIN), ("POST", "/anything/new", TokenScope.ADMIN), ("DELETE", "/jobs/web", TokenScope.ADMIN),
]  # fmt: skip


async def test_a_token_allows_the_calls_of_its_scope_and_no_others(call):
    for method, path, needed in CALLS:
        assert needed_scope(method, path) is needed
        for token, scope in (
            (READER, TokenScope.READ),
            (OPERATOR, TokenScope.OPERATE),
            (ADMIN, TokenScope.ADMIN),
        ):
            body = None if method in {"GET", "DELETE"} else {}
            status, answer = await call(method, path, body, token=token)
            assert (status == 403) == (scope < needed), (method, path, token, status, answer)


async def test_every_call_of_the_description_that_changes_something_is_refused_to_a_reader(call):
    paths = (await call("GET", "/openapi.json", token=READER))[1]["paths"]
    for path, methods in paths.items():
        for method in set(methods) - {"get"}:
            if path != "/session":
                name = path.replace("{name}", "web").replace("{task}", "t")
                assert (await call(method.upper(), name, {}, token=READER))[0] == 403, (method, path)
    assert len((await call("GET", "/jobs", token=READER))[1]["jobs"]) == 1


async def test_every_call_of_the_description_is_refused_to_an_expired_token_and_to_that_of_other_jobs(call):
    paths = (await call("GET", "/openapi.json", token=ADMIN))[1]["paths"]
    calls = [(method.upper(), path) for path, methods in paths.items() for method in methods]
    assert len(calls) > 20
    for method, path in calls:
        name = path.replace("{name}", "web").replace("{task}", "t")
        body = None if method in {"GET", "DELETE"} else {}
        status = (await call(method, name, body, token=EXPIRED))[0]
        assert status == (200 if path == "/health" else 401), (method, path)
        if "{name}" in path:
            assert (await call(method, name, body, token=SHOP))[0] == 403, (method, path)


async def test_a_token_that_is_limited_to_jobs_reaches_no_others(call):
    for method, path in [
        ("GET", "/jobs/web"), ("GET", "/jobs/web/items"), ("POST", "/jobs/web/pause"), ("DELETE", "/jobs/web"),
        ("GET", "/recipes/web"), ("PUT", "/recipes/web"), ("GET", "/metrics"), ("GET", "/audit"),
    ]:  # fmt: skip
        assert (await call(method, path, token=SHOP))[0] == 403, path
    assert (await call("POST", "/jobs", {"name": "shop-1", "recipe": "web"}, token=SHOP))[0] == 403
    assert (await call("PUT", "/recipes/shop-1", RECIPE, token=SHOP, kind="application/yaml"))[0] == 201
    assert (await call("POST", "/jobs", {"name": "web2", "recipe": "shop-1"}, token=SHOP))[0] == 403
    assert (await call("POST", "/jobs", {"name": "shop-1", "recipe": "shop-1"}, token=SHOP))[0] == 201
    assert (await call("POST", "/jobs", {"name": "shop-2", "tasks": True}, token=SHOP))[0] == 201
    assert (await call("POST", "/jobs/shop-2/tasks", {"recipe": "web"}, token=SHOP))[0] == 403
    for path in ("/jobs", "/jobs?figures=true&limit=5"):
        listed = (await call("GET", path, token=SHOP))[1]
        assert ([job["name"] for job in listed["jobs"]], listed["total"]) == (["shop-1", "shop-2"], 2)
    assert [one["name"] for one in (await call("GET", "/recipes", token=SHOP))[1]["recipes"]] == ["shop-1"]
    assert "web" not in (await call("GET", "/events", token=SHOP))[1]


@pytest.mark.parametrize(
    "line",
    [
        "short", f"{ADMIN} scope=root", f"{ADMIN} scope=", f"{ADMIN} colour=red", f"{ADMIN} read",
        f"{ADMIN} expires=soon",
    ],
)  # fmt: skip
def test_an_invalid_line_of_the_token_file_is_refused_without_its_token(tmp_path, line):
    (tmp_path / "tokens").write_text(f"# ours\n\n{READER} name=rita\n{line}\n")
    with pytest.raises(UsageError) as raised:
        ApiTokens.load(tmp_path / "tokens")
    assert raised.value.field == "token_file"
    assert ADMIN not in str(raised.value) + raised.value.remedy


def test_tokens_expire_and_names_are_unique():
    tokens = ApiTokens([f"{READER} expires=2001-01-01", f"{ADMIN} expires=2999-01-01T12:00:00Z"])
    assert tokens.accept(READER.encode()) is None
    assert tokens.accept(ADMIN.encode()).scope is TokenScope.ADMIN
    with pytest.raises(UsageError):
        ApiTokens([f"{READER} name=x", f"{ADMIN} name=x"])
    with pytest.raises(UsageError, match="on two lines") as caught:
        ApiTokens([f"{READER} name=x", f"{READER} name=y scope=read"])
    assert READER not in str(caught.value)


# --- sessions -----------------------------------------------------------------------------------------------------


async def open_session(call, token):
    status, opened = await call("POST", "/session", token=token)
    assert status == 201
    cookie = call.headers[b"set-cookie"].decode()
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    return {"Cookie": cookie.partition(";")[0]}, opened


async def test_a_cookie_reads_and_changes_only_with_the_value_of_its_session(call):
    cookie, opened = await open_session(call, OPERATOR)
    assert (opened["name"], opened["scope"]) == ("otto", "operate")
    assert (await call("GET", "/jobs", token=None, headers=cookie))[0] == 200
    known = (await call("GET", "/session", token=None, headers=cookie))[1]
    assert known["csrf"] == opened["csrf"]
    for wrong in ({}, {"X-CSRF-Token": ""}, {"X-CSRF-Token": "x" * 43}):
        assert (await call("POST", "/jobs/web/pause", token=None, headers=cookie | wrong))[0] == 403
    right = cookie | {"X-CSRF-Token": opened["csrf"]}
    assert (await call("POST", "/jobs/web/pause", token=None, headers=right))[0] == 200
    assert (await call("DELETE", "/jobs/web", token=None, headers=right))[0] == 403  # as with its token
    other = (await open_session(call, OPERATOR))[1]["csrf"]
    assert (await call("POST", "/jobs/web/pause", token=None, headers=cookie | {"X-CSRF-Token": other}))[
        0
    ] == 403
    assert (await call("DELETE", "/session", token=None, headers=right))[0] == 204
    assert (await call("GET", "/jobs", token=None, headers=cookie))[0] == 401


@pytest.mark.parametrize(
    "other", ['prefs={"dark":true}', "a b=1", "a,b=1", "a@[]=1", "plain", "name=J\u00fcrgen", "=1", 'a="x']
)
async def test_a_cookie_of_another_application_does_not_hide_the_session(call, other):
    cookie = (await open_session(call, READER))[0]["Cookie"]
    for sent in (f"{other}; {cookie}", f"{cookie}; {other}"):
        assert (await call("GET", "/jobs", token=None, headers={"Cookie": sent}))[0] == 200


async def test_a_session_ends_with_its_token_and_its_time(tmp_path, monkeypatch):
    app, jobs = application(tmp_path, tokens=[f"{ADMIN} name=ada", f"{READER} name=rita scope=read"])
    await jobs.store.open()
    cookie, _ = await open_session(Caller(app), READER)
    assert (await Caller(app)("GET", "/jobs", token=None, headers=cookie))[0] == 200
    without, _ = application(tmp_path, tokens=[ADMIN])
    (stored,) = (await jobs.store.all("sessions")).values()
    assert READER not in stored.decode()
    assert cookie["Cookie"].partition("=")[2] not in stored.decode()
    monkeypatch.setattr("skitter.service.sessions.time.time", lambda: 4e9)
    assert (await Caller(app)("GET", "/jobs", token=None, headers=cookie))[0] == 401
    await jobs.store.close()
    assert (await Caller(without)("GET", "/jobs", token=None, headers=cookie))[0] == 401


async def test_a_token_for_one_session_opens_one_session(tmp_path):
    app, jobs = application(tmp_path, tokens=ApiTokens.single_use(ADMIN))
    await jobs.store.open()
    call = Caller(app)
    assert (await call("GET", "/jobs", token=ADMIN))[0] == 403
    cookie, _ = await open_session(call, ADMIN)
    assert (await call("POST", "/session", token=ADMIN))[0] == 401
    assert (await call("GET", "/jobs", token=None, headers=cookie))[0] == 200
    await jobs.store.close()


async def test_of_concurrent_calls_with_a_token_for_one_session_one_opens_it(tmp_path):
    app, jobs = application(tmp_path, tokens=ApiTokens.single_use(ADMIN))
    await jobs.store.open()
    answers = await asyncio.gather(*(Caller(app)("POST", "/session", token=ADMIN) for _ in range(5)))
    assert sorted(status for status, _ in answers) == [201, 401, 401, 401, 401]
    assert len(await jobs.store.all("sessions")) == 1
    await jobs.store.close()


# --- the audit log ------------------------------------------------------------------------------------------------


async def test_the_audit_log_holds_every_change_and_refusal_with_its_caller_but_no_secrets(call):
    await call("GET", "/jobs", token=READER)
    await call("POST", "/jobs/web/pause", token=READER)
    body = {"name": "b", "recipe": "web", "arguments": {"password": "hunter2"}, "settings": {"max_pages": 5}}
    await call("POST", "/jobs", body, token=ADMIN)
    await call("POST", "/jobs/web/failures/retry", {"ids": [1, 2]}, token=OPERATOR)
    page = (await call("GET", "/audit", token=ADMIN))[1]
    found = [(one["caller"], one["method"], one["path"], one["status"]) for one in page["entries"]]
    assert found[:3] == [
        ("otto", "POST", "/jobs/web/failures/retry", 409), ("ada", "POST", "/jobs", 422), ("rita", "POST", "/jobs/web/pause", 403)
    ]  # fmt: skip
    assert page["entries"][0]["details"] == {"ids": [1, 2]}
    assert page["entries"][1]["details"]["settings"] == {"max_pages": 5}
    assert page["entries"][1]["details"]["arguments"] == ["password"]
    assert "hunter2" not in str(page)
    assert page["next"] is None
    first = (await call("GET", "/audit?limit=2", token=ADMIN))[1]
    rest = (await call("GET", f"/audit?before={first['next']}", token=ADMIN))[1]
    assert first["entries"] + rest["entries"] == page["entries"]
    assert {
        one["caller"] for one in (await call("GET", "/audit?contains=rita", token=ADMIN))[1]["entries"]
    } == {"rita"}
    assert (await call("GET", "/audit?before=999999999", token=ADMIN))[1] == page


async def test_an_entry_holds_neither_the_password_of_a_url_nor_names_of_any_length(call):
    trial = {"text": "x", "url": "http://bob:hunter2@127.0.0.1:1/"}
    await call("POST", "/recipes/web/try", trial, token=ADMIN)
    long = {"settings": {"s" * 1_000: 1}, "arguments": {"a" * 1_000: 1}, "f" * 1_000: 1}
    await call("POST", "/jobs", long, token=READER)
    page = (await call("GET", "/audit", token=ADMIN))[1]
    assert page["entries"][1]["details"]["url"] == "http://bob:***@127.0.0.1:1/"
    assert "hunter2" not in str(page)
    assert len(str(page["entries"][0])) < 1_000


async def test_a_change_that_cannot_be_recorded_is_answered_with_an_error(call, tmp_path):
    (tmp_path / "node" / "audit.log").unlink()
    (tmp_path / "node" / "audit.log").mkdir()
    status, problem = await call("POST", "/jobs/web/pause", token=ADMIN)
    assert status == 503
    assert "200" in problem["detail"]
