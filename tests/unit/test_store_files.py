"""PartFileStore: full disks, failing syncs, cancelled writes."""

import asyncio
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest

from skitter.errors import StoreError
from skitter.item import OutputRange
from skitter.store.committed import CommittedRanges
from skitter.store.contract import GroupError, ItemGroup, OutputContext, StoreContext, item_id
from skitter.store.files import PartFileStore
from skitter.store.outputs import open_output


def page(number: int, *items) -> ItemGroup:
    return ItemGroup(number.to_bytes(16, "big"), items or ({"page": number},))


async def opened(folder, worker="w1", durability="process") -> PartFileStore:
    store = PartFileStore()
    await store.open(StoreContext("quotes", worker, str(folder), durability))
    return store


def committed_lines(folder, marks) -> list[bytes]:
    ranges = {}
    for mark in marks:
        ranges.setdefault(mark.part, []).append((mark.start, mark.end))
    return list(CommittedRanges(folder / "parts", ranges, "items").lines())


async def test_ids_of_items_are_deterministic():
    assert item_id("quotes", bytes(15) + b"\x0a", 2) == "quotes:0000000000000000000000000000000a:2"


async def test_marks_are_adjacent_and_name_the_part(tmp_path):
    store = await opened(tmp_path)
    marks = await store.write([page(1), page(2, {"a": 1}, {"b": 2})])
    marks += await store.write([page(3)])
    await store.close()
    assert marks == [
        OutputRange("items/w1.jsonl", 0, 11),
        OutputRange("items/w1.jsonl", 11, 27),
        OutputRange("items/w1.jsonl", 27, 38),
    ]


def test_committed_bytes_that_a_power_failure_left_as_zeros_are_found(tmp_path):
    line = json.dumps({"text": "x" * 100_000}).encode() + b"\n"
    size = len(line)
    marks = [OutputRange("items/w1.jsonl", size * number, size * (number + 1)) for number in range(3)]
    part = tmp_path / "parts" / "items" / "w1.jsonl"
    part.parent.mkdir(parents=True)
    part.write_bytes(3 * line)
    assert committed_lines(tmp_path, marks) == [line[:-1]] * 3
    with part.open("wb") as file:  # the file system wrote the blocks before and after a gap, but not the gap
        file.write((3 * line)[: 30 * 4096])
        file.seek(40 * 4096)
        file.write((3 * line)[40 * 4096 :])
    assert part.read_bytes() == (3 * line)[: 30 * 4096] + bytes(10 * 4096) + (3 * line)[40 * 4096 :]
    with pytest.raises(StoreError, match=rf"part file items/w1\.jsonl: .* {size}-{2 * size} contains zeros"):
        committed_lines(tmp_path, marks)


async def test_a_worker_name_used_twice_is_refused_and_the_part_kept(tmp_path):
    store = await opened(tmp_path)
    marks = await store.write([page(1)])
    await store.close()
    again = PartFileStore()
    with pytest.raises(StoreError, match=r"w1\.jsonl") as caught:
        await again.open(StoreContext("quotes", "w1", str(tmp_path)))
    await again.close()
    assert caught.value.remedy
    assert await asyncio.to_thread(committed_lines, tmp_path, marks) == [b'{"page":1}']


async def test_an_item_with_ready_made_json_of_two_lines_fails_its_page(tmp_path):
    store = await opened(tmp_path)
    results = await store.write([page(1, {"raw": msgspec.Raw(b'{"a":\n1}')}), page(2)])
    await store.close()
    assert isinstance(results[0], GroupError)
    assert await asyncio.to_thread(committed_lines, tmp_path, results[1:]) == [b'{"page":2}']


async def test_a_cancelled_write_leaves_the_store_consistent(tmp_path):
    store = await opened(tmp_path, durability="machine")  # other short writes cannot be cancelled
    for number in range(20):
        writing = asyncio.create_task(store.write([page(number)]))
        await asyncio.sleep(0)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
    marks = await store.write([page(100)])
    await store.close()
    assert await asyncio.to_thread(committed_lines, tmp_path, marks) == [b'{"page":100}']


async def test_writes_at_once_get_ranges_of_their_own(tmp_path):
    store = await opened(tmp_path)
    written = await asyncio.gather(*(store.write([page(number)]) for number in range(50)))
    await store.close()
    for number, marks in enumerate(written):
        assert await asyncio.to_thread(committed_lines, tmp_path, marks) == [f'{{"page":{number}}}'.encode()]


async def test_machine_durability_syncs_each_batch_and_the_folders(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("skitter.store.files.sync_file", lambda _: synced.append("file"))
    monkeypatch.setattr("skitter.store.files.sync_folder", lambda folder: synced.append(folder.name))
    store = await opened(tmp_path, durability="machine")
    assert synced == ["items", "parts", tmp_path.name]
    await store.write([page(1), page(2)])
    await store.write([page(3)])
    await store.close()
    assert synced[3:] == ["file", "file"]


def open_files():
    return sorted(Path("/dev/fd").iterdir())


async def test_a_part_whose_folder_cannot_be_synced_is_removed_and_can_be_opened_again(tmp_path, monkeypatch):
    def fail(_):
        raise OSError(5, "Input/output error")

    store = PartFileStore()
    context = StoreContext("quotes", "w1", str(tmp_path), "machine")
    with monkeypatch.context() as patch:
        patch.setattr("skitter.store.files.sync_folder", fail)
        before = open_files()
        with pytest.raises(StoreError, match="the disk reports an error"):
            await store.open(context)
        assert open_files() == before
    await store.open(context)
    await store.write([page(1)])
    await store.close()


async def test_process_durability_never_syncs(tmp_path, monkeypatch):
    def fail(_):
        raise AssertionError

    monkeypatch.setattr("skitter.store.files.sync_file", fail)
    monkeypatch.setattr("skitter.store.files.sync_folder", fail)
    store = await opened(tmp_path)
    await store.write([page(1)])
    await store.close()


async def test_after_a_failed_sync_every_write_fails(tmp_path, monkeypatch):
    store = await opened(tmp_path, durability="machine")

    def fail(_):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("skitter.store.files.sync_file", fail)
        with pytest.raises(StoreError, match=r"w1\.jsonl"):
            await store.write([page(1)])
    with pytest.raises(StoreError, match=r"w1\.jsonl"):
        await store.write([page(2)])
    await store.close()


FULL_DISK = """
import asyncio, json, resource, sys
from skitter.errors import StoreError
from skitter.store.contract import ItemGroup, StoreContext
from skitter.store.files import PartFileStore

def page(number):
    return ItemGroup(number.to_bytes(16, "big"), [{"page": number, "text": "x" * 100}])

async def main():
    store = PartFileStore()
    await store.open(StoreContext("quotes", "w1", sys.argv[1]))
    marks = await store.write([page(1)])
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, resource.RLIM_INFINITY))
    for _ in range(2):
        try:
            await store.write([page(2), page(3)])
        except StoreError as error:
            print(error, "|", error.remedy, file=sys.stderr)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    marks += await store.write([page(4)])
    marks += await store.write([page(5)])
    await store.close()
    print(json.dumps([[mark.part, mark.start, mark.end] for mark in marks]))

asyncio.run(main())
"""


def test_a_disk_that_is_full_in_mid_write_is_a_clear_error_and_loses_nothing(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, tmp_path], capture_output=True, text=True, check=True, timeout=60
    )
    marks = [OutputRange(*mark) for mark in json.loads(done.stdout)]
    assert [json.loads(line)["page"] for line in committed_lines(tmp_path, marks)] == [1, 4, 5]
    assert done.stderr.count("the file size limit is reached | raise the limit") == 2


READ_ONLY = textwrap.dedent("""
    import asyncio, os, sys
    from skitter.errors import StoreError
    from skitter.store.contract import OutputContext, StoreContext
    from skitter.store.files import PartFileStore
    from skitter.store.outputs import open_output

    open_output("items.db")  # loads modules that the other user may not read
    os.chdir(sys.argv[1])
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)

    async def main():
        for call in [
            lambda: PartFileStore().open(StoreContext("quotes", "w1", sys.argv[1])),
            lambda: open_output("items.jsonl").check(OutputContext("quotes", sys.argv[1])),
            lambda: open_output("items.db").check(OutputContext("quotes", sys.argv[1])),
        ]:
            try:
                await call()
            except StoreError as error:
                print(error, "|", error.remedy)

    asyncio.run(main())
""")


def test_a_read_only_folder_is_a_clear_error_before_the_crawl(tmp_path_factory):
    folder = tmp_path_factory.mktemp("read-only")
    for parent in folder.parents:
        if os.getuid() == 0 and parent.name.startswith(("pytest-", "popen-")):
            parent.chmod(0o755)
    folder.chmod(0o555)
    done = subprocess.run(
        [sys.executable, "-c", READ_ONLY, folder], capture_output=True, text=True, check=True, timeout=60
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert all("permission" in line for line in lines), lines
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("target", ["items.jsonl", "items.csv", "items.db"])
async def test_a_path_through_a_file_is_a_clear_error(tmp_path, target):
    (tmp_path / "file").write_bytes(b"")
    output = open_output(str(tmp_path / "file" / target))
    with pytest.raises(StoreError) as caught:
        await output.check(OutputContext("quotes", str(tmp_path)))
    assert caught.value.remedy


def test_a_missing_part_file_is_explained_by_a_changed_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parts = CommittedRanges(Path("parts"), {"items/a.jsonl": [(0, 3)]}, "items")
    with pytest.raises(StoreError) as caught:
        list(parts.lines())
    assert caught.value.remedy.startswith("if the program has changed its working directory")
