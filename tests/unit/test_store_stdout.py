"""Standard output: each committed byte is printed once, and a closed pipe is not an error."""

import asyncio
import errno
import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skitter.errors import StoreError
from skitter.store.contract import OutputContext
from skitter.store.stdout import RangeSet, StdoutOutput


@pytest.fixture
def parts(tmp_path):
    folder = tmp_path / "parts" / "items"
    folder.mkdir(parents=True)
    (folder / "w1.jsonl").write_bytes(b"".join(b'{"n":%d}\n' % n for n in range(10)))
    return folder.parent


@pytest.fixture
def pipe():
    reader, writer = os.pipe()
    yield reader, writer
    for descriptor in (reader, writer):
        try:
            os.close(descriptor)
        except OSError:
            assert descriptor == reader, "only a test of closed pipes closes the reader"


class Printer:
    """Standard output of a job with these parts."""

    def __init__(self, parts, descriptor):
        self._output = StdoutOutput(descriptor)
        self._context = OutputContext("quotes", str(parts.parent))

    def emit(self, ranges):
        return asyncio.run(self._output.emit(self._context, ranges))


def ranges(*numbers: int) -> dict:
    return {"items/w1.jsonl": [(8 * n, 8 * n + 8) for n in numbers]}


def test_every_range_is_printed_once_even_if_passed_repeatedly(parts, pipe):
    reader, writer = pipe
    output = Printer(parts, writer)
    assert output.emit(ranges(0, 1))
    assert output.emit(ranges(0, 1, 3))
    assert output.emit(ranges(2))
    assert output.emit(ranges(0, 1, 2, 3))
    assert os.read(reader, 1000) == b'{"n":0}\n{"n":1}\n{"n":3}\n{"n":2}\n'


def test_a_closed_reader_is_not_an_error(parts, pipe):
    reader, writer = pipe
    output = Printer(parts, writer)
    os.close(reader)
    assert not output.emit(ranges(0))
    assert not output.emit(ranges(1))


def test_a_full_disk_behind_stdout_is_a_permanent_error(parts):
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        output = Printer(parts, full)
        for _ in range(2):
            with pytest.raises(StoreError, match="standard output") as caught:
                output.emit(ranges(0))
            assert caught.value.__cause__.errno == errno.ENOSPC
            assert caught.value.remedy
    finally:
        os.close(full)


def test_a_store_waits_for_a_stdout_that_does_not_block(parts, pipe):
    reader, writer = pipe
    line = b'{"n":"' + b"x" * 499_990 + b'"}\n'
    (parts / "items" / "w2.jsonl").write_bytes(line)
    os.set_blocking(writer, False)
    output = Printer(parts, writer)
    printer = threading.Thread(target=output.emit, args=({"items/w2.jsonl": [(0, len(line))]},))
    printer.start()
    got = b""
    while len(got) < len(line):
        got += os.read(reader, 65536)
    printer.join()
    assert got == line


async def test_a_closed_stdout_is_found_before_the_crawl(tmp_path):
    descriptor = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    output = StdoutOutput(descriptor)
    await output.check(OutputContext("quotes", str(tmp_path)))
    os.close(descriptor)
    with pytest.raises(StoreError) as caught:
        await output.check(OutputContext("quotes", str(tmp_path)))
    assert caught.value.field == "output"


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=20))
def test_a_range_set_agrees_with_a_set_of_numbers(adds):
    ranges, model = RangeSet(), set()
    for start, size in adds:
        new = {n for gap in ranges.add(start, start + size) for n in range(*gap)}
        assert new == set(range(start, start + size)) - model
        model |= new
