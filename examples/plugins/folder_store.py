"""``-o folder:NAME``: a file for the items of each page. A keyed store: a second write changes nothing."""

import asyncio
from pathlib import Path

from skitter.item import encode_item
from skitter.store.contract import Output


class FolderStore:
    buffering = None  # pages need not wait for others

    def __init__(self, folder):
        self.folder = folder

    async def open(self, context):
        self.job = context.job

    async def write(self, groups):
        await asyncio.to_thread(lambda: [self.write_page(group) for group in groups])
        return [None] * len(groups)  # no byte ranges: each page has its own file

    def write_page(self, group):
        path = self.folder / f"{self.job}@{group.fingerprint.hex()}.jsonl"
        if not group.items:
            path.unlink(missing_ok=True)  # from an earlier visit of the page
            return
        draft = path.with_suffix(".tmp")
        draft.write_bytes(b"".join(encode_item(item) + b"\n" for item in group.items))
        draft.replace(path)  # in one step: a reader finds the old file or the complete new one

    async def close(self):
        pass


class FolderOutput(Output):
    is_keyed = True

    def __init__(self, address):
        self.target, self.stream, self.folder = address.target, f"folder-{address.rest}", Path(address.rest)

    def store(self):
        return FolderStore(self.folder)

    async def check(self, context):
        await asyncio.to_thread(self.folder.mkdir, parents=True, exist_ok=True)

    async def clear(self, context):
        await asyncio.to_thread(lambda: [path.unlink() for path in self.folder.glob(f"{context.job}@*")])
