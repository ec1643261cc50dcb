"""Inflater: gzip and deflate data that arrives in parts of any size."""

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skitter.web.inflate import MAX_STREAMS, InflateError, Inflater


def raw(data):
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKERS = {"gzip": gzip.compress, "x-gzip": gzip.compress, "deflate": zlib.compress}
CASES = [*PACKERS.items(), ("deflate", raw)]


def inflate(coding, packed, size):
    inflater = Inflater(coding)
    parts = [
        part for start in range(0, len(packed), size) for part in inflater.feed(packed[start : start + size])
    ]
    return b"".join(parts), inflater.is_complete


@pytest.mark.parametrize(("coding", "pack"), CASES)
@given(data=st.binary(max_size=3000), size=st.integers(1, 500))
def test_parts_of_any_size_give_the_whole(coding, pack, data, size):
    packed = pack(data)
    assert inflate(coding, packed, size) == (data, True)
    assert inflate(coding, packed + b"after", size) == (data, True)
    assert not inflate(coding, packed[:-1], size)[1]


@pytest.mark.parametrize(("coding", "pack"), CASES)
@pytest.mark.parametrize("length", [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5_000_000])
def test_no_part_is_larger_than_the_limit(coding, pack, length):
    parts = list(Inflater(coding).feed(pack(bytes(length))))
    assert sum(map(len, parts)) == length
    assert max(map(len, parts)) <= 1 << 20


@given(members=st.lists(st.binary(max_size=200), min_size=1, max_size=6), size=st.integers(1, 90))
def test_consecutive_gzip_members_are_one_body(members, size):
    packed = b"".join(map(gzip.compress, members))
    assert inflate("gzip", packed, size) == (b"".join(members), True)
    assert inflate("gzip", packed + b"\0\0", size) == (b"".join(members), True)


def test_too_many_members_are_refused():
    empty = gzip.compress(b"")
    assert inflate("gzip", empty * MAX_STREAMS, 10_000) == (b"", True)
    with pytest.raises(InflateError, match="too many gzip streams"):
        inflate("gzip", empty * (MAX_STREAMS + 1), 10_000)


@pytest.mark.parametrize("coding", PACKERS)
def test_invalid_data_is_refused(coding):
    with pytest.raises(InflateError, match="invalid compressed data"):
        inflate(coding, b"<html>not compressed at all</html>" * 3, 7)
    assert not Inflater(coding).is_complete
