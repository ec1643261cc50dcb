"""Frames and commands of the NSQ protocol, as bytes."""

import struct

import pytest

from skitter.brokers.nsq_client import NsqError, is_channel, is_topic, protocol


def frame(kind: int, content: bytes) -> bytes:
    return struct.pack(">II", len(content) + 4, kind) + content


@pytest.mark.parametrize("size", [1, 3, 7, 8, 9, 1000])
def test_frames_are_found_however_the_stream_is_cut(size):
    stream = frame(0, b"OK") + frame(2, bytes(300)) + frame(1, b"E_INVALID no") + frame(0, b"")
    reader = protocol.NsqFrameReader()
    found = [one for at in range(0, len(stream), size) for one in reader.feed(stream[at : at + size])]
    assert found == [(0, b"OK"), (2, bytes(300)), (1, b"E_INVALID no"), (0, b"")]
    assert reader.rest() == b""


@pytest.mark.parametrize("size", [0, 3, protocol.MAX_FRAME_SIZE + 1])
def test_a_frame_of_impossible_size_is_an_error(size):
    with pytest.raises(NsqError, match=f"{size} bytes"):
        list(protocol.NsqFrameReader().feed(struct.pack(">II", size, 0)))


def test_the_bytes_after_a_frame_can_be_taken_back():
    reader = protocol.NsqFrameReader()
    frames = reader.feed(frame(0, b"OK") + b"compressed")
    assert next(frames) == (0, b"OK")
    frames.close()
    assert reader.rest() == b"compressed"


def test_commands_are_those_of_the_specification():
    assert protocol.pub("t", b"ab") == b"PUB t\n\x00\x00\x00\x02ab"
    assert protocol.dpub("t", b"ab", 150) == b"DPUB t 150\n\x00\x00\x00\x02ab"
    assert protocol.mpub("t", [b"a", b""]) == (
        b"MPUB t\n\x00\x00\x00\x0d\x00\x00\x00\x02\x00\x00\x00\x01a\x00\x00\x00\x00"
    )
    assert protocol.sub("t", "c") == b"SUB t c\n"
    assert protocol.rdy(5) == b"RDY 5\n"
    assert protocol.fin(b"0123456789abcdef") == b"FIN 0123456789abcdef\n"
    assert protocol.req(b"0123456789abcdef", 10) == b"REQ 0123456789abcdef 10\n"
    assert protocol.touch(b"0123456789abcdef") == b"TOUCH 0123456789abcdef\n"
    assert protocol.auth(b"s") == b"AUTH\n\x00\x00\x00\x01s"


def test_a_message_has_time_attempts_id_and_body():
    data = struct.pack(">qH16s", 17, 3, b"0123456789abcdef") + b"body"
    assert protocol.read_message(data) == (17, 3, b"0123456789abcdef", b"body")
    with pytest.raises(NsqError):
        protocol.read_message(data[:20])


@pytest.mark.parametrize("name", ["a", "a.b-c_D9", "x" * 64, "t#ephemeral"])
def test_good_names_are_taken(name):
    assert is_topic(name)
    assert is_channel(name)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ä", "x" * 65, "#ephemeral", "a\n", "a#b"])
def test_bad_names_are_refused(name):
    assert not is_topic(name)
