"""Faults that a real OpenSearch cannot have on demand (refused passwords, overload, forbidden indexes), and invalid URLs."""

import base64
import json

import pytest

from skitter._utils import backoff
from skitter.errors import StoreError
from skitter.store.contract import GroupError, ItemGroup, OutputContext, StoreContext
from skitter.store.outputs import open_output
from skitter.testing import Answer


def answer(value, status=200):
    return Answer(json.dumps(value).encode(), status=status, content_type="application/json")


def group(number, *items):
    return ItemGroup(number.to_bytes(16, "big"), items)


@pytest.fixture
async def connect(serve, monkeypatch, tmp_path):
    """Open a store on a fake server that responds to bulk requests with a function, and to all others with success."""
    monkeypatch.setattr(backoff, "FIRST_PAUSE", 0.001)
    stores = []

    async def start(on_bulk, login="", kind="opensearch"):
        def respond(visit):
            given = visit.headers.get("authorization", "")
            if login and base64.b64decode(given.removeprefix("Basic ")) != b"ann:r/t":
                return answer({"error": "Unauthorized", "status": 401}, 401)
            if visit.path.endswith("/_bulk"):
                operations = [json.loads(line) for line in visit.body.splitlines()[::2]]
                return on_bulk(operations)
            if visit.path.endswith("/_mget"):
                return answer({"docs": [{"found": False} for _ in json.loads(visit.body)["docs"]]})
            return answer({"acknowledged": True})

        host = serve(respond).url.removeprefix("http://")
        output = open_output(f"{kind}://{login}{host}crawls")
        await output.check(OutputContext("quotes", str(tmp_path)))
        stores.append(output.store())
        await stores[-1].open(StoreContext("quotes", "w1", str(tmp_path)))
        return stores[-1]

    yield start
    for store in stores:
        await store.close()


def results(operations, status=201, error=None):
    one = {"status": status, "result": "created"} | ({"error": error} if error else {})
    return answer({"errors": error is not None, "items": [{"index": one} for _ in operations]})


@pytest.mark.parametrize("whole", [True, False])
async def test_an_overloaded_server_is_asked_again(whole, connect):
    calls = []

    def on_bulk(operations):
        calls.append(operations)
        full = {"type": "rejected_execution_exception", "reason": "full"}
        if len(calls) < 3:
            return answer({"error": full, "status": 429}, 429) if whole else results(operations, 429, full)
        return results(operations)

    store = await connect(on_bulk, kind="elasticsearch")
    assert await store.write([group(1, {"n": 1})]) == [None]
    assert len(calls) == 3


async def test_a_request_that_is_too_large_is_divided(connect):
    sizes = []

    def on_bulk(operations):
        sizes.append(len(operations))
        return answer({"error": "too large"}, 413) if len(operations) > 2 else results(operations)

    store = await connect(on_bulk)
    answers = await store.write(
        [*(group(n, {"n": n}) for n in range(4)), group(9, *({"n": n} for n in range(3)))]
    )
    assert answers[:4] == [None] * 4
    assert isinstance(answers[4], GroupError)
    assert sizes == [7, 2, 5, 1, 4, 1, 3]


async def test_an_index_that_refuses_all_writes_stops_the_crawl(connect):
    blocked = {"type": "cluster_block_exception", "reason": "index is read-only"}
    store = await connect(lambda operations: results(operations, 403, blocked))
    with pytest.raises(StoreError) as refusal:
        await store.write([group(1, {"n": 1})])
    assert "read-only" in str(refusal.value)


async def test_a_password_is_sent_and_never_shown(connect, monkeypatch):
    store = await connect(results, login="ann:r%2Ft@")
    assert await store.write([group(1, {"n": 1})]) == [None]
    monkeypatch.setenv("SKITTER_OUTPUT_OPENSEARCH_PASSWORD", "r/t")
    await connect(results, login="ann@")
    with pytest.raises(StoreError) as refusal:
        await connect(results, login="ann:wrong@")
    assert refusal.value.remedy
    assert "wrong" not in str(refusal.value)


@pytest.mark.parametrize(
    ("target", "field"),
    [("opensearch://h:1", "output"), ("opensearch://h/Upper", "output"), ("elasticsearch://h/a/b", "output"),
     ("opensearch://h/t?tls=maybe", "tls"), ("opensearch://h/t?what=1", "what")],
)  # fmt: skip
def test_mistakes_are_named(target, field):
    with pytest.raises(StoreError) as refusal:
        open_output(target)
    assert refusal.value.field == field
