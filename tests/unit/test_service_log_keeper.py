"""LogKeeper of a node: no caller waits for it, lines are stored once, and displayed text is safe."""

import asyncio
import itertools
import logging

import msgspec
import pytest

from skitter._utils.redaction import Redactor
from skitter.errors import StoreError
from skitter.run.log_frames import LEVELS, LogLine, severity_of
from skitter.service import log_collector, logs
from skitter.service.log_collector import LogBuffer
from skitter.service.logs import LogView, as_json_lines, as_text


class FakeLog:
    """A log in memory that may refuse lines."""

    def __init__(self):
        self.lines, self.calls, self.refusal, self.is_open = [], [], None, True
        self.came = asyncio.Event()

    async def append(self, lines, call):
        if self.refusal is not None:
            self.came.set()
            raise self.refusal
        if call not in self.calls:
            self.calls.append(call)
            self.lines += lines
        self.came.set()

    async def read(self, after, limit):
        return list(enumerate(self.lines, 1))[after : after + limit]

    async def close(self):
        self.is_open = False

    @property
    def messages(self):
        return [msgspec.json.decode(line)["message"] for line in self.lines]


@pytest.fixture
def kept(monkeypatch):
    for name in ("_BATCH_DELAY", "_FIRST_RETRY", "_MAX_RETRY"):
        monkeypatch.setattr(log_collector, name, 0.01)
    return FakeLog()


@pytest.fixture
async def keeper(kept):
    keeper = LogBuffer("job.1", kept, Redactor(["hidden"]), "node", "info", itertools.count(1))
    yield keeper
    await keeper.close()


def line(message, level="info", **more):
    return LogLine(1.0, level, "mine", message, worker="w", **more)


async def test_lines_are_kept_masked_with_their_node_and_those_below_the_level_are_not(kept, keeper, caplog):
    with caplog.at_level("WARNING", "skitter.service.runs"):
        keeper.take(line("of no weight", "debug"))
        keeper.take(line("it is hidden"))
        keeper.take(line("grave", "error", traceback="Trace of hidden", fields={"password": "x", "n": 1}))
        keeper.add_message("warning", "by hidden node")
        await kept.came.wait()
    found = [msgspec.json.decode(one) for one in kept.lines]
    assert [one["message"] for one in found] == ["it is ***", "grave", "by *** node"]
    assert found[1]["traceback"] == "Trace of ***"
    assert found[1]["fields"] == {"password": "***", "n": 1}
    assert {one["node"] for one in found} == {"node"}
    messages = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert messages == [("ERROR", "job.1: grave\nTrace of ***")], "the node's own log has its own level"


async def test_a_log_that_cannot_be_kept_is_reported_once_and_nothing_of_it_is_duplicated_or_lost(
    kept, keeper, caplog
):
    kept.refusal = StoreError("the disk is full")
    keeper.take(line("first"))
    await kept.came.wait()
    keeper.take(line("second"))
    for _ in range(5):
        kept.came.clear()
        await kept.came.wait()
    kept.refusal = None
    keeper.take(line("third"))
    while len(kept.lines) < 3:
        kept.came.clear()
        await kept.came.wait()
    await keeper.close()
    assert kept.messages == ["first", "second", "third"]
    messages = [record.getMessage() for record in caplog.records if record.name == "skitter.service"]
    assert len(messages) == 2
    assert all("the log of job.1" in text for text in messages)
    assert "the disk is full" in messages[0]


async def test_a_call_whose_answer_was_lost_is_made_again_with_the_same_lines(kept, keeper):
    whole = kept.append

    async def append_and_lose_the_answer(lines, call):
        await whole(lines, call)
        kept.append = whole
        raise StoreError("the connection broke")

    kept.append = append_and_lose_the_answer
    keeper.take(line("once"))
    await kept.came.wait()
    keeper.take(line("more"))
    while len(kept.lines) < 2:
        kept.came.clear()
        await kept.came.wait()
    assert kept.messages == ["once", "more"]
    assert len(kept.calls) == 2


async def test_closing_waits_for_the_running_call_and_closes_once(kept, keeper):
    whole, started, released = kept.append, asyncio.Event(), asyncio.Event()

    async def slow(lines, call):
        started.set()
        await whole(lines, 100 + len(kept.calls))  # a store that does not recognise a repetition
        await released.wait()

    kept.append = slow
    keeper.take(line("once"))
    await started.wait()
    keeper.take(line("last"))
    closing = asyncio.create_task(keeper.close())
    await asyncio.sleep(0)
    released.set()
    await closing
    assert kept.messages == ["once", "last"]


async def test_waiting_lines_are_bounded_and_lost_lines_are_counted(kept, keeper):
    kept.refusal = StoreError("away")
    for number in range(3000):
        keeper.take(line(f"{number} {'x' * 1000}"))
    kept.refusal = None
    await keeper.close()
    keeper.take(line("after"))
    for number in range(2000):
        keeper.take(line(f"again {'x' * 1000} {number}"))
    await keeper.close()
    missing = [message for message in kept.messages if "could not be stored" in message]
    numbers = [int(message.split()[0]) for message in kept.messages if message.endswith("xxx")]
    again = [message for message in kept.messages if message.startswith("again")]
    assert numbers == list(range(len(numbers)))
    assert 500 < len(numbers) < 1500
    counts = [int(message.split()[1].replace(",", "")) for message in missing]
    assert counts == [3000 - len(numbers), 2000 - len(again)]
    assert kept.messages.index("after") == len(numbers) + 1
    assert kept.messages[-1] == missing[-1]


async def test_remaining_lines_are_stored_when_the_run_ends(kept, keeper):
    keeper.take(line("last words"))
    await keeper.close()
    assert kept.messages == ["last words"]
    assert not kept.is_open


# --- reading -------------------------------------------------------------------------------------------------


@pytest.fixture
def filled(kept):
    levels = ("debug", "info", "warning", "error")
    kept.lines = [
        msgspec.json.encode(line(f"number {n} of http://H/{n}", levels[n % 4])) for n in range(1, 2501)
    ]
    return kept


async def test_a_page_of_the_log_has_the_selected_lines_and_the_next_page_continues(filled):
    view = LogView(lambda: filled, "warning", "")
    page = await view.page(0, 3)
    assert ([number for number, _ in page.lines], page.next) == ([2, 3, 6], 6)
    page = await view.page(6, 2)
    assert ([number for number, _ in page.lines], page.next) == ([7, 10], 10)
    page = await LogView(lambda: filled, "debug", "HTTP://h/2400").page(0, 10)
    assert ([number for number, _ in page.lines], page.next) == ([2400], 2500)
    page = await LogView(lambda: filled, "critical", "").page(0, 10)
    assert (page.lines, page.next) == ([], 2500)
    assert not filled.is_open
    page = await view.page(0, last=2)
    assert ([number for number, _ in page.lines], page.next) == ([2498, 2499], 2500)
    page = await view.page(2498, last=5)
    assert ([number for number, _ in page.lines], page.next) == ([2499], 2500)


async def test_all_lines_come_in_one_answer(filled):
    view = LogView(lambda: filled, "debug", "")
    found = [number async for lines in view.rest(await view.page(0)) for number, _ in lines]
    assert found == list(range(1, 2501))
    found = [number async for lines in view.rest(await view.page(0, last=7)) for number, _ in lines]
    assert found == list(range(2494, 2501))


async def test_a_follower_gets_all_lines_until_the_end_and_keep_alives(filled, monkeypatch):
    monkeypatch.setattr(logs, "_POLL_INTERVAL", 0.001)
    monkeypatch.setattr(logs, "_KEEP_ALIVE_INTERVAL", 0.0)
    view, looks = LogView(lambda: filled, "debug", ""), 0

    async def has_started():
        nonlocal looks
        looks += 1
        if looks == 3:
            raise StoreError("the store is away")
        if looks == 5:
            filled.lines.append(msgspec.json.encode(line("the last")))  # added while it was read
        return looks < 5

    answers = [lines async for lines in view.follow(await view.page(2400), asyncio.Event(), has_started)]
    assert [number for lines in answers for number, _ in lines] == list(range(2401, 2502))
    assert answers[-1][-1][1].message == "the last"
    assert [] in answers


async def test_a_stream_of_a_follower_ends_when_the_node_leaves(filled):
    leaving = asyncio.Event()
    view = LogView(lambda: filled, "debug", "")

    async def has_started():
        leaving.set()
        return True

    answers = view.follow(await view.page(2490), leaving, has_started)
    assert [number async for lines in answers for number, _ in lines] == list(range(2491, 2501))


def test_a_crawled_page_can_neither_add_lines_nor_control_a_terminal():
    forged = "http://h/\n2026-11-22T00:00:00.000Z ERROR x: forged\r\x1b[2J\x9b2J\0end\n"
    text = as_text([(1, line(forged, "error", node="n", traceback="Trace\n  of it"))]).decode()
    assert text.splitlines() == [
        "1970-01-01T00:00:01.000Z ERROR   n/w mine: http://h/",
        "    2026-11-22T00:00:00.000Z ERROR x: forged\\x0d\\x1b[2J\\x9b2J\\x00end",
        "    ",
        "    Trace",
        "      of it",
    ]
    assert as_text([]) == as_json_lines([]) == b"\n"
    assert as_json_lines([(5, line("a\nb"))]).count(b"\n") == 1


def test_an_unknown_level_counts_as_critical():
    assert severity_of("loud") == severity_of("critical") > severity_of("error") > severity_of("debug")


def test_a_node_repeats_lines_from_its_log_level_on():
    assert [logging.getLevelName(severity_of(name)).lower() for name in LEVELS] == list(LEVELS)
