"""Each file format on S3 and Google Cloud Storage: the same file as on the local disk. Also downloaded files."""

import gzip
import hashlib
import io

import fsspec
import pytest
import zstandard
from openpyxl import load_workbook
from pyarrow import parquet

from cli_command import lines_of, skitter
from services.store_servers import BUCKET, running
from skitter.store.outputs import FORMATS
from skitter.testing import Answer
from warc_files import read_warc

SPIDER = """
from skitter import Spider

class Pages(Spider):
    start_urls = ["{url}"]
    custom_settings = {{"files_store": "{store}"}}

    def parse(self, response):
        yield {{"url": response.url, "n": len(response.body), "file_urls": ["/a.pdf", "/b.pdf"]}}
        yield response.follow_all("a")
"""
PDF = b"%PDF" + bytes(range(256)) * 4000


@pytest.fixture(params=["s3", "gcs"])
def server(request, monkeypatch):
    if request.param == "gcs":
        monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")  # the emulator has no gRPC
        pytest.importorskip("gcsfs", reason="no gcsfs: pip install gcsfs")
    return running(request.param)


@pytest.fixture
def bucket(server):
    """The bucket, read by other means than skitter's."""
    scheme, options = "gs", {"endpoint_url": server.url, "token": "anon"}
    if hasattr(server, "options"):
        scheme, options = "s3", server.options
    return fsspec.filesystem(scheme, **options, skip_instance_cache=True, use_listings_cache=False)


@pytest.fixture
def site(serve):
    def answer(visit):
        if visit.path.endswith(".pdf"):
            return Answer(PDF, content_type="application/pdf")
        return Answer(b"<a href=/1>x</a><a href=/2>x</a>")

    return serve(answer)


def test_every_format_is_the_same_as_on_the_local_disk(server, bucket, site, tmp_path):
    folder = f"{tmp_path.name}-formats"
    kind, secrets = "gs", {"GS_TOKEN": "anon"}
    if hasattr(server, "options"):
        kind, secrets = "s3", {"S3_KEY": server.options["key"], "S3_SECRET": server.options["secret"]}
    store = f"{kind}://{BUCKET}/{folder}/files?endpoint_url={server.url}"
    (tmp_path / "pages.py").write_text(SPIDER.format(url=site.url, store=store))
    secrets = {f"SKITTER_OUTPUT_{name}": value for name, value in secrets.items()}
    outputs = []
    for suffix in FORMATS:
        outputs += ["-o", f"items.{suffix}", "-o", server.place(f"{folder}/items.{suffix}")]
    result = skitter("run", "pages.py", *outputs, "--quiet", cwd=tmp_path, environment=secrets)
    assert result.returncode == 0, result.stderr
    for suffix in FORMATS:
        stored = bucket.cat_file(f"{BUCKET}/{folder}/items.{suffix}")
        assert content(suffix, stored) == content(suffix, (tmp_path / f"items.{suffix}").read_bytes()), suffix
    files = bucket.find(f"{BUCKET}/{folder}/files/full")
    assert len(files) == 1
    assert bucket.cat_file(files[0]) == PDF
    items = lines_of(tmp_path / "items.jsonl")
    assert {file["checksum"] for item in items for file in item["files"]} == {hashlib.sha256(PDF).hexdigest()}


def content(suffix, data):
    """Return the content of a file without its compression and its time of writing."""
    if suffix == "xlsx":
        return [[cell.value for cell in row] for row in load_workbook(io.BytesIO(data)).active.rows]
    if suffix == "parquet":
        return parquet.ParquetFile(io.BytesIO(data)).read().to_pylist()
    if suffix.startswith("warc"):
        info, *records = read_warc(data)  # the first one has the time of the merge
        assert info.kind == "warcinfo"
        return records
    if suffix.endswith(".gz"):
        return gzip.decompress(data)
    if suffix.endswith(".zst"):
        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return data
