"""URLs of broker frontiers: their parts, and the errors for invalid ones."""

import asyncio
import json
import sys
from importlib.metadata import EntryPoints

import pytest

from cli_command import skitter, usage_error
from services import nats_servers, nsq_servers
from skitter.brokers.address import channel_of, parse_address
from skitter.brokers.nsq import RULES
from skitter.errors import FrontierError
from skitter.frontier.options import FrontierContext
from skitter.frontier.registry import make_frontier
from skitter.politeness import Politeness
from skitter.testing import GeneratedSite

URL = "http://127.0.0.1:9/"


def test_a_url_names_hosts_topic_channel_lookups_and_state():
    url = "nsq://secret%40@one,two:5150/my.topic?channel=c&lookupd=l1,l2:5161&state=redis%3A%2F%2Fh%2F0%3Foutage_timeout%3D5"
    address = parse_address(url, "job", RULES)
    assert address.hosts == [("one", 4150), ("two", 5150)]
    assert (address.topic, address.channel, address.secret) == ("my.topic", "c", "secret@")
    assert address.hosts_of("lookupd", 4161) == [("l1", 4161), ("l2", 5161)]
    assert address.state == "redis://h/0?outage_timeout=5"


def test_a_dotted_path_may_precede_the_url():
    address = parse_address("package.module:make:nsq://one/pages?state=sqlite:", "job", RULES)
    assert (address.hosts, address.topic) == ([("one", 4150)], "pages")


def test_topic_and_channel_have_default_names():
    address = parse_address("nsq://[::1]:4150?state=sqlite:", "my-job", RULES)
    assert (address.hosts, address.topic, address.channel) == ([("::1", 4150)], "skitter", "my-job")


def test_jobs_whose_names_are_invalid_channels_have_different_channels():
    names = ["a.b", "a b", "x" * 70, "x" * 71]
    channels = {channel_of(name) for name in names}
    assert len(channels) == len(names)
    assert all(RULES.is_name(channel) for channel in channels)


def broker_frontier(url, tmp_path):
    return make_frontier(url, FrontierContext("job", str(tmp_path), Politeness()))


@pytest.mark.parametrize(
    ("url", "field", "value"),
    [
        ("nsq://127.0.0.1:1/t", "state", "state"),
        ("nsq://127.0.0.1:1/no+topic?state=sqlite:", "topic", "no+topic"),
        ("nsq://127.0.0.1:1/a/b?state=sqlite:", "topic", "a/b"),
        ("nsq://127.0.0.1:1/t?channel=no/channel&state=sqlite:", "channel", "no/channel"),
        ("nsq://127.0.0.1:port/t?state=sqlite:", "hosts", "port"),
        ("nsq:///t?state=sqlite:", "hosts", "nsqd"),
        ("nsq:///t?lookupd=h:port&state=sqlite:", "lookupd", "port"),
        ("nsq://127.0.0.1:1/t?state=memory:", "state", "memory:"),
        ("nsq://127.0.0.1:1/t?stat=sqlite:", "stat", "stat"),
        ("nats:///t?state=sqlite:", "hosts", "host"),
        ("nats://127.0.0.1:1/t.u?state=sqlite:", "topic", "t.u"),
    ],
)
def test_a_wrong_url_is_refused_with_the_part_at_fault_and_an_example(url, field, value, tmp_path):
    with pytest.raises(FrontierError) as error:
        asyncio.run(broker_frontier(url, tmp_path).open())
    assert error.value.field == field
    assert value in str(error.value)
    assert "state=redis://HOST" in error.value.remedy


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("nsq://127.0.0.1:1/t?state=sqlite:", "127.0.0.1:1"),
        ("nsq:///t?lookupd=127.0.0.1:1&state=sqlite:", "127.0.0.1:1"),
        ("nats://127.0.0.1:1/t?state=sqlite:", "127.0.0.1:1"),
    ],
)
def test_a_broker_that_is_unavailable_is_named(url, place, tmp_path):
    with pytest.raises(FrontierError) as error:
        asyncio.run(broker_frontier(url, tmp_path).open())
    assert error.value.field == "frontier"
    assert place in str(error.value)
    assert "--frontier" in error.value.remedy


@pytest.mark.parametrize(
    ("url", "value"),
    [
        ("nsq://127.0.0.1:1/no+topic?state=sqlite:", "no+topic"),
        ("nsq://127.0.0.1:1/t?state=redis:", "host"),
        ("nsq://127.0.0.1:1/t?state=sqlite:", "127.0.0.1:1"),
        ("nats://127.0.0.1:1/t?state=sqlite:", "127.0.0.1:1"),
    ],
)
def test_the_command_line_reports_it_in_one_line(url, value, tmp_path):
    assert value in usage_error("crawl", URL, "--frontier", url, cwd=tmp_path)


def test_a_missing_client_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "skitter.brokers.jetstream", None)
    with pytest.raises(FrontierError) as error:
        broker_frontier("nats://h/t?state=sqlite:", tmp_path)
    assert error.value.remedy == 'in the clone of skitter: pip install ".[nats]"'


def test_an_installation_without_the_entry_points_names_the_remedy(monkeypatch, tmp_path):
    monkeypatch.setattr("skitter.plugins._offered", lambda _: EntryPoints())
    with pytest.raises(FrontierError) as error:
        broker_frontier("nsq://h/t?state=sqlite:", tmp_path)
    assert "provides 'nsq'" in error.value.remedy


@pytest.mark.parametrize("kind", ["nsq", "nats"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_crawl_through_a_broker_finds_every_page_once(kind, workers, serve, tmp_path):
    server = (nsq_servers if kind == "nsq" else nats_servers).running()
    site = GeneratedSite(60, hosts=2)
    web = serve(site, hosts=2)
    job = f"{tmp_path.name}-{workers}"
    url = f"{kind}://127.0.0.1:{server.port}/crawl?state=sqlite:"
    arguments = (
        "crawl", web.url, "--frontier", url, "-o", "out.jsonl", "--job", job, "--workers", workers, "--no-robots",
        "--delay", 0, "-s", "scope=any", "-s", "deny=outside.invalid",
    )  # fmt: skip
    result = skitter(*arguments, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    urls = [json.loads(line)["url"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert sorted(urls) == sorted(site.expected_pages(web.origins))
    assert "finished" in skitter("status", job, cwd=tmp_path).stdout
