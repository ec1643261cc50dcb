"""Error responses as problem documents (RFC 9457), with the error, the invalid field and the remedy."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from skitter.errors import FrontierError, SkitterError, StoreError
from skitter.frontends.recipe.source import RecipeError, name_of
from skitter.service.errors import ApiError

log = logging.getLogger("skitter.service")

_MEDIA_TYPE = "application/problem+json"
_INVALID_REQUEST = "The request is invalid"
_REMEDIES = {
    "missing": "add the field",
    "extra_forbidden": "remove the field, or look up its name in GET /openapi.json",
    "json_invalid": "send JSON (RFC 8259) in UTF-8",
}
"""Remedies by type of validation error."""
_OTHER_REMEDY = "look up its allowed values in GET /openapi.json"


def problem_bytes(status: int, title: str, **more: Any) -> bytes:
    """Return a problem document, without empty fields."""
    fields = {"type": "about:blank", "title": title, "status": status, **more}
    return msgspec.json.encode({name: value for name, value in fields.items() if value not in ("", None)})


def _response(status: int, title: str, **more: Any) -> Response:
    return Response(problem_bytes(status, title, **more), status, media_type=_MEDIA_TYPE)


def add_handlers(app: FastAPI) -> None:
    """Make an application respond to all errors with problem documents."""
    app.add_exception_handler(SkitterError, _skitter_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected_error)


async def _skitter_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, SkitterError)
    if isinstance(error, ApiError):
        errors = [_entry(error.field, str(error), error.remedy)] if error.field else None
        return _response(error.status, error.title, detail=str(error), remedy=error.remedy, errors=errors)
    if isinstance(error, RecipeError):
        errors = [_entry("recipe", line) for line in error.lines]
        detail = error.lines[0]
        return _response(422, "The recipe is invalid", detail=detail, remedy=error.remedy, errors=errors)
    if isinstance(error, (FrontierError, StoreError)):
        return _response(503, "The store is unavailable", detail=str(error), remedy=error.remedy)
    return _response(422, ApiError.title, detail=str(error), remedy=error.remedy)


async def _validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    kind = request.headers.get("content-type", "")
    if isinstance(error.body, bytes) and "json" not in kind:
        detail = f"the content type of the body is {kind or 'missing'}, not JSON"
        remedy = "send it with Content-Type: application/json"
        errors = [_entry("body", detail, remedy)]
        return _response(422, _INVALID_REQUEST, detail=detail, remedy=remedy, errors=errors)
    errors = [
        _entry(_field_of(cause["loc"]), cause["msg"], _REMEDIES.get(cause["type"], _OTHER_REMEDY))
        for cause in error.errors()
    ]
    detail = f"{errors[0]['field']}: {errors[0]['message']}"
    return _response(422, _INVALID_REQUEST, detail=detail, errors=errors)


def _entry(field: str, message: str, remedy: str = "") -> dict[str, str]:
    entry = {"field": field, "message": message, "remedy": remedy}
    return {name: text for name, text in entry.items() if text}


def _field_of(path: tuple[Any, ...]) -> str:
    """Return the path of a field as text. ``body`` is omitted; other parts of a request are included."""
    return name_of(path[1:] if path[0] == "body" else path) or "body"


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    remedy = "look up the calls in GET /openapi.json" if error.status_code in {404, 405} else ""
    if error.status_code == 404 and request.url.path.rstrip("/") != request.url.path:
        remedy += "; no path ends with a slash"
    response = _response(error.status_code, str(error.detail), remedy=remedy)
    response.headers.update(error.headers or {})
    return response


async def _unexpected_error(_request: Request, error: Exception) -> Response:
    log.error("a request failed", exc_info=error)
    return _response(500, "Internal error", remedy="ask the operator to look at the log of the node")
