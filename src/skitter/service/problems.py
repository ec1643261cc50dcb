"""Problems: every refusal as a problem document (RFC 9457) that says what is wrong, where, and what to do about it."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from skitter.errors import FrontierError, SkitterError, StoreError
from skitter.frontends.recipe.source import RecipeError
from skitter.service.errors import Refusal

log = logging.getLogger("skitter.service")

_TYPE = "application/problem+json"
_DOES_NOT_FIT = "The call does not fit the API"


def problem_bytes(status: int, title: str, **more: Any) -> bytes:
    """Return a problem document."""
    fields = {"type": "about:blank", "title": title, "status": status, **more}
    return msgspec.json.encode({name: value for name, value in fields.items() if value not in ("", None)})


def _answer(status: int, title: str, **more: Any) -> Response:
    return Response(problem_bytes(status, title, **more), status, media_type=_TYPE)


def add_handlers(app: FastAPI) -> None:
    """Let an application answer all its errors with problem documents."""
    app.add_exception_handler(SkitterError, _of_ours)
    app.add_exception_handler(RequestValidationError, _of_validation)
    app.add_exception_handler(HTTPException, _of_framework)
    app.add_exception_handler(Exception, _of_a_bug)


async def _of_ours(_request: Request, error: Exception) -> Response:
    assert isinstance(error, SkitterError)
    if isinstance(error, Refusal):
        errors = [_entry(error.field, str(error), error.remedy)] if error.field else None
        return _answer(error.status, error.title, detail=str(error), remedy=error.remedy, errors=errors)
    if isinstance(error, RecipeError):
        errors = [_entry("recipe", line) for line in error.lines]
        detail = error.lines[0]
        return _answer(422, "The recipe cannot be used", detail=detail, remedy=error.remedy, errors=errors)
    if isinstance(error, (FrontierError, StoreError)):
        return _answer(503, "The store cannot be used now", detail=str(error), remedy=error.remedy)
    return _answer(422, Refusal.title, detail=str(error), remedy=error.remedy)


async def _of_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    kind = request.headers.get("content-type", "")
    if isinstance(error.body, bytes) and "json" not in kind:
        wrong = f"the body is {kind or 'of no content type'}, not JSON"
        remedy = "send it with Content-Type: application/json"
        return _answer(
            422, _DOES_NOT_FIT, detail=wrong, remedy=remedy, errors=[_entry("body", wrong, remedy)]
        )
    errors = [_entry(_field_of(one["loc"]), one["msg"], _remedy_of(one)) for one in error.errors()]
    first = f"{errors[0]['field']}: {errors[0]['message']}"
    return _answer(422, _DOES_NOT_FIT, detail=first, errors=errors)


def _entry(field: str, message: str, remedy: str = "") -> dict[str, str]:
    entry = {"field": field, "message": message, "remedy": remedy}
    return {name: text for name, text in entry.items() if text}


def _field_of(path: tuple[Any, ...]) -> str:
    """Return a place as people write it: ``body`` is left out, other parts of a call are named."""
    text = ""
    for part in path[1:] if path[0] == "body" else path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text or "body"


_REMEDIES = {
    "missing": "add it",
    "extra_forbidden": "leave it out, or see GET /openapi.json for its right name",
    "json_invalid": "send JSON (RFC 8259) in UTF-8",
}


def _remedy_of(error: Any) -> str:
    return _REMEDIES.get(error["type"], "see GET /openapi.json for what it may be")


async def _of_framework(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    remedy = "GET /openapi.json describes all calls" if error.status_code in {404, 405} else ""
    if error.status_code == 404 and request.url.path.rstrip("/") != request.url.path:
        remedy += "; none ends with a slash"
    answer = _answer(error.status_code, str(error.detail), remedy=remedy)
    answer.headers.update(error.headers or {})
    return answer


async def _of_a_bug(_request: Request, error: Exception) -> Response:
    log.error("a call failed", exc_info=error)
    return _answer(500, "The service has failed", remedy="its log has the reason")
