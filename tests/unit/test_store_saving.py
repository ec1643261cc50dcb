"""Stores that are a class with a single method, ``save``."""

import asyncio
import threading

import pytest

from skitter.errors import StoreError
from skitter.store.contract import GroupError, ItemGroup, OutputContext, StoreContext
from skitter.store.outputs import open_output

CALLS = []


class Plain:
    """Its constructor has no parameters, and its method blocks."""

    def save(self, items):
        CALLS.append((threading.current_thread() is threading.main_thread(), items))
        if items == [{"n": 2}]:
            raise ValueError("two\nlines")


class Async:
    def __init__(self, address):
        self.rest = address.rest

    async def open(self):
        if self.rest == "nowhere":
            raise ConnectionError("no such place")
        CALLS.append("open")

    async def save(self, items, page):
        CALLS.append((self.rest, items, page))
        if items == [{"n": 2}]:
            raise StoreError("the place is full", remedy="make room")

    async def close(self):
        CALLS.append("close")


@pytest.fixture(autouse=True)
def calls():
    CALLS.clear()
    return CALLS


def page(number):
    return ItemGroup(number.to_bytes(16, "big"), [{"n": number}])


async def opened(output):
    store = output.store()
    await store.open(StoreContext("quotes", "w1", "/nowhere"))
    return store


async def test_a_plain_method_is_called_in_a_thread_once_a_page_and_its_error_fails_the_page(calls):
    output = await asyncio.to_thread(open_output, f"{__name__}:Plain")
    await output.check(OutputContext("quotes", "/nowhere"))
    store = await opened(output)
    answers = await store.write([page(1), ItemGroup(bytes(16), []), page(2), page(3)])
    await store.close()
    assert calls == [(False, [{"n": 1}]), (False, [{"n": 2}]), (False, [{"n": 3}])]
    assert [type(answer) for answer in answers] == [type(None), type(None), GroupError, type(None)]
    assert "ValueError: two lines" in answers[2].error


async def test_a_coroutine_with_the_page_is_given_its_id_also_without_items(calls):
    store = await opened(await asyncio.to_thread(open_output, f"{__name__}:Async:here"))
    assert await store.write([page(1), ItemGroup((7).to_bytes(16, "big"), [])]) == [None, None]
    with pytest.raises(StoreError):
        await store.write([page(2)])
    await store.close()
    ids = [f"quotes:{number:032x}" for number in (1, 7, 2)]
    assert calls == [
        "open", ("here", [{"n": 1}], ids[0]), ("here", [], ids[1]), ("here", [{"n": 2}], ids[2]), "close",
    ]  # fmt: skip


async def test_a_store_that_cannot_be_opened_is_reported_before_the_crawl(calls):
    output = await asyncio.to_thread(open_output, f"{__name__}:Async:nowhere")
    with pytest.raises(StoreError) as caught:
        await output.check(OutputContext("quotes", "/nowhere"))
    assert caught.value.field == "output"
    assert calls == ["close"]
