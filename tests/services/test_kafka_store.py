"""Items in a topic of a real broker: keys, acknowledgements, outages and errors."""

import asyncio
import json
import uuid
from urllib.parse import quote

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from cli_command import skitter
from services.store_servers import KafkaServer, running
from skitter.errors import StoreError
from skitter.store.contract import GroupError, ItemGroup, OutputContext, StoreContext
from skitter.store.outputs import open_output
from skitter.testing import Answer

SPIDER = """
from skitter import Spider

class Pages(Spider):
    def parse(self, response):
        yield {"url": response.url}
        yield response.follow_all("a")
"""


@pytest.fixture
def broker():
    return running("kafka")


@pytest.fixture
def topic():
    return f"t{uuid.uuid4().hex}"


def group(number, *items):
    return ItemGroup(number.to_bytes(16, "big"), items)


def key(number, item):
    return f"quotes:{number:032x}:{item}"


async def messages(broker, topic):
    """Return all messages of a topic as pairs of key and value, in the order of their offsets."""
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.servers, auto_offset_reset="earliest")
    await consumer.start()
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        end = (await consumer.end_offsets([partition]))[partition]
        found = []
        while await consumer.position(partition) < end:
            batch = await consumer.getmany(partition, timeout_ms=500)
            found += [(one.key.decode(), json.loads(one.value)) for one in batch.get(partition, ())]
        return found
    finally:
        await consumer.stop()


async def opened(target, folder):
    output = open_output(target)
    await output.check(OutputContext("quotes", str(folder)))
    store = output.store()
    await store.open(StoreContext("quotes", "w1", str(folder)))
    return store


async def test_an_item_that_is_written_again_has_the_same_key(broker, topic, tmp_path):
    store = await opened(f"{broker.place(topic)}?compression_type=gzip", tmp_path)
    pages = [group(1, {"a": 1}, {"a": 2}), group(2), group(3, {"ü": "€"})]
    assert await store.write(pages) == [None] * 3
    assert await store.write(pages[:1]) == [None]
    await store.close()
    first = [(key(1, 0), {"a": 1}), (key(1, 1), {"a": 2})]
    assert await messages(broker, topic) == [*first, (key(3, 0), {"ü": "€"}), *first]


@pytest.mark.parametrize("options", ["?max_request_size=10000", "?max_request_size=1000000"])
async def test_an_item_that_is_too_large_fails_only_its_page(options, broker, topic, tmp_path):
    """The client refuses the item with the first limit, and the broker with the second one."""
    store = await opened(f"{broker.place(topic)}{options}", tmp_path)
    answers = await store.write([group(1, {"big": "x" * 250_000}), group(2, {"a": 2}), group(3, {"a": 3})])
    await store.close()
    assert [type(answer) for answer in answers] == [GroupError, type(None), type(None)]
    assert await messages(broker, topic) == [(key(2, 0), {"a": 2}), (key(3, 0), {"a": 3})]


async def test_pages_after_an_item_that_is_too_large_for_the_broker_are_stored(broker, topic, tmp_path):
    """An idempotent producer has given the refused message a sequence number, so the broker expects that number next."""
    store = await opened(f"{broker.place(topic)}?outage_timeout=1", tmp_path)
    small = [group(number, {"a": number}) for number in range(1, 7)]
    large = [group(number, {"big": "x" * 250_000}) for number in (11, 12)]
    answers = await store.write([*small[:2], large[0], *small[2:4], large[1], *small[4:]])
    again = await store.write([group(7, {"a": 7})])
    await store.close()
    assert [index for index, answer in enumerate(answers) if answer is not None] == [2, 5]
    assert again == [None]
    assert dict(await messages(broker, topic)) == {key(number, 0): {"a": number} for number in range(1, 8)}


@pytest.mark.chaos
async def test_a_broker_that_is_killed_and_comes_back_loses_and_duplicates_nothing(topic, tmp_path):
    server = await asyncio.to_thread(KafkaServer)
    try:
        await asyncio.to_thread(server.start)
        store = await opened(server.place(topic), tmp_path)
        await store.write([group(number, {"n": number}) for number in range(20)])
        writing = asyncio.create_task(
            store.write([group(number, {"n": number}) for number in range(20, 500)])
        )
        await asyncio.sleep(0)
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        assert await writing == [None] * 480
        await store.close()
        found = await messages(server, topic)
        assert sorted({value["n"] for _, value in found}) == [*range(500)]
        assert dict(found) == {key(n, 0): {"n": n} for n in range(500)}
    finally:
        await asyncio.to_thread(server.stop)


async def test_a_password_and_a_certificate_are_used(broker, topic, tmp_path, monkeypatch):
    place = f"127.0.0.1:{broker.tls_port}/{topic}?security_protocol=SASL_SSL&ca_file={broker.ca_file}"
    store = await opened(f"kafka://{broker.user}:{quote(broker.password, safe='')}@{place}", tmp_path)
    assert await store.write([group(1, {"a": 1})]) == [None]
    await store.close()
    monkeypatch.setenv("SKITTER_OUTPUT_KAFKA_PASSWORD", broker.password)
    store = await opened(f"kafka://{broker.user}@{place}", tmp_path)
    await store.close()
    with pytest.raises(StoreError) as refusal:
        await opened(f"kafka://{broker.user}:wrong@{place}", tmp_path)
    assert "uthentication" in str(refusal.value)
    assert "wrong" not in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "word"),
    [("security_protocol=SSL", "certificate"), ("security_protocol=SSL&ca_file=/none.pem", "none.pem")],
)
async def test_a_certificate_that_is_not_trusted_is_named(options, word, broker, topic, tmp_path):
    with pytest.raises(StoreError) as refusal:
        await opened(f"kafka://127.0.0.1:{broker.tls_port}/{topic}?{options}", tmp_path)
    assert word in str(refusal.value)
    assert refusal.value.remedy


async def test_a_broker_that_is_unavailable_is_named(free_port, tmp_path):
    with pytest.raises(StoreError) as refusal:
        await opened(f"kafka://user:secret@127.0.0.1:{free_port}/t", tmp_path)
    assert refusal.value.remedy
    assert "secret" not in str(refusal.value)


def test_a_crawl_sends_each_item(broker, topic, tmp_path, serve):
    links = "".join(f"<a href='/{number}'>x</a>" for number in range(30))
    server = serve(lambda visit: Answer(links.encode()))
    (tmp_path / "pages.py").write_text(SPIDER + f"    start_urls = ['{server.url}']\n")
    result = skitter("run", "pages.py", "-o", broker.place(topic), "--workers", 2, "--quiet", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    found = asyncio.run(messages(broker, topic))
    assert sorted(value["url"] for _, value in found) == sorted(
        [server.url, *(f"{server.url}{n}" for n in range(30))]
    )
    assert len(dict(found)) == 31


@pytest.mark.parametrize(
    ("target", "field"),
    [
        ("kafka://h:1", "output"), ("kafka://h/t?what=1", "what"), ("kafka://h/t?buffer=0", "buffer"),
        ("kafka://h/t?compression_type=rar", "compression_type"), ("kafka://h/t?max_request_size=big", "max_request_size"),
    ],
)  # fmt: skip
def test_mistakes_are_named(target, field):
    with pytest.raises(StoreError) as refusal:
        open_output(target)
    assert refusal.value.field == field
