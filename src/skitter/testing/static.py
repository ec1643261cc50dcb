"""Serves the files of a folder as a test site."""

from __future__ import annotations

import mimetypes
import os
from pathlib import Path
from urllib.parse import quote, unquote

from skitter.testing.answer import Answer, Visit


class StaticSite:
    """The files of a folder. A folder serves its ``index.html``; without the final slash, it redirects with 301. Else: 404.

    All files are read at the start, so that serving never blocks. Symbolic links are followed if they stay inside the
    folder. Other links and broken links return 404.
    """

    def __init__(self, folder: str | Path) -> None:
        self._root = Path(folder).resolve(strict=True)
        self._files: dict[str, Answer] = {}
        self._folders: set[str] = set()
        for parent, _, names in os.walk(self._root):
            prefix = "/" + Path(parent).relative_to(self._root).as_posix().removeprefix(".")
            prefix = prefix.rstrip("/") + "/"
            self._folders.add(prefix)
            for name in names:
                self._read(prefix, Path(parent, name))

    def __call__(self, visit: Visit) -> Answer:
        """Return the file with the requested path."""
        path = unquote(visit.path)
        if path.endswith("/"):
            path += "index.html"
        elif f"{path}/" in self._folders:
            return Answer(status=301, headers={"Location": quote(f"{path}/")})
        return self._files.get(path, _MISSING)

    def _read(self, prefix: str, file: Path) -> None:
        real = file.resolve()
        if real.is_file() and real.is_relative_to(self._root):
            self._files[prefix + file.name] = Answer(
                real.read_bytes(), content_type=content_type_of(file.name)
            )


_MISSING = Answer(b"<title>404 Not Found</title>", status=404)


def content_type_of(name: str) -> str:
    """Guess a content type from a file name, without a charset, as simple web servers do."""
    return mimetypes.guess_type(name)[0] or "application/octet-stream"
