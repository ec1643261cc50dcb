"""Passwords of frontiers: from the environment or a file, kept nowhere, shown nowhere."""

import pytest

from skitter.engine.job import JobFolder, JobSpec
from skitter.errors import FrontierError, UsageError
from skitter.frontier.broker.address import parse_address as parse_broker
from skitter.frontier.broker.nsq import RULE
from skitter.frontier.redis.address import parse_address
from skitter.frontier.redis.cluster_address import parse_cluster
from skitter.frontier.secrets import shown_url, without_secrets


@pytest.mark.parametrize(
    ("url", "kept", "shown"),
    [
        ("redis://h/0", "redis://h/0", "redis://h/0"),
        ("redis://:pw@h/0", "redis://h/0", "redis://:***@h/0"),
        ("rediss://me:p%40w@h:7/0?patience=3", "rediss://me@h:7/0?patience=3", "rediss://me:***@h:7/0?patience=3"),
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
        ("unix:///run/redis.sock?db=2", "unix:///run/redis.sock?db=2", "unix:///run/redis.sock?db=2"),
        ("sqlite:/srv/a@b.db", "sqlite:/srv/a@b.db", "sqlite:/srv/a@b.db"),
        ("memory:", "memory:", "memory:"),
    ],
)  # fmt: skip
def test_a_url_is_kept_without_its_secrets_and_shown_with_stars(url, kept, shown):
    assert (without_secrets(url), shown_url(url)) == (kept, shown)
    assert "pw" not in kept + shown


def passwords():
    """What each kind of address takes for the password where the URL has none, and where it has one."""
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
    assert parse_broker("nsq://a/t?state=sqlite:", "job", RULE).secret == "token"
    assert parse_broker("nsq://own@a/t?state=sqlite:", "job", RULE).secret == "own"


def test_a_file_that_cannot_be_read_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("SKITTER_FRONTIER_PASSWORD_FILE", str(tmp_path / "none"))
    with pytest.raises(
        FrontierError, match=r"SKITTER_FRONTIER_PASSWORD_FILE names .*none, which cannot be read"
    ) as error:
        parse_address("redis://h/0")
    assert error.value.remedy


def test_the_note_of_a_job_holds_no_secret_and_another_password_is_the_same_frontier(tmp_path):
    folder = JobFolder("shop", tmp_path)
    spec = JobSpec(job="shop", spider="s:S", frontier="redis://me:hidden@h/0")
    folder.write(spec)
    assert "hidden" not in folder.note.read_text()
    assert folder.read().frontier == "redis://me@h/0"
    folder.check(spec)
    folder.check(JobSpec(job="shop", spider="s:S", frontier="redis://me:changed@h/0"))
    with pytest.raises(UsageError, match="another frontier") as error:
        folder.check(JobSpec(job="shop", spider="s:S", frontier="redis://me:hidden@other/0"))
    assert "hidden" not in str(error.value)
