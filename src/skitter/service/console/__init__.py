"""The web console: static files that show and control jobs through the HTTP API."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI, Response
from fastapi.responses import RedirectResponse

from skitter.service.api.auth import CONSOLE
from skitter.service.errors import NotFound

_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FILES = {
    path.name: (path.read_bytes(), _TYPES[path.suffix])
    for path in (Path(__file__).parent / "static").iterdir()
    if path.suffix in _TYPES
}
"""The files of the console by name, with their types. Nothing else is served."""


def add_console(app: FastAPI) -> None:
    """Add the files of the console to an application. They hold no data, so they need no token."""

    @app.get(CONSOLE, include_in_schema=False)
    async def console() -> RedirectResponse:
        return RedirectResponse(f"{CONSOLE}/")

    @app.get(f"{CONSOLE}/", include_in_schema=False)
    async def page() -> Response:
        return _file("index.html")

    @app.get(f"{CONSOLE}/{{name}}", include_in_schema=False)
    async def file(name: str) -> Response:
        return _file(name)


def _file(name: str) -> Response:
    if name not in _FILES:
        raise NotFound(f"the console has no file {name!r:.80}", remedy=f"open {CONSOLE}/")
    content, media_type = _FILES[name]
    return Response(content, media_type=media_type)
