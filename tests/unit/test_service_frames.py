"""Frames: output of processes through a common pipe stays intact, whatever other processes write and whenever one is killed."""

import errno
import fcntl
import json
import logging
import os
import subprocess
import sys
import threading

import pytest

from skitter.run.log_frames import MARK, LogFrameHandler, LogLine, StreamToLog, frames_of, level_name
from skitter.service.log_collector import LogFrameReader
from skitter.service.logs import line_fields, line_text

TALKER = """
import logging, os, sys, threading, warnings
from skitter.run.process import FRAMES, set_up_logging
os.write(2, b"before anything\\n")
set_up_logging("info", FRAMES, "worker-1")
logging.getLogger("mine").info("of %s", "mine")
logging.getLogger("mine").debug("not this")
logging.getLogger("mine").info("bad %d", "arguments")
logging.getLogger("skitter.spider.shop").error("with a stop: \\ud800\\x00\\n second line")
warnings.warn("careful")
print("printed", "twice")
print("in two ", end=""); print("pieces")
print("to the other", file=sys.stderr)
os.write(2, b"raw, without an end")
print("behind it", file=sys.stderr)
def fail(): raise KeyError("in a thread")
thread = threading.Thread(target=fail); thread.start(); thread.join()
sys.stdout.write("unfinished")
{last}
"""


def output_of(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, timeout=60)
    assert done.stdout == b""
    reader = LogFrameReader()
    return reader.feed(done.stderr) + reader.end(), done.returncode


def test_all_output_of_a_process_is_logged_with_level_logger_and_worker():
    lines, _ = output_of(TALKER.replace("{last}", "raise ValueError('the end')"))
    assert lines[0].message == "before anything"
    found = {(line.logger, line.level, line.message.splitlines()[0]): line for line in lines}
    for expected in (
        ("mine", "info", "of mine"),
        ("skitter.spider.shop", "error", "with a stop: ?\0"),
        ("stdout", "info", "printed twice"),
        ("stdout", "info", "in two pieces"),
        ("stdout", "info", "unfinished"),
        ("stderr", "warning", "to the other"),
        ("stderr", "warning", "behind it"),
        ("skitter", "critical", "a thread ended by KeyError"),
        ("skitter", "critical", "the process ended by ValueError"),
    ):
        assert found[expected].worker == "worker-1", expected
    assert "ValueError: the end" in found["skitter", "critical", "the process ended by ValueError"].traceback
    assert found["stderr", "warning", "raw, without an end"].worker == ""
    assert any(line.logger == "py.warnings" and "careful" in line.message for line in lines)
    assert any("not all arguments converted" in line.message or "%d format" in line.message for line in lines)
    assert not any("not this" in line.message for line in lines)


def test_the_last_lines_of_a_crashed_interpreter_are_read():
    lines, status = output_of(TALKER.replace("{last}", "import ctypes; ctypes.string_at(0)"))
    assert status < 0
    assert any("Segmentation fault" in line.message for line in lines)
    assert any(line.message == "of mine" for line in lines)


def test_a_line_of_any_length_survives_any_division_of_its_frames():
    texts = ["x" * 3000, "ü\0\n" * 4000, '"\\' * 5000, "", "short"]
    for message in texts:
        for trace in texts:
            line = LogLine(1.0, "error", "a", message, worker="w", traceback=trace)
            pieces = list(frames_of(line))
            assert max(map(len, pieces)) <= 4096
            data = b"".join(pieces)
            for size in (1, 7, 4096, len(data)) if len(data) < 10_000 else (len(data),):
                reader = LogFrameReader()
                found = [one for at in range(0, len(data), size) for one in reader.feed(data[at : at + size])]
                assert [(one.message, one.traceback) for one in found] == [(message, trace)]


def test_a_long_text_keeps_its_beginning_and_its_end():
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 1 << 18)
    handler = LogFrameHandler(writer, "w")
    handler.handle(logging.LogRecord("a", logging.INFO, "", 0, f"begin{'-' * 100_000}end", None, None))
    os.close(handler._out)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        (line,) = LogFrameReader().feed(pipe.read())
    assert line.message.startswith("begin--")
    assert line.message.endswith("--end")
    assert "84008 characters" in line.message
    assert len(line.message) < 17_000


def test_a_writer_that_is_killed_in_the_middle_of_a_line_breaks_no_other():
    long = list(frames_of(LogLine(1.0, "error", "a", "y" * 10_000, worker="killed")))
    other = b"".join(frames_of(LogLine(2.0, "info", "b", "whole", worker="alive")))
    for cut in range(1, len(long)):
        reader = LogFrameReader()
        found = reader.feed(b"".join(long[:cut]) + other) + reader.end()
        assert (found[0].worker, found[0].message) == ("alive", "whole")
        assert found[1].message == "y" * len(found[1].message)
    # An incomplete line in the pipe, as of a program without frames.
    reader = LogFrameReader()
    found = reader.feed(long[0][:-10] + other) + reader.end()
    assert found[-1].message == "whole"


def test_an_incomplete_line_is_delivered_before_the_next_one():
    long = list(frames_of(LogLine(1.0, "error", "a", "y" * 10_000, worker="w")))
    reader = LogFrameReader()
    found = reader.feed(long[0] + b"".join(frames_of(LogLine(2.0, "info", "b", "next", worker="w"))))
    assert [line.message[:4] for line in found] == ["yyyy", "next"]


@pytest.mark.parametrize(
    "data",
    [
        MARK * 100 + b"\n",
        MARK + b"[" * 40_000 + b"\n",
        MARK + b'{"time": 1e400, "level": "info", "logger": "a"}\n',
        MARK + b'{"time": -5, "level": "loud", "logger": "a", "node": "forged"}\n',
        MARK
        + b'{"time": 1, "level": "info", "logger": "a", "message": "m", "more": true}\n'
        + b"x" * 100_000,
        b"\xff\xfe\n\r\n\0\n",
        b"".join(
            b'%s{"time": 1, "level": "info", "logger": "a", "worker": "%d", "more": true}\n' % (MARK, n)
            for n in range(1000)
        ),
        MARK
        + b'{"time": 1, "level": "info", "logger": "a", "fields": {"a": '
        + b"[" * 5000
        + b"]" * 5000
        + b"}}\n",
    ],
)
def test_any_bytes_in_the_pipe_become_lines_that_can_be_stored(data):
    reader = LogFrameReader()
    for line in reader.feed(data) + reader.end():
        assert line.level in {"debug", "info", "warning", "error", "critical"}
        assert json.loads(json.dumps(line_fields(1, line)))
        assert line_text(line).endswith("\n")
        assert not line.node
        assert len(line.message) <= 1 << 17
    assert len(reader._partial) == 0


def test_many_processes_that_write_at_once_mix_nothing():
    reader, writer = os.pipe()
    lines, have_begun = [], threading.Event()

    def read():
        frames = LogFrameReader()
        with os.fdopen(reader, "rb", buffering=0) as pipe:
            while data := pipe.read(1 << 16):
                lines.extend(frames.feed(data))
                if len({line.worker for line in lines}) == 3:
                    have_begun.set()
        lines.extend(frames.end())

    thread = threading.Thread(target=read)
    thread.start()
    program = (
        "import logging, sys\n"
        "from skitter.run.process import FRAMES, set_up_logging\n"
        "set_up_logging('info', FRAMES, sys.argv[1])\n"
        "logging.info('begun')\n"
        "sys.stdin.read()\n"
        "for n in range(300):\n"
        "    logging.info('%s %d %s', sys.argv[1], n, sys.argv[1] * (n * 17 % 7000))\n"
    )
    workers = [
        subprocess.Popen([sys.executable, "-c", program, name], stdin=subprocess.PIPE, stderr=writer)
        for name in ("ab", "cd", "ef")
    ]
    os.close(writer)
    # A process that starts when the others have filled the pipe loses all its lines if the pipe is not read for a
    # while.
    assert have_begun.wait(60)
    for worker in workers:
        worker.stdin.close()
    assert [worker.wait(60) for worker in workers] == [0, 0, 0]
    thread.join()
    kept = [line for line in lines if not line.message.startswith("lost ")]
    for line in kept:
        name, number, rest = line.message.split(" ", 2) if line.message.count(" ") > 1 else ("", "0", "")
        if name and "characters omitted" not in rest and line.logger == "root":
            whole = name * (int(number) * 17 % 7000)
            assert whole.startswith(rest), "nothing of another in it"
    assert {line.worker for line in kept} == {"ab", "cd", "ef"}


def test_writers_do_not_wait_for_an_unread_pipe_and_lost_lines_are_counted(monkeypatch):
    reader, writer = os.pipe()
    handler = LogFrameHandler(writer, "w")
    logger = logging.getLogger("talker")
    monkeypatch.setattr(logger, "handlers", [handler])
    monkeypatch.setattr(logger, "propagate", False)
    for number in range(5000):
        logger.warning("line %d %s", number, "x" * 100)  # would wait forever
    os.set_blocking(reader, False)
    frames = LogFrameReader()
    found = frames.feed(os.read(reader, 1 << 20))
    logger.warning("after")
    found += frames.feed(os.read(reader, 1 << 20))
    assert found[0].message.startswith("line 0 ")
    numbers = [int(line.message.split()[1]) for line in found[:-2]]
    assert numbers == list(range(len(numbers)))
    assert f"lost {5000 - len(numbers):,} lines" in found[-2].message
    assert found[-1].message == "after"
    for _ in range(5000):
        logger.warning("z" * 100)
    handler.flush()
    found = frames.feed(os.read(reader, 1 << 20))
    handler.flush()  # as at the end of the process
    handler.flush()
    (loss,) = frames.feed(os.read(reader, 1 << 20))
    assert f"lost {5000 - len(found):,} lines" in loss.message
    os.close(reader)
    logger.warning("to nobody")  # the node is gone
    os.close(handler._out)
    os.close(writer)


def test_a_handler_that_cannot_reopen_the_pipe_uses_its_descriptor(monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOENT, "no /proc")

    reader, writer = os.pipe()
    monkeypatch.setattr(os, "open", refuse)
    handler = LogFrameHandler(writer, "w")
    handler.handle(logging.LogRecord("a", logging.INFO, "", 0, "said", None, None))
    os.close(handler._out)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        (line,) = LogFrameReader().feed(pipe.read())
    assert line.message == "said"


def test_printed_text_without_a_line_end_is_bounded_and_logged_on_flush():
    emitted = []
    handler = logging.Handler()
    handler.emit = lambda record: emitted.append(record.getMessage())
    stream = StreamToLog("stdout", logging.INFO, sys.__stdout__, handler)
    stream.write("a" * 20_000)
    stream.write("b")
    assert [len(text) for text in emitted] == [20_000]
    stream.flush()
    stream.flush()
    stream.write("\n\n   \n")
    assert emitted[1:] == ["b"]
    with pytest.raises(TypeError):
        stream.write(b"bytes")
    assert stream.writable()
    assert stream.fileno() == sys.__stdout__.fileno()


@pytest.mark.parametrize(("number", "name"), [(0, "debug"), (10, "debug"), (25, "info"), (30, "warning"), (90, "critical")])  # fmt: skip
def test_a_level_between_two_counts_as_the_lower_one(number, name):
    assert level_name(number) == name
