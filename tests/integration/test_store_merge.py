"""Merging parts: the result is complete or unchanged, and contains only committed items."""

import errno
import gzip
import json
import os
import re
import signal
import stat
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from skitter.errors import StoreError
from skitter.store.committed import CommittedRanges
from skitter.store.file_output import FileIdentity
from skitter.store.merge import Format, check_target, merge
from skitter.store.stdout import RangeSet

FORMATS = [Format(shape, compression) for shape in ("jsonl", "csv") for compression in ("", "gz", "zst")]


@pytest.fixture
def parts(tmp_path):
    folder = tmp_path / "parts" / "items"
    folder.mkdir(parents=True)
    (folder / "b.jsonl").write_bytes(b'{"n":1}\n{"n":2}\n{"n":3}\n')
    (folder / "a.jsonl").write_bytes(b'{"n":4}\n{"n":5}\n')
    return folder.parent


def committed(parts: Path, **ranges) -> CommittedRanges:
    return CommittedRanges(parts, {f"items/{name}.jsonl": ranges[name] for name in ranges}, "items")


def test_parts_come_by_name_and_ranges_by_position(parts, tmp_path):
    merge(committed(parts, b=[(16, 24), (0, 8)], a=[(0, 8), (8, 16)]), tmp_path / "out", Format())
    assert (tmp_path / "out").read_bytes() == b'{"n":4}\n{"n":5}\n{"n":1}\n{"n":3}\n'


def test_parts_of_other_streams_are_left_out(parts, tmp_path):
    ranges = {"items/a.jsonl": [(0, 8)], "itemsets/x.warc": [(0, 5)]}
    merge(CommittedRanges(parts, ranges, "items"), tmp_path / "out", Format())
    assert (tmp_path / "out").read_bytes() == b'{"n":4}\n'


@pytest.mark.parametrize(
    ("ranges", "invalid"),
    [
        ([(0, 8), (9, 16)], "9-16"),
        ([(0, 7)], "0-7"),
        ([(8, 32)], "8-32"),
        ([(40, 48)], "40-48"),
        ([(0, 16), (8, 24)], "8-24"),
        ([(0, 8), (0, 8)], "0-8"),
        ([(16, 8)], "16-8"),
    ],
)
@pytest.mark.parametrize("form", FORMATS)
def test_a_range_that_cannot_be_right_is_refused_with_the_name_of_its_part(
    parts, tmp_path, ranges, invalid, form
):
    (tmp_path / "out").write_bytes(b"as it was")
    with pytest.raises(StoreError, match=rf"\b{invalid}\b") as caught:
        merge(committed(parts, b=ranges), tmp_path / "out", form)
    assert "items/b.jsonl" in str(caught.value)
    assert caught.value.remedy
    assert (tmp_path / "out").read_bytes() == b"as it was"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "parts"]


def test_a_part_that_is_gone_is_named(parts, tmp_path):
    with pytest.raises(StoreError, match=r"items/c\.jsonl"):
        merge(committed(parts, c=[(0, 8)]), tmp_path / "out", Format())


KILLED = """
import os, signal, sys
from pathlib import Path
from skitter.store.committed import CommittedRanges
from skitter.store.merge import Format, merge

form = Format(*sys.argv[2:])

class Killing(CommittedRanges):
    # Kills the process when it reads the last range, in the second reading of formats that need two.

    left = 6 if form.shape in ("csv", "parquet", "xlsx") else 3

    def runs(self):
        for run in super().runs():
            self.left -= 1
            if not self.left:
                os.kill(os.getpid(), signal.SIGKILL)
            yield run

ranges = {"items/big.jsonl": [(n * 20_000_000, (n + 1) * 20_000_000) for n in (0, 2, 4)]}
folder = Path(sys.argv[1])
merge(Killing(folder / "parts", ranges, "items"), folder / "out", form)
"""


@pytest.mark.parametrize("form", FORMATS)
def test_a_kill_during_a_merge_keeps_the_old_file_and_the_next_merge_cleans_up(parts, tmp_path, form):
    line = json.dumps({"n": "x" * (100_000 - 9)}, separators=(",", ":")).encode() + b"\n"
    with (parts / "items" / "big.jsonl").open("wb") as big:
        big.writelines([line] * 1000)
    (tmp_path / "out").write_bytes(b"as it was")
    done = subprocess.run(
        [sys.executable, "-c", KILLED, tmp_path, form.shape, form.compression], check=False, timeout=60
    )
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "out").read_bytes() == b"as it was"
    [draft] = tmp_path.glob("out.tmp-*")
    (tmp_path / "out.tmp-of-the-user").write_bytes(b"keep")
    merge(committed(parts, b=[(0, 8)]), tmp_path / "out", Format())
    assert not draft.exists()
    assert (tmp_path / "out").read_bytes() == b'{"n":1}\n'
    assert (tmp_path / "out.tmp-of-the-user").read_bytes() == b"keep"


LIMITED = """
import resource, sys
from pathlib import Path
from skitter.errors import StoreError
from skitter.store.committed import CommittedRanges
from skitter.store.merge import Format, merge

resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY))
folder = Path(sys.argv[1])
try:
    merge(CommittedRanges(folder / "parts", {"items/b.jsonl": [(0, 24)]}, "items"), folder / "out", Format(*sys.argv[2:]))
except StoreError as error:
    print(error, "|", error.remedy)
"""


@pytest.mark.parametrize("form", FORMATS)
def test_a_full_disk_leaves_the_old_file_and_nothing_else(parts, tmp_path, form):
    (tmp_path / "out").write_bytes(b"as it was")
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, tmp_path, form.shape, form.compression],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "limit is reached | raise" in done.stdout
    assert (tmp_path / "out").read_bytes() == b"as it was"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "parts"]


@pytest.mark.parametrize("number", [errno.EXDEV, errno.ENOSYS, errno.EINVAL])
def test_where_the_kernel_cannot_copy_between_the_disks_the_bytes_are_read_and_written(
    parts, tmp_path, monkeypatch, number
):
    def refuse(*_args, **_options):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "copy_file_range", refuse, raising=False)
    merge(committed(parts, b=[(0, 8), (16, 24)]), tmp_path / "out", Format())
    assert (tmp_path / "out").read_bytes() == b'{"n":1}\n{"n":3}\n'


def test_where_the_kernel_has_no_such_call_the_bytes_are_read_and_written(parts, tmp_path, monkeypatch):
    monkeypatch.delattr(os, "copy_file_range", raising=False)
    merge(committed(parts, b=[(0, 8), (16, 24)]), tmp_path / "out", Format())
    assert (tmp_path / "out").read_bytes() == b'{"n":1}\n{"n":3}\n'


def test_a_link_is_followed_and_the_mode_of_the_file_kept(parts, tmp_path):
    (tmp_path / "real").mkdir()
    real = tmp_path / "real" / "file"
    real.write_bytes(b"")
    real.chmod(0o640)
    (tmp_path / "out").symlink_to(real)
    merge(committed(parts, b=[(0, 8)]), tmp_path / "out", Format())
    assert (tmp_path / "out").is_symlink()
    assert real.read_bytes() == b'{"n":1}\n'
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_the_same_items_compress_to_the_same_bytes(parts, tmp_path):
    for name in ("one", "two"):
        merge(committed(parts, b=[(0, 24)]), tmp_path / name, Format(compression="gz"))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert gzip.decompress((tmp_path / "one").read_bytes()).count(b"\n") == 3


@pytest.mark.parametrize("form", FORMATS)
def test_memory_does_not_grow_with_the_file(parts, tmp_path, form):
    line = b'{"n":"' + b"x" * 990 + b'"}\n'
    with (parts / "items" / "big.jsonl").open("wb") as big:
        big.writelines([line] * 30_000)
    whole = [(0, 30_000 * len(line))]
    merge(committed(parts, big=whole), tmp_path / "out", form)
    tracemalloc.start()
    try:
        merge(committed(parts, big=whole), tmp_path / "out", form)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8_000_000


def test_machine_durability_syncs_the_file_before_and_the_folder_after_the_renaming(
    parts, tmp_path, monkeypatch
):
    target = tmp_path / "out"
    seen = []
    monkeypatch.setattr("skitter.store.merge.sync_file", lambda _: seen.append(("file", target.exists())))
    monkeypatch.setattr(
        "skitter.store.merge.sync_folder", lambda path: seen.append((path.name, target.exists()))
    )
    merge(committed(parts, b=[(0, 8)]), target, Format(), durability="machine")
    assert seen == [("file", False), (tmp_path.name, True)]


def test_a_target_that_is_not_a_regular_file_is_rejected(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for target in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(StoreError, match=re.escape(str(target))) as caught:
            check_target(target)
        assert caught.value.field == "output"


def test_checking_a_target_leaves_no_trace(tmp_path):
    check_target(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_too_long_is_found_before_the_crawl(tmp_path):
    with pytest.raises(StoreError, match="x" * 250) as caught:
        check_target(tmp_path / ("x" * 250))
    assert caught.value.__cause__.errno == errno.ENAMETOOLONG


def test_a_stamp_recognises_the_file_before_and_after_the_renaming_and_no_other(tmp_path):
    stamp, target, draft = FileIdentity(tmp_path / "job" / "stamp.json"), tmp_path / "out", tmp_path / "draft"
    (tmp_path / "job").mkdir()
    for text in ("one", "two"):
        draft.write_text(text)
        stamp.expect(draft, instead_of=target)
        assert stamp.knows(target) == (text == "two")
        draft.replace(target)
        assert stamp.knows(target)
    target.write_text("changed by the user")
    assert not stamp.knows(target)


def test_a_damaged_stamp_recognises_no_file(tmp_path):
    (tmp_path / "stamp.json").write_bytes(b'{"half')
    (tmp_path / "out").write_bytes(b"x")
    assert not FileIdentity(tmp_path / "stamp.json").knows(tmp_path / "out")


def test_a_range_set_returns_only_new_positions():
    ranges = RangeSet()
    assert ranges.add(10, 20) == [(10, 20)]
    assert ranges.add(30, 40) == [(30, 40)]
    assert ranges.add(5, 35) == [(5, 10), (20, 30)]
    assert ranges.add(5, 40) == []
    assert ranges.add(7, 7) == []
