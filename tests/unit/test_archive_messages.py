"""Recorded HTTP messages are read like those from the network."""

import gzip
import zlib

import pytest

from skitter import Response
from skitter.archive.messages import NotArchived, decode_message, split_message, without_chunks
from skitter.fetch.contract import BodyTooLarge

PAGE = b"<title>page</title>"


@pytest.mark.parametrize(
    ("block", "status", "headers"),
    [
        (b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n", 200, {"A": "b"}),
        (b"HTTP/1.0 404\r\n\r\n", 404, {}),
        (b"HTTP/1.1 200 OK\nA: b\nC: d\n\n", 200, {"A": "b", "C": "d"}),
        (b"HTTP/2 200\r\nA: b\r\n\r\n", 200, {"A": "b"}),
        (b"ICY 200 OK\r\nA: b\r\n\r\n", 200, {"A": "b"}),
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nA: b\r\n\r\n", 200, {"A": "b"}),
    ],
    ids=["usual", "no headers", "line feeds", "http/2", "icy", "interim"],
)
def test_a_message_has_a_status_headers_and_a_body(block, status, headers):
    found, head, body = split_message(block + PAGE + b"\r\n\r\nmore")
    assert (found, body) == (status, PAGE + b"\r\n\r\nmore")
    assert dict(Response("http://a/", found, headers=head).headers) == headers


@pytest.mark.parametrize("block", [b"", b"garbage", b"HTTP/1.1 \r\nA: b\r\n\r\n"])
def test_a_message_without_a_status_is_an_error(block):
    with pytest.raises(NotArchived, match="no HTTP status"):
        split_message(block)


def response_of(body, **headers):
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return Response("http://a/", headers=f"HTTP/1.1 200 OK\r\n{lines}\r\n".encode(), body=body)


def chunked(body):
    return b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (PAGE, {}),
        (gzip.compress(PAGE), {"Content_Encoding": "x-gzip"}),
        (zlib.compress(PAGE)[2:-4], {"Content_Encoding": "deflate"}),
        (PAGE, {"Content_Encoding": "utf-8"}),
        (PAGE, {"Transfer_Encoding": "chunked"}),
        (chunked(PAGE), {"Transfer_Encoding": "Chunked"}),
        (chunked(gzip.compress(PAGE)), {"Transfer_Encoding": "chunked", "Content_Encoding": "gzip"}),
    ],
    ids=["plain", "x-gzip", "raw deflate", "unknown", "chunked in name only", "chunked", "both"],
)
def test_codings_are_undone(body, headers):
    response = response_of(body, **headers)
    decode_message(response, 1000, cuts=False, needs_body=True)
    assert response.body == PAGE
    assert not response.is_truncated


def test_a_compressed_body_keeps_its_recorded_form():
    response = response_of(chunked(gzip.compress(PAGE)), Transfer_Encoding="chunked", Content_Encoding="gzip")
    decode_message(response, 1000, cuts=False, needs_body=True)
    assert gzip.decompress(response.wire_body) == PAGE


def test_chunks_may_have_extensions_and_trailers():
    assert without_chunks(b"4;a=b\r\npage\r\n2 \r\ns!\r\n0\r\nDigest: x\r\n\r\n") == b"pages!"


def test_a_body_whose_last_chunk_is_missing_is_an_error_unless_it_may_be_cut():
    body = b"4\r\npage\r\n5\r\nab"
    with pytest.raises(NotArchived, match="last chunk"):
        without_chunks(body)
    assert without_chunks(body, cuts=True) == b"pageab"


def test_a_body_over_the_limit_is_an_error_unless_it_may_be_cut():
    with pytest.raises(BodyTooLarge):
        decode_message(response_of(PAGE), 7, cuts=False, needs_body=True)
    response = response_of(PAGE)
    decode_message(response, 7, cuts=True, needs_body=True)
    assert (response.body, response.is_truncated) == (PAGE[:7], True)


def test_a_damaged_body_matters_only_for_a_page():
    with pytest.raises(NotArchived, match="cannot be decoded"):
        decode_message(response_of(PAGE, Content_Encoding="gzip"), 1000, cuts=False, needs_body=True)
    response = response_of(PAGE, Content_Encoding="gzip")
    decode_message(response, 1000, cuts=False, needs_body=False)
    assert response.body == b""
