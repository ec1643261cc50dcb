"""Passwords of frontiers and outputs: read from the environment or a file, not stored, and not shown."""

from typing import ClassVar

import pytest

from skitter.brokers.address import parse_address as parse_broker
from skitter.brokers.nsq import RULES
from skitter.cli.argument_list import masked
from skitter.errors import FrontierError, SettingsError, SkitterError, UsageError
from skitter.frontends.tasks.task_file import TaskFile
from skitter.frontier.redis.address import parse_address, parse_cluster
from skitter.run.builder import JobBuilder
from skitter.run.job import JobFolder, JobSpec
from skitter.secrets import (
    authorizations,
    credentials_in,
    output_variable,
    shown_url,
    without_secrets,
)
from skitter.settings import build_settings
from skitter.spider import Spider
from skitter.store.outputs import open_output
from skitter.worker.routing import section_of


@pytest.mark.parametrize(
    ("url", "kept", "shown"),
    [
        ("redis://h/0", "redis://h/0", "redis://h/0"),
        ("redis://:pw@h/0", "redis://h/0", "redis://:***@h/0"),
        ("rediss://me:p%40w@h:7/0?outage_timeout=3", "rediss://me@h:7/0?outage_timeout=3", "rediss://me:***@h:7/0?outage_timeout=3"),
        ("redis://me@h", "redis://me@h", "redis://me@h"),
        ("redis+cluster://me:pw@a:1,b:2/", "redis+cluster://me@a:1,b:2/", "redis+cluster://me:***@a:1,b:2/"),
        (
            "redis+sentinel://:pw@a,b/main?sentinel_username=s&sentinel_password=pw",
            "redis+sentinel://a,b/main?sentinel_username=s",
            "redis+sentinel://:***@a,b/main?sentinel_username=s&sentinel_password=***",
        ),
        ("redis+sentinel://a/main?sentinel_password=pw", "redis+sentinel://a/main",
         "redis+sentinel://a/main?sentinel_password=***"),
        ("nsq://pw@a,b/topic?state=redis://me:pw@h/1", "nsq://a,b/topic?state=redis://me@h/1",
         "nsq://***@a,b/topic?state=redis://me:***@h/1"),
        ("nats://me:pw@a/t?state=sqlite:", "nats://a/t?state=sqlite:", "nats://***@a/t?state=sqlite:"),
        ("amqp://pw@a/t?tls=yes&state=redis://me:pw@h", "amqp://a/t?tls=yes&state=redis://me@h",
         "amqp://***@a/t?tls=yes&state=redis://me:***@h"),
        ("unix:///run/redis.sock?db=2", "unix:///run/redis.sock?db=2", "unix:///run/redis.sock?db=2"),
        ("sqlite:/srv/a@b.db", "sqlite:/srv/a@b.db", "sqlite:/srv/a@b.db"),
        ("memory:", "memory:", "memory:"),
        ("nsq://a/t?state=redis%3A%2F%2Fme%3Apw%40h", "nsq://a/t?state=redis%3A%2F%2Fme%40h",
         "nsq://a/t?state=redis%3A%2F%2Fme%3A***%40h"),
        ("redis://:pw/0@h/1", "redis://h/1", "redis://:***@h/1"),
        ("redis://:pw#1@h/1", "redis://h/1", "redis://:***@h/1"),
        ("redis://[::1]:6379/0/a:b@c", "redis://[::1]:6379/0/a:b@c", "redis://[::1]:6379/0/a:b@c"),
        ("mongodb://me:pw@a:1,b/d/{type}?authSource=x", "mongodb://me@a:1,b/d/{type}?authSource=x",
         "mongodb://me:***@a:1,b/d/{type}?authSource=x"),
        ("mongodb://me@h/d/c?tlsCertificateKeyFilePassword=pw&w=1", "mongodb://me@h/d/c?w=1",
         "mongodb://me@h/d/c?tlsCertificateKeyFilePassword=***&w=1"),
        ("postgresql://h/d?user=me&password=pw#w&table=t", "postgresql://h/d?user=me&table=t",
         "postgresql://h/d?user=me&password=***&table=t"),
        ("s3://b/a:1@x.csv?key=pw&secret=pw", "s3://b/a:1@x.csv", "s3://b/a:1@x.csv?key=***&secret=***"),
        ("az://b/x.csv?account_key=pw&anon=no", "az://b/x.csv?anon=no", "az://b/x.csv?account_key=***&anon=no"),
        ("my.stores:kept:redis://:pw@h/0", "my.stores:kept:redis://h/0", "my.stores:kept:redis://:***@h/0"),
        ("what?.jsonl", "what?.jsonl", "what?.jsonl"),
    ],
)  # fmt: skip
def test_a_url_is_kept_without_its_secrets_and_shown_with_stars(url, kept, shown):
    assert (without_secrets(url), shown_url(url)) == (kept, shown)
    assert "pw" not in kept + shown


def passwords():
    """Return the password for each kind of address if the URL has no password, and if it has one."""
    alone = parse_address("redis://me@h/0")
    return (
        alone.clients(None)[0].connection_pool.connection_kwargs["password"],
        parse_address("redis://me:own@h/0").clients(None)[0].connection_pool.connection_kwargs["password"],
        parse_address("redis+sentinel://a/main").access["password"],
        parse_address("redis+sentinel://:own@a/main").access["password"],
        parse_cluster("redis+cluster://a:1/").access["password"],
        parse_cluster("redis+cluster://:own@a:1/").access["password"],
    )


def test_a_password_comes_from_the_environment_where_the_url_has_none(monkeypatch):
    monkeypatch.setenv("SKITTER_FRONTIER_PASSWORD", "outside: @/")
    assert passwords() == ("outside: @/", "own") * 3


def test_a_password_comes_from_a_file_without_the_end_of_its_line(monkeypatch, tmp_path):
    (tmp_path / "secret").write_text("from file\n")
    monkeypatch.setenv("SKITTER_FRONTIER_PASSWORD_FILE", str(tmp_path / "secret"))
    assert passwords() == ("from file", "own") * 3


def test_sentinels_and_brokers_have_their_own(monkeypatch):
    monkeypatch.setenv("SKITTER_SENTINEL_PASSWORD", "theirs")
    monkeypatch.setenv("SKITTER_BROKER_SECRET", "token")
    assert parse_address("redis+sentinel://a/main").sentinel_access == {"password": "theirs"}
    assert parse_broker("nsq://a/t?state=sqlite:", "job", RULES).secret == "token"
    assert parse_broker("nsq://own@a/t?state=sqlite:", "job", RULES).secret == "own"


def test_a_file_that_cannot_be_read_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("SKITTER_FRONTIER_PASSWORD_FILE", str(tmp_path / "none"))
    with pytest.raises(
        FrontierError, match=r"SKITTER_FRONTIER_PASSWORD_FILE names .*none, which cannot be read"
    ) as error:
        parse_address("redis://h/0")
    assert error.value.remedy


@pytest.mark.parametrize(
    ("make", "url"),
    [
        (parse_address, "redis://:hid/den@h/0"),
        (parse_address, "redis://:hid#den@h/0"),
        (parse_address, "redis+sentinel://:hid/den@h:1/main"),
        (parse_cluster, "redis+cluster://:hid?den@h:1/"),
        (lambda url: parse_broker(url, "job", RULES), "nsq://me:hid/den@h/t?state=sqlite:"),
        (open_output, "redis://:hid/den@h/0/items"),
        (open_output, "postgresql://me:hid?den@h/shop"),
        (open_output, "mongodb://me:hid#den@h/shop/items"),
    ],
)
def test_a_password_that_is_not_percent_encoded_is_reported_without_any_piece_of_it(make, url):
    with pytest.raises(SkitterError, match="in a password write / as %2F") as error:
        make(url)
    assert "hid" not in str(error.value) + error.value.remedy
    assert "den" not in str(error.value) + error.value.remedy


def provide_secret(monkeypatch, tmp_path, kind, what="password"):
    """Put a secret of an output into a file that the environment names."""
    (tmp_path / kind).write_text("hid/den\n")
    monkeypatch.setenv(f"{output_variable(kind, what)}_FILE", str(tmp_path / kind))


def test_a_mongodb_user_gets_the_password_from_outside_where_the_url_has_none(monkeypatch, tmp_path):
    provide_secret(monkeypatch, tmp_path, "mongodb")
    assert output_variable("mongodb") == "SKITTER_OUTPUT_MONGODB_PASSWORD"
    uris = [
        open_output(f"mongodb://{access}h/d/c").store()._driver._location.uri
        for access in ("me@", "me:own@", "")
    ]
    assert uris == ["mongodb://me:hid%2Fden@h/d", "mongodb://me:own@h/d", "mongodb://h/d"]


def test_s3_gets_keys_from_outside_where_the_url_has_none(monkeypatch, tmp_path):
    provide_secret(monkeypatch, tmp_path, "s3", "secret")
    monkeypatch.setenv("SKITTER_OUTPUT_S3_KEY", "mine")
    assert open_output("s3://b/x.csv")._location.options == {"key": "mine", "secret": "hid/den"}
    own = open_output("s3://b/x.csv?secret=own&anon=no")._location.options
    assert own == {"key": "mine", "secret": "own", "anon": "no"}


def test_no_kind_of_output_receives_the_password_of_another(monkeypatch, tmp_path):
    provide_secret(monkeypatch, tmp_path, "postgresql")
    assert open_output("mongodb://me@h/d/c").store()._driver._location.uri == "mongodb://me@h/d"
    assert open_output("redis://h/0/items")._password == ""
    assert open_output("s3://b/x.csv")._location.options == {}


def test_another_password_means_the_same_output(monkeypatch):
    streams = {open_output(f"mongodb://me{word}@h/d/c").stream for word in ("", ":one", ":two")}
    sections = {section_of((f"s3://b/x.csv{word}",)) for word in ("", "?secret=one", "?secret=two")}
    assert (len(streams), len(sections)) == (1, 1)


def test_a_book_of_tasks_takes_no_password(tmp_path):
    recipe = "name: one\nstart: http://h.test/\npages: {p: {items: {fields: {a: {value: b}}}}}\n"
    book = TaskFile(tmp_path / "book")
    for text, outputs in (
        (recipe, ["mongodb://me:hidden@h/d/c"]),
        (f"{recipe}outputs: ['s3://b/x.csv?secret=hidden']\n", []),
    ):
        with pytest.raises(UsageError, match=r"\*\*\*") as error:
            book.add(text, "one.yaml", outputs=outputs)
        assert "SKITTER_OUTPUT_MONGODB_PASSWORD" in error.value.remedy
        assert "hidden" not in str(error.value)
    assert book.changes() == []


def test_the_note_of_a_job_holds_no_secret_and_another_password_is_the_same_frontier(tmp_path):
    folder = JobFolder("shop", tmp_path)
    spec = JobSpec(job="shop", spider="s:S", frontier="redis://me:hidden@h/0")
    folder.write(spec)
    assert "hidden" not in folder.spec_path.read_text()
    assert folder.read().frontier == "redis://me@h/0"
    folder.check(spec)
    folder.check(JobSpec(job="shop", spider="s:S", frontier="redis://me:changed@h/0"))
    with pytest.raises(UsageError, match="another frontier") as error:
        folder.check(JobSpec(job="shop", spider="s:S", frontier="redis://me:hidden@other/0"))
    assert "hidden" not in str(error.value)


def test_the_note_of_a_job_holds_no_password_of_outputs_and_proxies(tmp_path):
    folder = JobFolder("shop", tmp_path)
    settings = {
        "proxy": "http://me:hidden@p:1", "delay": 1.0,
        "proxies": ["socks5h://me:hidden@p:2", "p:3:me:hidden", "file:proxies.txt"],
    }  # fmt: skip
    outputs = ["mongodb://me:hidden@h/d/c", "s3://b/x.csv?key=hidden&anon=no", "all.jsonl"]
    spec = JobSpec(job="shop", spider="s:S", settings=settings, outputs=outputs)
    folder.write(spec)
    assert "hidden" not in folder.spec_path.read_text()
    kept = folder.read()
    assert kept.outputs == ["mongodb://me@h/d/c", "s3://b/x.csv?anon=no", "all.jsonl"]
    assert kept.left_out == ["proxy", "proxies"]
    assert kept.settings == {
        "proxy": "http://me@p:1", "delay": 1.0,
        "proxies": ["socks5h://me@p:2", "p:3", "file:proxies.txt"],
    }  # fmt: skip
    folder.write(
        JobSpec(job="shop", spider="s:S", settings={"proxies": "p:3:me:hidden,http://me:hidden@p:4"})
    )
    assert folder.read().settings == {"proxies": "p:3,http://me@p:4"}
    folder.write(JobSpec(job="shop", spider="s:S", settings={"proxies": ["http://p:4", "p:3"]}))
    assert folder.read().left_out == []
    assert spec.settings["proxy"] == "http://me:hidden@p:1"


def test_credentials_come_from_arguments_the_environment_or_a_file(tmp_path, monkeypatch):
    monkeypatch.setenv("SITE_LOGIN", "john doe:p:ss")
    (tmp_path / "token").write_text("bearer t0ken\n")
    given = {
        "https://Example.com:443/any": "user:pw", "http://a.test:81": "env:SITE_LOGIN", "http://b.test": f"file:{tmp_path / 'token'}",
        "http://c.test": "Basic eA==",
    }  # fmt: skip
    assert authorizations(given) == {
        "https://example.com": "Basic dXNlcjpwdw==", "http://a.test:81": "Basic am9obiBkb2U6cDpzcw==",
        "http://b.test": "bearer t0ken", "http://c.test": "Basic eA==",
    }  # fmt: skip


@pytest.mark.parametrize(
    "given",
    [
        {"http://h": "env:NOT_SET_ANYWHERE"},
        {"http://h": "file:/no/such/file"},
        {"h": "user:pw"},
        {"ftp://h": "user:pw"},
    ],
)
def test_unavailable_credentials_are_an_error_without_the_secret(given):
    with pytest.raises(SettingsError) as caught:
        authorizations(given)
    assert caught.value.field == "credentials"
    assert caught.value.remedy
    assert "user:pw" not in str(caught.value)


def test_user_names_and_passwords_are_taken_out_of_urls():
    plain, found = credentials_in(
        ["http://us%40er:p%3Aw@h:80/x", "http://h/y", "https://only@h/?a@b", "http://h/@z", "no URL"]
    )
    assert plain == ["http://h/x", "http://h/y", "https://h/?a@b", "http://h/@z", "no URL"]
    assert found == {"http://h": "Basic dXNAZXI6cDp3", "https://h": "Basic b25seTo="}


def test_a_job_is_stored_with_the_references_of_its_credentials_only(tmp_path):
    folder = JobFolder("j", tmp_path)
    given = {"http://a": "user:hunter2", "http://b": "env:X", "http://c": "file:y"}
    folder.write(JobSpec(job="j", spider="m:C", settings={"credentials": given}))
    assert "hunter2" not in folder.spec_path.read_text()
    assert folder.read().settings["credentials"] == {"http://b": "env:X", "http://c": "file:y"}
    assert folder.read().left_out == ["credentials"]


class Shop(Spider):
    start_urls = ("http://127.0.0.1:1/",)
    custom_settings: ClassVar = {"headers": {"Authorization": "env:SHOP_TOKEN", "Accept": "text/html"}}

    def __init__(self, **arguments):
        super().__init__()
        self.arguments = arguments


def test_a_job_is_stored_without_the_secrets_among_its_arguments_and_headers(tmp_path):
    folder = JobFolder("j", tmp_path)
    given = {
        "user": "ann", "password": "hunter2", "shop_token": "env:T", "pages": 3, "passes": "2",
        "url": "see http://ann:hunter2@h/a@b", "urls": ["http://h/x"], "login": {"api-key": "hunter2", "name": "ann"},
    }  # fmt: skip
    headers = {
        "Authorization": "Bearer hunter2",
        "X-Api-Key": "file:/k",
        "Cookie": "a=hunter2",
        "Accept": "*/*",
    }
    folder.write(JobSpec(job="j", spider="m:C", arguments=given, settings={"headers": headers}))
    assert "hunter2" not in folder.spec_path.read_text()
    kept = folder.read()
    assert kept.arguments == {
        "user": "ann", "password": "***", "shop_token": "env:T", "pages": 3, "passes": "2",
        "url": "see http://ann@h/a@b", "urls": ["http://h/x"], "login": {"api-key": "***", "name": "ann"},
    }  # fmt: skip
    assert kept.settings["headers"] == {"X-Api-Key": "file:/k", "Accept": "*/*"}
    assert kept.left_out == ["argument password", "argument url", "argument login", "headers"]


@pytest.mark.parametrize(
    ("setting", "text", "kept"),
    [
        ("headers", '{"Authorization": "env:T", "Accept": "*/*"}', '{"Authorization": "env:T", "Accept": "*/*"}'),
        ("headers", '{"Authorization": "hunter2", "Accept": "*/*"}', {"Accept": "*/*"}),
        ("credentials", '{"http://h": "env:T"}', '{"http://h": "env:T"}'),
        ("credentials", '{"http://h": "hunter2"', {}),
        ("initial_cookies", '{"http://h/": ["id=hunter2"]}', {}),
        ("proxy", "env:T", "env:T"),
        ("notify", "https://me:hunter2@h/", "https://me@h/"),
        # A comma in a password separates nothing.
        ("proxy", "http://me:hun,hunter2@p:1", "http://me@p:1"),
        ("smtp_url", "smtp://me:hunter2,x@h", "smtp://me@h"),
        ("browser_url", "ws://me:hun,hunter2@h/", "ws://me@h/"),
        ("proxies", ["http://me:hun,hunter2@p:1", "p:2"], ["http://me@p:1", "p:2"]),
        ("proxies", '["http://me:hun,hunter2@p:1", "p:2"]', ["http://me@p:1", "p:2"]),
        ("proxies", '["p:1", "p:2"]', '["p:1", "p:2"]'),
        ("proxies", '["http://me:hunter2@p:1"', []),
    ],
)  # fmt: skip
def test_settings_are_stored_without_secrets(setting, text, kept, tmp_path):
    folder = JobFolder("j", tmp_path)
    folder.write(JobSpec(job="j", spider="m:C", settings={setting: text}))
    assert "hunter2" not in folder.spec_path.read_text()
    assert folder.read().settings == {setting: kept}
    assert folder.read().left_out == ([] if kept == text else [setting])


def test_another_password_or_a_reference_to_it_continues_a_job_and_another_argument_does_not(tmp_path):
    folder = JobFolder("j", tmp_path)
    spec = JobSpec(
        job="j", spider="m:C", arguments={"user": "ann", "password": "hunter2"}, frontier="memory:"
    )
    folder.write(spec)
    for password in ("hunter2", "changed", "env:SHOP_PASSWORD"):
        folder.check(
            JobSpec(
                job="j", spider="m:C", arguments={"user": "ann", "password": password}, frontier="memory:"
            )
        )
    with pytest.raises(UsageError, match="other arguments") as caught:
        folder.check(
            JobSpec(job="j", spider="m:C", arguments={"user": "bob", "password": "x"}, frontier="memory:")
        )
    assert "hunter2" not in str(caught.value)


def test_references_in_arguments_headers_and_proxies_are_read(tmp_path, monkeypatch):
    monkeypatch.setenv("SHOP_TOKEN", "Bearer hunter2")
    monkeypatch.setenv("SHOP_PROXY", "http://me:pw@127.0.0.1:9")
    (tmp_path / "word").write_text("hunter2\n")
    arguments = {"password": f"file:{tmp_path / 'word'}", "list": "file:///tmp/list", "user": "ann"}
    settings = {"proxy": "env:SHOP_PROXY", "proxies": "env:SHOP_PROXY"}
    builder = JobBuilder(JobSpec(job="j", spider="m:C", arguments=arguments, settings=settings), Shop)
    assert builder.spider.arguments == {"password": "hunter2", "list": "file:///tmp/list", "user": "ann"}
    assert builder.settings.headers == {"Authorization": "Bearer hunter2", "Accept": "text/html"}
    assert builder.settings.proxy == builder.settings.proxies == "http://me:pw@127.0.0.1:9"
    assert builder.spec.arguments == arguments
    forbidden = JobSpec(
        job="j", spider="m:C", arguments=arguments, settings={"proxy": ""}, reads_references=False
    )
    builder = JobBuilder(forbidden, Shop)
    assert builder.spider.arguments == arguments
    assert builder.settings.headers["Authorization"] == "env:SHOP_TOKEN"


def test_a_reference_to_nothing_is_an_error_that_names_the_argument(monkeypatch):
    monkeypatch.setenv("SHOP_TOKEN", "x")
    with pytest.raises(
        SettingsError, match="argument password names the environment variable 'NOT_SET'"
    ) as caught:
        JobBuilder(JobSpec(job="j", spider="m:C", arguments={"password": "env:NOT_SET"}), Shop)
    assert "export NOT_SET" in caught.value.remedy


@pytest.mark.parametrize("text", ['{"http://h": 1', '{"http://h": ["hunter2"]}'])
def test_an_error_about_credentials_does_not_repeat_them(text):
    with pytest.raises(SettingsError, match="setting credentials") as caught:
        build_settings({"credentials": text})
    assert "hunter2" not in str(caught.value)
    assert "http://h" not in str(caught.value)


@pytest.mark.parametrize(
    ("argument", "shown"),
    [
        ("-apassword=hunter2", "-apassword=*******"), ("--argument=shop_token=a b", "--argument=shop_token=***"),
        ("password=a=b", "password=***"), ("proxy=http://u:p%40w@h:1", "proxy=******************"),
        ("-sproxies=h:1:user:pw", "-sproxies=***********"), ('credentials={"http://h":"a:b"}', "credentials=******************"),
        ("http://user:pass@host/x?y=1", "http://user:****@host/x?y=1"), ("redis://:pw@h/0", "redis://:**@h/0"),
        ("s3://b/x.csv?key=abc&secret=def", "s3://b/x.csv?key=***&secret=***"),
        ("concurrency=3", "concurrency=3"), ("http://h/a@b", "http://h/a@b"), ("passes=3", "passes=3"), ("--workers=2", "--workers=2"),
    ],
)  # fmt: skip
def test_arguments_of_a_command_keep_their_length_without_their_secrets(argument, shown):
    assert masked(argument.encode()).decode() == shown
