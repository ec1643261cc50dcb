"""URLs of broker frontiers: what they say, and what is said about wrong ones."""

import json

import pytest

from cli_command import complaint, skitter
from services import nats_servers, nsq_servers
from skitter.brokers.address import channel_of, parse_address
from skitter.brokers.nsq import RULES
from skitter.errors import FrontierError
from skitter.testing import GeneratedSite

URL = "http://127.0.0.1:9/"


def test_a_url_says_hosts_topic_channel_lookups_and_state():
    url = "nsq://secret%40@one,two:5150/my.topic?channel=c&lookupd=l1,l2:5161&state=redis%3A%2F%2Fh%2F0%3Fpatience%3D5"
    address = parse_address(url, "job", RULES)
    assert address.hosts == [("one", 4150), ("two", 5150)]
    assert (address.topic, address.channel, address.secret) == ("my.topic", "c", "secret@")
    assert address.hosts_of("lookupd", 4161) == [("l1", 4161), ("l2", 5161)]
    assert address.state == "redis://h/0?patience=5"


def test_topic_and_channel_have_names_of_their_own():
    address = parse_address("nsq://[::1]:4150?state=sqlite:", "my-job", RULES)
    assert (address.hosts, address.topic, address.channel) == ([("::1", 4150)], "skitter", "my-job")


def test_jobs_whose_names_are_no_channels_have_different_ones():
    names = ["a.b", "a b", "x" * 70, "x" * 71]
    channels = {channel_of(name) for name in names}
    assert len(channels) == len(names)
    assert all(RULES.is_name(channel) for channel in channels)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nsq://127.0.0.1:1/t", "names no state"),
        ("nsq://127.0.0.1:1/no+topic?state=sqlite:", "is no name for a topic"),
        ("nsq://127.0.0.1:1/a/b?state=sqlite:", "is no name for a topic"),
        ("nsq://127.0.0.1:1/t?channel=no/channel&state=sqlite:", "is no name for a channel"),
        ("nsq://127.0.0.1:port/t?state=sqlite:", "Port could not be cast"),
        ("nsq:///t?state=sqlite:", "neither an nsqd nor a lookupd"),
        ("nsq://127.0.0.1:1/t?state=memory:", "cannot be the state"),
        ("nsq://127.0.0.1:1/t?state=redis:", "there is no host"),
        ("nsq://127.0.0.1:1/t?stat=sqlite:", "is no option"),
        ("nsq://127.0.0.1:1/t?state=sqlite:", "the broker cannot be used: nsqd 127.0.0.1:1"),
        ("nsq:///t?lookupd=127.0.0.1:1&state=sqlite:", "nsqlookupd 127.0.0.1:1"),
        ("nats:///t?state=sqlite:", "there is no host"),
        ("nats://127.0.0.1:1/t.u?state=sqlite:", "is no name for a topic"),
        ("nats://127.0.0.1:1/t?state=sqlite:", "the broker nats://127.0.0.1:1 cannot be used"),
    ],
)
def test_a_wrong_url_is_one_line(url, words, tmp_path):
    assert words in complaint("crawl", URL, "--frontier", url, cwd=tmp_path)


def test_a_missing_client_names_the_extra(monkeypatch):
    import sys

    from skitter.frontier.options import FrontierContext
    from skitter.frontier.registry import make_frontier
    from skitter.politeness import Politeness

    monkeypatch.setitem(sys.modules, "skitter.brokers.jetstream", None)
    with pytest.raises(FrontierError) as error:
        make_frontier("nats://h/t?state=sqlite:", FrontierContext("job", "", Politeness()))
    assert error.value.remedy == 'pip install "skitter[nats]"'


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
    assert sorted(urls) == sorted(site.truth(web.origins))
    assert "finished" in skitter("status", job, cwd=tmp_path).stdout
