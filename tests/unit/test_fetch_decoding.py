"""decode_body: every coding, with complete, invalid and truncated data, and with decompression bombs."""

import contextlib
import gzip
import random
import tracemalloc
import zlib

import brotli
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skitter.fetch.contract import BodyTooLarge, UndecodableBody
from skitter.fetch.decoding import MAX_STREAMS, decode_body, zstd

TEXT = "".join(f"<p>paragraph {number} of a page</p>\n" for number in range(2000)).encode()
PLENTY = 10_000_000


def raw_deflate(data):
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


ENCODERS = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "raw": raw_deflate,
    "br": brotli.compress,
    "zstd": zstd.compress,
}
CODINGS = sorted(ENCODERS)


def decode(body, coding, limit=PLENTY):
    return decode_body(body, ["deflate" if coding == "raw" else coding], limit)


@pytest.mark.parametrize("coding", CODINGS)
@given(data=st.binary(max_size=2000), times=st.sampled_from([1, 50]))
def test_a_coded_body_comes_back(coding, data, times):
    assert decode(ENCODERS[coding](data * times), coding) == data * times


@pytest.mark.parametrize("coding", CODINGS)
def test_a_body_of_exactly_the_limit_passes_and_one_byte_more_does_not(coding):
    coded = ENCODERS[coding](TEXT)
    assert decode(coded, coding, len(TEXT)) == TEXT
    with pytest.raises(BodyTooLarge):
        decode(coded, coding, len(TEXT) - 1)


@pytest.mark.parametrize("coding", CODINGS)
def test_truncated_data_is_undecodable_wherever_it_is_cut(coding):
    coded = ENCODERS[coding](TEXT)
    for length in {1, 2, 5, len(coded) // 3, len(coded) // 2, len(coded) - 1}:
        with pytest.raises(UndecodableBody):
            decode(coded[:length], coding)


@pytest.mark.parametrize("coding", CODINGS)
def test_an_uncompressed_body_with_a_coding_is_undecodable(coding):
    with pytest.raises(UndecodableBody):
        decode(b"<html>plain</html>", coding)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_wrong_checksum_is_undecodable(coding):
    coded = bytearray(ENCODERS[coding](TEXT))
    coded[-5 if coding == "gzip" else -1] ^= 1
    with pytest.raises(UndecodableBody):
        decode(bytes(coded), coding)


@pytest.mark.parametrize("coding", CODINGS)
@given(data=st.binary(min_size=1, max_size=300))
def test_any_bytes_are_decoded_or_refused(coding, data):
    with contextlib.suppress(UndecodableBody, BodyTooLarge):
        assert len(decode(data, coding, 1000)) <= 1000


@pytest.mark.parametrize("coding", CODINGS)
def test_a_bomb_never_takes_much_more_memory_than_the_limit(coding):
    zeros = bytes(100_000_000)
    bomb = brotli.compress(zeros, quality=1) if coding == "br" else ENCODERS[coding](zeros)
    del zeros
    limit = 1_000_000
    tracemalloc.start()
    with pytest.raises(BodyTooLarge):
        decode(bomb, coding, limit)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # The output buffer doubles as it grows, and its blocks are joined at the end.
    assert peak < 5 * limit


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_streams_that_follow_each_other_are_joined_and_count_together(coding):
    encode = ENCODERS[coding]
    coded = encode(b"one ") + encode(b"") + encode(b"two")
    assert decode(coded, coding) == b"one two"
    assert decode(coded, coding, 7) == b"one two"
    with pytest.raises(BodyTooLarge):
        decode(coded, coding, 6)


@pytest.mark.parametrize("coding", [coding for coding in CODINGS if coding != "br"])
def test_rubbish_after_the_end_is_ignored(coding):
    assert decode(ENCODERS[coding](TEXT) + bytes(8), coding) == TEXT


@pytest.mark.parametrize("outer", ["gzip", "br", "zstd"])
def test_stacked_codings_are_undone_from_the_last(outer):
    coded = ENCODERS[outer](gzip.compress(gzip.compress(TEXT)))
    assert decode_body(coded, ["gzip", "x-gzip", outer], PLENTY) == TEXT


def test_more_than_three_codings_are_refused():
    with pytest.raises(UndecodableBody, match=r"\b4\b"):
        decode_body(TEXT, ["gzip"] * 4, PLENTY)


def test_the_limit_holds_between_two_codings():
    inner = b"x" * 5000
    coded = gzip.compress(gzip.compress(inner, compresslevel=0))
    with pytest.raises(BodyTooLarge):
        decode_body(coded, ["gzip", "gzip"], 5000)
    assert decode_body(coded, ["gzip", "gzip"], 6000) == inner


@pytest.mark.parametrize("codings", [[], ["utf-8"], ["gzip", "none"]])
def test_an_unknown_coding_leaves_the_body_as_it_is(codings):
    assert decode_body(TEXT, codings, PLENTY) == TEXT


def test_a_zstd_window_above_8_mib_is_refused():
    options = {zstd.CompressionParameter.window_log: 24}
    packer = zstd.ZstdCompressor(options=options)
    # Only data of unknown length uses the requested window.
    coded = packer.compress(TEXT) + packer.flush()
    with pytest.raises(UndecodableBody):
        decode_body(coded, ["zstd"], PLENTY)


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_body_of_too_many_streams_is_undecodable(coding):
    empty = ENCODERS[coding](b"")
    full = ENCODERS[coding](b"x")
    assert decode(full * MAX_STREAMS, coding) == b"x" * MAX_STREAMS
    with pytest.raises(UndecodableBody):
        decode(empty * (MAX_STREAMS + 1), coding)


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
@given(
    parts=st.lists(st.integers(0, 200_000), min_size=2, max_size=4),
    trailer=st.sampled_from([b"", b"\0\0", b"junk"]),
)
def test_consecutive_streams_of_any_length_come_back(coding, parts, trailer):
    noise = random.Random(0)
    data = [noise.randbytes(size) for size in parts]
    coded = b"".join(ENCODERS[coding](part) for part in data)
    assert decode(coded + trailer, coding) == b"".join(data)
    with pytest.raises(UndecodableBody):
        decode(coded[:-1], coding)
