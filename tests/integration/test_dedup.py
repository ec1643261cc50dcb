"""``skitter dedup``: the items of files of several jobs, without near duplicates."""

import gzip
import io
import json

import pytest

from cli_command import skitter, usage_error
from sites.texts import Corpus
from skitter.store.merge import fill
from skitter.store.outputs import format_of


class Source:
    def __init__(self, items):
        self._lines = [json.dumps(item).encode() for item in items]

    def lines(self):
        return iter(self._lines)

    def chunks(self):
        return (line + b"\n" for line in self._lines)


def write(path, items):
    content = io.BytesIO()
    fill(content, Source(items), format_of(path.name), path.name)
    path.write_bytes(content.getvalue())


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_files_of_several_jobs_become_one_without_duplicates(tmp_path):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    items = [
        {"url": url, "content": text, "job": place % 3}
        for place, (url, _, text) in enumerate(Corpus(400).pages)
    ]
    for name, number in (("a.jsonl", 0), ("b.jsonl.gz", 1), ("c.parquet", 2)):
        write(tmp_path / name, [item for item in items if item["job"] == number])
    files = ("a.jsonl", "b.jsonl.gz", "c.parquet")
    result = skitter("dedup", *files, "-o", "unique.jsonl", cwd=tmp_path)
    expected = (
        f"unique.jsonl: {len(items)} items read from 3 files; near duplicates among them are left out\n"
    )
    assert (result.returncode, result.stderr) == (0, expected)
    marking = skitter("dedup", *reversed(files), "-o", "marked.jsonl?duplicates=mark", cwd=tmp_path)
    assert (marking.returncode, marking.stderr) == (
        0,
        f"marked.jsonl: {len(items)} items read from 3 files\n",
    )
    marked = {item.pop("url"): item for item in read(tmp_path / "marked.jsonl")}
    assert len(marked) == len(items)
    kept = {item["url"]: item for item in read(tmp_path / "unique.jsonl")}
    assert set(kept) == {url for url, item in marked.items() if item["duplicate_of"] is None}
    assert 0 < len(kept) < len(items)
    for item in items:
        assert kept.get(item["url"], item) == item
    write(tmp_path / "unique.zst.jsonl.zst", items)
    assert skitter("dedup", "unique.zst.jsonl.zst", "-o", "again.jsonl.gz", cwd=tmp_path).returncode == 0
    again = gzip.decompress((tmp_path / "again.jsonl.gz").read_bytes()).splitlines()
    assert {json.loads(line)["url"] for line in again} == set(kept)


def test_mistakes_are_named_and_nothing_is_replaced(tmp_path):
    write(tmp_path / "a.jsonl", [{"url": "http://h/", "content": "a text of some words"}])
    (tmp_path / "broken.jsonl").write_text('{"url": "http://h/"}\n[1]\n')
    (tmp_path / "broken.parquet").write_text("no parquet")
    (tmp_path / "broken.jsonl.gz").write_text("no gzip")
    (tmp_path / "broken.jsonl.zst").write_text("no zstd at all")
    damaged = gzip.compress(b'{"url": "http://h/"}\n' * 100)
    (tmp_path / "damaged.jsonl.gz").write_bytes(damaged[:12] + b"\xff" * 8 + damaged[20:])
    (tmp_path / "kept.jsonl").write_text("kept\n")
    for words, text in (
        (("missing.jsonl", "-o", "x.jsonl"), "there is no file missing.jsonl"),
        (("a.csv", "-o", "x.jsonl"), "cannot read items from a.csv"),
        (("a.jsonl", "-o", "x.db"), "not a file for items: x.db"),
        (("a.jsonl", "-o", "x.jsonl?item_classes=Book"), "remove item_classes"),
        (("a.jsonl", "-o", "postgresql://h/d"), "postgresql"),
        (("a.jsonl", "-o", "a.jsonl", "--force"), "a.jsonl is also read"),
        (("a.jsonl", "-o", "kept.jsonl"), "kept.jsonl already exists"),
        (("broken.jsonl", "-o", "x.jsonl"), "cannot read broken.jsonl: not a JSON object: b'[1]'"),
        (("broken.parquet", "-o", "x.jsonl"), "cannot read broken.parquet"),
        (("broken.jsonl.gz", "-o", "x.jsonl"), "cannot read broken.jsonl.gz"),
        (("broken.jsonl.zst", "-o", "x.jsonl"), "cannot read broken.jsonl.zst"),
        (("damaged.jsonl.gz", "-o", "x.jsonl"), "cannot read damaged.jsonl.gz"),
    ):
        assert text in usage_error("dedup", *words, cwd=tmp_path), words
    assert (tmp_path / "kept.jsonl").read_text() == "kept\n"
    assert not (tmp_path / "x.jsonl").exists()
    assert skitter("dedup", "a.jsonl", "-o", "kept.jsonl", "--force", cwd=tmp_path).returncode == 0
    assert len(read(tmp_path / "kept.jsonl")) == 1
