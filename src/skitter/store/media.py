"""MediaStore: the downloaded files of jobs, in a folder, on S3 or on another file system of fsspec.

The name of a file is the hash of its content, so the same content is stored once. An index next to the files maps each
URL to its file. ``docs/design/media.md`` describes the layout and the order of the writes.
"""

from __future__ import annotations

import hashlib
import io
import mimetypes
import re
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

import msgspec

from skitter.errors import SettingsError, StoreError
from skitter.plugins import need, needing
from skitter.secrets import output_variable, without_secrets
from skitter.store.disk import disk_error, sync_file, sync_folder
from skitter.store.outputs import split_options

if TYPE_CHECKING:
    from skitter.store.remote import RemoteLocation

_INDEX = ".index"
_DRAFTS = ".drafts"
_STALE = 86_400.0
"""Age in seconds after which no process can still be writing a draft."""
_SUFFIX = re.compile(r"\.[a-z0-9]{1,8}").fullmatch
_COPY_BLOCK = 16 << 20
_SOURCE_SIZE = 4
"""Number of bytes at the end of a suspended draft that contain the length of its :class:`DraftSource`."""
_MAX_SUSPENDED = 16


class FileRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The index entry of a URL: its file, the URL that it redirects to, or the reason why there is no file."""

    url: str
    at: float
    """Unix time of the download."""
    path: str = ""
    """Relative to the store."""
    checksum: str = ""
    """SHA-256 of the content, in hexadecimal digits."""
    size: int = 0
    type: str = ""
    """Media type that the server stated."""
    thumbnails: dict[str, str] = {}
    """Path of each thumbnail, by its name."""
    moved: str = ""
    error: str = ""
    validators: dict[str, str] = {}
    """``ETag`` and ``Last-Modified`` of the response, under these names in lower case."""


class DraftSource(msgspec.Struct, frozen=True):
    """The data of an interrupted response that a later request needs to continue it."""

    validator: str
    """A strong validator for ``If-Range`` (RFC 9110, 13.1.5): the ``ETag``, otherwise ``Last-Modified``."""
    type: str
    validators: dict[str, str]
    """See :class:`FileRecord`."""
    length: int
    """Size of the whole file in bytes; 0 if the server did not state it."""


class FileDraft:
    """A file that is being downloaded. All methods block, so call them in a thread."""

    def __init__(self, file: IO[bytes], place: Path | None, source: DraftSource | None = None) -> None:
        self.file = file
        self.place = place
        """``None`` if the file has no name."""
        self.source = source
        """``None``: an interrupted download has to start over."""
        self.size = 0
        self._hash = hashlib.sha256()
        self._lock = threading.Lock()
        """Protects the file, because a cancelled download does not wait for the thread that writes."""
        self._is_closed = False

    def write(self, data: bytes) -> None:
        """Append data. Raises :class:`~skitter.errors.StoreError` if it cannot be written."""
        with self._lock:
            if self._is_closed:
                return
            self._hash.update(data)
            self.size += len(data)
            try:
                self.file.write(data)
            except OSError as error:
                self.source = None
                raise disk_error(error, self.place or tempfile.gettempdir()) from error

    def end(self) -> None:
        """Accept no more data."""
        with self._lock:
            self._is_closed = True

    def recover(self, size: int) -> None:
        """Read the first bytes of the file into the hash. Later data is appended to them."""
        left = size
        while left and (data := self.file.read(min(left, _COPY_BLOCK))):
            self._hash.update(data)
            left -= len(data)
        self.file.seek(size)
        self.file.truncate()
        self.size = size

    @property
    def checksum(self) -> str:
        """SHA-256 of everything written."""
        return self._hash.hexdigest()

    def discard(self) -> None:
        """Close and remove the draft. Does nothing if the draft was stored."""
        self.file.close()
        if self.place is not None:
            self.place.unlink(missing_ok=True)


class _Tree(Protocol):
    """The file operations of a store. Paths are relative, with slashes."""

    def draft(self) -> FileDraft: ...
    def add(self, draft: FileDraft, path: str) -> None: ...
    def read(self, path: str) -> bytes | None: ...
    def write(self, path: str, data: bytes) -> None: ...
    def exists(self, path: str) -> bool: ...
    def suspend(self, draft: FileDraft, key: str) -> None: ...
    def resume(self, key: str) -> FileDraft | None: ...


class _Folder:
    """A folder on this machine. ``synced``: whether files have to survive a power loss."""

    def __init__(self, root: Path, *, synced: bool) -> None:
        self._root = root
        self._synced = synced
        drafts = root / _DRAFTS
        drafts.mkdir(parents=True, exist_ok=True)
        for draft in drafts.iterdir():  # remove drafts of killed processes
            with suppress(FileNotFoundError):
                if time.time() - draft.stat().st_mtime > _STALE:
                    draft.unlink()

    def draft(self) -> FileDraft:
        place = self._root / _DRAFTS / uuid.uuid4().hex
        return FileDraft(place.open("xb"), place)

    def suspend(self, draft: FileDraft, key: str) -> None:
        """Keep a draft for the process that resumes it. Append the data that this process needs to the file."""
        assert draft.place is not None
        source = msgspec.json.encode(draft.source)
        draft.file.write(source + len(source).to_bytes(_SOURCE_SIZE, "big"))
        draft.file.flush()
        # Without this, a power loss could leave the end of the file without the rest.
        sync_file(draft.file.fileno())
        draft.file.close()
        draft.place.replace(self._part(key))

    def resume(self, key: str) -> FileDraft | None:
        place = self._root / _DRAFTS / uuid.uuid4().hex
        try:
            self._part(key).replace(place)  # only one process can rename it
        except FileNotFoundError:
            return None
        draft = FileDraft(place.open("r+b"), place)
        try:
            end = draft.file.seek(-_SOURCE_SIZE, io.SEEK_END)
            size = end - int.from_bytes(draft.file.read(_SOURCE_SIZE), "big")
            draft.file.seek(size)
            draft.source = msgspec.json.decode(draft.file.read(end - size), type=DraftSource)
            draft.file.seek(0)
            draft.recover(size)
        except (OSError, ValueError, msgspec.MsgspecError):
            draft.discard()
            return None
        return draft

    def _part(self, key: str) -> Path:
        return self._root / _DRAFTS / f"{key}.part"

    def add(self, draft: FileDraft, path: str) -> None:
        assert draft.place is not None
        draft.file.flush()
        self._move(draft.file, draft.place, self._root / path)

    def read(self, path: str) -> bytes | None:
        try:
            return (self._root / path).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, path: str, data: bytes) -> None:
        draft = self._root / _DRAFTS / uuid.uuid4().hex
        with draft.open("xb") as file:
            file.write(data)
            file.flush()
            self._move(file, draft, self._root / path)

    def exists(self, path: str) -> bool:
        return (self._root / path).is_file()

    def _move(self, file: IO[bytes], source: Path, target: Path) -> None:
        if self._synced:
            sync_file(file.fileno())
        target.parent.mkdir(parents=True, exist_ok=True)
        source.replace(target)
        if self._synced:
            sync_folder(target.parent)


class _Remote:
    """A folder of a bucket, or of another file system of fsspec. Uploads become visible when they are complete."""

    def __init__(self, location: RemoteLocation) -> None:
        self._location = location
        self._files = location.connect()
        self._suspended: dict[str, FileDraft] = {}

    def suspend(self, draft: FileDraft, key: str) -> None:
        """Keep a draft in this process. Its file has no name, so it disappears with the process."""
        self._suspended[key] = draft
        if len(self._suspended) > _MAX_SUSPENDED:
            self._suspended.pop(next(iter(self._suspended))).discard()

    def resume(self, key: str) -> FileDraft | None:
        before = self._suspended.pop(key, None)
        if before is None:
            return None
        draft = FileDraft(before.file, None, before.source)
        draft.file.seek(0)
        draft.recover(before.size)
        return draft

    def draft(self) -> FileDraft:
        return FileDraft(tempfile.TemporaryFile(), None)

    def add(self, draft: FileDraft, path: str) -> None:
        draft.file.seek(0)
        with self._location.translated_errors():
            self._make_folder(path)
            with self._location.upload(self._files, self._at(path)) as target:
                shutil.copyfileobj(draft.file, target, _COPY_BLOCK)

    def read(self, path: str) -> bytes | None:
        with self._location.translated_errors():
            try:
                data: bytes = self._files.cat_file(self._at(path))
            except FileNotFoundError:
                return None
            return data

    def write(self, path: str, data: bytes) -> None:
        with self._location.translated_errors():
            self._make_folder(path)
            self._files.pipe_file(self._at(path), data)

    def exists(self, path: str) -> bool:
        with self._location.translated_errors():
            return bool(self._files.exists(self._at(path)))

    def _at(self, path: str) -> str:
        return f"{self._location.path}/{path}"

    def _make_folder(self, path: str) -> None:
        self._location.make_folder(self._files, self._at(path).rpartition("/")[0])


class MediaStore:
    """Files and their index. All methods block, so call them in a thread.

    ``place``
        A folder, or a URL of fsspec such as ``s3://bucket/prefix``.
    ``ttl``
        Time in seconds after which a URL is downloaded again.
    ``thumbnails``
        Largest width and height of each kind of thumbnail, by its name.
    ``durability``
        ``machine``: files survive a power loss.

    The methods raise :class:`~skitter.errors.StoreError`, and :class:`~skitter._utils.backoff.Unavailable` if a server does not
    respond.
    """

    def __init__(
        self,
        place: str,
        *,
        ttl: float,
        thumbnails: Mapping[str, tuple[int, int]],
        durability: str = "process",
    ) -> None:
        self.place = place
        self._ttl = ttl
        self._thumbnails = dict(thumbnails)
        self._synced = durability == "machine"
        self._tree_or_none: _Tree | None = None
        if without_secrets(place) != place:
            kind = place.partition(":")[0]
            raise SettingsError(
                "files_store contains a secret",
                remedy=f"set {output_variable(kind, 'key')} and {output_variable(kind, 'secret')} instead",
                field="files_store",
            )
        if self._thumbnails:
            need("PIL.Image", "images", "image_thumbnails")

    def open(self) -> None:
        """Connect, and check that the store is writable."""
        with self._disk_errors():
            self._tree_or_none = self._connect()
            self._tree.write(f"{_INDEX}/check", b"\n")

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise disk_error(error, self.place) from error

    def _connect(self) -> _Tree:
        kind, separator, rest = self.place.partition("://")
        if not separator:
            return _Folder(Path(self.place), synced=self._synced)
        with needing("s3", f"files_store {self.place!r}", StoreError):
            from skitter.store.remote import RemoteLocation, remote_secrets  # noqa: PLC0415 - fsspec is an extra
        path, options = split_options(rest)
        return _Remote(RemoteLocation(kind, path.rstrip("/"), options=remote_secrets(kind) | options))

    @property
    def _tree(self) -> _Tree:
        assert self._tree_or_none is not None, "open() it first"
        return self._tree_or_none

    # --- index -----------------------------------------------------------------------------------------

    def find(self, urls: Iterable[str], since: float) -> dict[str, FileRecord]:
        """Return the valid record of each URL that has one.

        A record of a file is valid until it expires. Any record, even of an error, is valid if it was written after ``since``
        (Unix time).
        """
        records = {url: self._record(url) for url in urls}
        return {
            url: record
            for url, record in records.items()
            if record is not None and self._is_valid(record, since)
        }

    def stored(self, url: str) -> FileRecord | None:
        """Return the record of a URL whose file is stored, expired or not, if the server sent validators."""
        record = self._record(url)
        if record is None or not record.validators or self._lacks_thumbnails(record):
            return None
        return record if self._tree.exists(record.path) else None

    def _record(self, url: str) -> FileRecord | None:
        data = self._tree.read(_index_path(url))
        if data is None:
            return None
        try:
            record = msgspec.json.decode(data, type=FileRecord)
        except msgspec.DecodeError:  # treat a damaged record like a missing one
            return None
        return record if record.url == url else None

    def _is_valid(self, record: FileRecord, since: float) -> bool:
        if record.path and not self._tree.exists(record.path):
            return False
        if record.at >= since:
            return True
        return not record.error and not self._lacks_thumbnails(record) and time.time() - record.at < self._ttl

    def _lacks_thumbnails(self, record: FileRecord) -> bool:
        return record.type.startswith("image/") and not self._thumbnails.keys() <= record.thumbnails.keys()

    def remember(self, record: FileRecord) -> None:
        """Write the record of a URL."""
        self._tree.write(_index_path(record.url), msgspec.json.encode(record))

    # --- files -----------------------------------------------------------------------------------------

    def draft(self) -> FileDraft:
        """Begin a file."""
        with self._disk_errors():
            return self._tree.draft()

    def resume(self, url: str) -> FileDraft | None:
        """Return the draft of a URL whose download was interrupted; ``None`` if there is none."""
        with self._disk_errors():
            return self._tree.resume(_url_hash(url))

    def suspend(self, draft: FileDraft, url: str) -> None:
        """Keep the draft of an interrupted download if a later request can continue it. Otherwise, remove it."""
        draft.end()
        if draft.source is not None and draft.size and not draft.file.closed:
            with suppress(OSError):  # for example a full disk: the file is then downloaded again
                self._tree.suspend(draft, _url_hash(url))
                return
        draft.discard()

    def stored_suffix(self, checksum: str) -> str | None:
        """Return the suffix with which a content is already stored, or ``None``."""
        data = self._tree.read(_content_path(checksum))
        return None if data is None else data.decode()

    def keep(
        self, draft: FileDraft, url: str, media_type: str, suffix: str, validators: dict[str, str]
    ) -> FileRecord:
        """Store a complete draft under the hash of its content, and index its URL. Return the record."""
        checksum = draft.checksum
        path = f"full/{checksum[:2]}/{checksum}{suffix}"
        thumbnails = {}
        with self._disk_errors():
            if self._thumbnails:
                draft.file.flush()
                thumbnails = self._make_thumbnails(draft, checksum)
            if self._tree.exists(path):
                draft.discard()
            else:
                self._tree.add(draft, path)
            self._tree.write(_content_path(checksum), suffix.encode())
            record = FileRecord(
                url, time.time(), path, checksum, draft.size, media_type, thumbnails, validators=validators
            )
            self.remember(record)
        return record

    def _make_thumbnails(self, draft: FileDraft, checksum: str) -> dict[str, str]:
        """Write the thumbnails of an image. Return their paths; none for content that is not an image."""
        source: Path | IO[bytes] = draft.file if draft.place is None else draft.place
        draft.file.seek(0)
        made: dict[str, str] = {}
        for name, content in make_thumbnails(source, self._thumbnails).items():
            path = made[name] = f"thumbs/{name}/{checksum[:2]}/{checksum}.jpg"
            part = self._tree.draft()
            try:
                part.write(content)
                self._tree.add(part, path)
            finally:
                part.discard()
        return made


def suffix_of(url: str, media_type: str) -> str:
    """Return the suffix for the file of a URL, such as ``.pdf``: from the URL, or from its media type, or none."""
    suffix = PurePosixPath(urlsplit(url).path).suffix.lower()
    return suffix if _SUFFIX(suffix) else mimetypes.guess_extension(media_type) or ""


def _url_hash(url: str) -> str:
    return hashlib.sha256(url.encode("utf-8", "surrogatepass")).hexdigest()


def _index_path(url: str) -> str:
    name = _url_hash(url)
    return f"{_INDEX}/urls/{name[:2]}/{name}.json"


def _content_path(checksum: str) -> str:
    return f"{_INDEX}/content/{checksum[:2]}/{checksum}"


# --- thumbnails --------------------------------------------------------------------------------------------

_FORMATS = frozenset({"AVIF", "BMP", "GIF", "ICO", "JPEG", "PNG", "TIFF", "WEBP"})
"""Formats that browsers show, and TIFF. Other decoders of Pillow are seldom used, and one of them runs Ghostscript."""
_MAX_PIXELS = 30_000_000
"""Maximum number of pixels. A PNG of 0.5 MB can have 170 million pixels, which take 700 MB. A JPEG is decoded at a smaller scale, unless it is progressive."""
_one_thumbnail = threading.Lock()


def make_thumbnails(source: Path | IO[bytes], sizes: Mapping[str, tuple[int, int]]) -> dict[str, bytes]:
    """Return JPEG thumbnails of an image by the names of their sizes; none for other content, and for a very large image.

    A website chooses the content, so the formats and the size are limited.
    """
    from PIL import Image, ImageOps  # noqa: PLC0415 - an extra

    Image.init()
    edge = 2 * max(length for size in sizes.values() for length in size)
    made: dict[str, bytes] = {}
    with _one_thumbnail:
        try:
            with Image.open(source, formats=sorted(_FORMATS & Image.OPEN.keys())) as image:
                scales = image.format == "JPEG" and not image.info.get("progressive")
                if not scales and image.width * image.height > _MAX_PIXELS:
                    return made
                image.draft("RGB", (edge, edge))
                reduced = image.convert("RGB") if image.mode in {"1", "P"} else image
                reduced.thumbnail((edge, edge))  # so that no later step copies the image in full size
                upright = ImageOps.exif_transpose(reduced).convert("RGB")
        except Exception:  # noqa: BLE001 - for content that is not an image, decoders raise many kinds of errors
            return made
        for name, size in sizes.items():
            small = upright.copy()
            small.thumbnail(size)
            encoded = io.BytesIO()
            small.save(encoded, "JPEG")
            made[name] = encoded.getvalue()
    return made
