"""A process with limits: the end of a call that never returns."""

import os

import msgspec
import pytest

from skitter._utils import limited_process
from skitter._utils.limited_process import LimitedProcess, ProcessDied

WAITING = "import signal; signal.pause()"
ANSWERING = (
    "from skitter._utils.limited_process import serve; import msgspec; serve(lambda data: msgspec.Raw(data))"
)


class Message(msgspec.Struct):
    text: str


def test_a_process_that_waits_is_killed_and_the_next_call_starts_another(tmp_path, monkeypatch):
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    process = LimitedProcess("work", 0.1, environment={**os.environ, "PYTHONPATH": path})
    (tmp_path / "work.py").write_text(WAITING)
    with monkeypatch.context() as patch:
        patch.setattr(limited_process, "_EXTRA_SECONDS", 0.1, raising=False)
        with pytest.raises(ProcessDied, match=r"0\.2 s") as caught:
            process.call(Message("one"))
    assert caught.value.timed_out
    assert process.pid is None
    (tmp_path / "work.py").write_text(f"# answers\n{ANSWERING}\n")
    assert process.call(Message("two")) == b'{"text":"two"}'
    process.close()


def test_the_reply_of_an_interrupted_call_is_not_that_of_the_next(tmp_path, monkeypatch):
    (tmp_path / "work.py").write_text(ANSWERING)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    process = LimitedProcess("work", 5.0, environment={**os.environ, "PYTHONPATH": path})

    def interrupt(_stream, _seconds):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(limited_process, "_is_ready", interrupt)
        with pytest.raises(KeyboardInterrupt):
            process.call(Message("one"))
    assert process.call(Message("two")) == b'{"text":"two"}'
    process.close()
