"""WARC records: responses are recorded byte for byte, in the form of the standard."""

import gzip
import io

import pytest

from skitter import Request, Response
from skitter.archive.fetcher import WarcFetcher
from skitter.archive.records import encode_capture, write_warc
from skitter.fetch.identity.contract import SourceContext
from skitter.settings import Settings
from skitter.store.contract import Capture
from warc_files import ForeignArchive, read_warc

NOON = 1_800_000_000.25
RAW = b"HTTP/1.1 200 Fine\r\nContent-Type: text/html\r\nX-Twice: a\r\nx-twice: b\r\nContent-Length: 4\r\n\r\n"


def encoded(response, **headers):
    return encode_capture(Capture(response, NOON), headers)


def recorded(response, **headers):
    answer, request = read_warc(encoded(response, **headers))
    return answer, request


def test_a_response_is_recorded_as_received():
    response = Response("http://a/x", 200, headers=RAW, body=b"page", ip="192.0.2.1", protocol="http/1.1")
    answer, request = recorded(response)
    assert (answer.kind, answer.url) == ("response", "http://a/x")
    assert (answer.status, answer.body) == ("HTTP/1.1 200 Fine", b"page")
    assert answer.fields == [
        ("Content-Type", "text/html"),
        ("X-Twice", "a"),
        ("x-twice", "b"),
        ("Content-Length", "4"),
    ]
    assert answer.headers["WARC-Date"] == "2027-01-15T08:00:00.250000Z"
    assert answer.headers["WARC-IP-Address"] == "192.0.2.1"
    assert answer.headers["WARC-Payload-Digest"].startswith("sha1:")
    assert answer.headers["Content-Type"] == "application/http; msgtype=response"
    assert request.kind == "request"
    assert request.headers["WARC-Concurrent-To"] == answer.headers["WARC-Record-ID"]


def test_reading_the_headers_changes_nothing():
    response = Response("http://a/x", 200, headers=RAW, body=b"page")
    assert response.headers.getall("x-twice") == ["a", "b"]
    assert response.status == 200
    assert recorded(response)[0].status == "HTTP/1.1 200 Fine"


def test_a_compressed_body_is_recorded_as_transferred():
    packed = gzip.compress(b"page" * 100)
    response = Response("http://a/x", 200, headers=b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n")
    response.body, response.wire_body = b"page" * 100, packed
    assert recorded(response)[0].body == packed


def test_a_hook_that_replaces_the_body_does_not_change_the_record():
    response = Response("http://a/x", 200, headers=RAW, body=b"page")
    assert recorded(response.replace(body=b"other", status=404))[0].body == b"page"


def test_a_chunked_message_has_a_length_in_the_record():
    raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nServer: s\r\n\r\n"
    answer, _ = recorded(Response("http://a/", 200, headers=raw, body=b"page"))
    assert answer.fields == [
        ("X-Archive-Orig-Transfer-Encoding", "chunked"),
        ("Server", "s"),
        ("Content-Length", "4"),
    ]
    assert answer.body == b"page"


def test_http_2_is_recorded_in_the_form_of_http_1():
    raw = b"HTTP/2 404 \r\ncontent-type: text/html\r\n\r\n"
    answer, _ = recorded(Response("http://a/", 404, headers=raw, body=b"gone", protocol="h2"))
    assert answer.status == "HTTP/1.1 404"
    assert answer.headers["WARC-Protocol"] == "h2"


def test_a_response_without_its_bytes_is_rebuilt_from_its_parts():
    headers = {"Content-Type": "text/html", "Content-Encoding": "gzip", "Content-Length": "9"}
    answer, _ = recorded(Response("http://a/", 200, headers=headers, body=b"decoded"))
    assert answer.status == "HTTP/1.1 200"
    assert ("X-Archive-Orig-Content-Encoding", "gzip") in answer.fields
    assert ("Content-Length", "7") in answer.fields
    assert answer.body == b"decoded"


def test_a_cut_body_is_marked():
    response = Response("http://a/", 200, headers=RAW, body=b"pa")
    response.is_truncated = True
    assert recorded(response)[0].headers["WARC-Truncated"] == "length"


def test_an_unmodified_page_is_a_revisit():
    answer, _ = recorded(
        Response("http://a/", 304, headers=b'HTTP/1.1 304 Not Modified\r\nETag: "1"\r\n\r\n')
    )
    assert answer.kind == "revisit"
    assert answer.headers["WARC-Profile"].endswith("/revisit/server-not-modified")
    assert answer.status == "HTTP/1.1 304 Not Modified"


def test_secrets_of_a_request_are_not_recorded():
    secrets = {"Cookie": "c", "Authorization": "c", "Proxy-Authorization": "c", "X-Api-Key": "c"}
    request = Request(
        "http://a/x?q=1", method="POST", body=b"sent", headers={"Referer": "http://a/", **secrets}
    )
    _, asked = recorded(Response("http://a/x?q=1", 200, headers=RAW, request=request), **{"User-Agent": "us"})
    assert asked.status == "POST /x?q=1 HTTP/1.1"
    assert asked.fields == [
        ("Host", "a"),
        ("User-Agent", "us"),
        ("Referer", "http://a/"),
        ("Content-Length", "4"),
    ]
    assert asked.body == b"sent"


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
@pytest.mark.parametrize("is_compressed", [True, False])
def test_a_file_holds_a_record_of_its_own_and_all_given_ones(size, is_compressed):
    data = b"".join(
        encoded(Response(f"http://a/{number}", 200, headers=RAW, body=b"page")) for number in range(5)
    )
    chunks = [data[start : start + size] for start in range(0, len(data), size)]
    file = io.BytesIO()
    write_warc(file, chunks, is_compressed=is_compressed)
    assert file.getvalue().startswith(b"\x1f\x8b" if is_compressed else b"WARC/1.1\r\n")
    info, *records = read_warc(file.getvalue())
    assert info.kind == "warcinfo"
    assert b"software: skitter/" in info.body
    assert [record.url for record in records] == [
        f"http://a/{number}" for number in range(5) for _ in range(2)
    ]


def test_each_record_is_a_gzip_member():
    data = encoded(Response("http://a/", 200, headers=RAW, body=b"page"))
    assert len(data.split(b"\x1f\x8b\x08")) == 3


@pytest.mark.filterwarnings(
    # warcio leaves its temporary files to the garbage collector.
    "ignore:.*SpooledTemporaryFile:pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.parametrize("date", [b"", b"WARC-Date: yesterday\r\n"], ids=["no date", "invalid date"])
async def test_a_record_without_a_valid_date_is_older_than_all_others(tmp_path, date):
    archive = ForeignArchive()
    archive.add("http://a/x", b"dated")
    archive.add("http://a/x", b"undated", date="2026-01-02T00:00:00Z")
    archive.add("http://a/y", b"undated", date="2026-01-02T00:00:00Z")
    records = gzip.decompress(archive.data).replace(b"WARC-Date: 2026-01-02T00:00:00Z\r\n", date)
    (tmp_path / "site.warc").write_bytes(records)
    fetcher = WarcFetcher(SourceContext(Settings(), rest=str(tmp_path / "site.warc")))
    await fetcher.open()
    assert (await fetcher.fetch(Request("http://a/x"))).body == b"dated"
    assert (await fetcher.fetch(Request("http://a/y"))).body == b"undated"
    await fetcher.close()
