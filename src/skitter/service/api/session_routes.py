"""The routes of sessions and of the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Query, Request, Response

from skitter.service.api.access import TokenUsed
from skitter.service.api.auth import CSRF_HEADER, AuthContext, RequestIdentity, cookie_name, session_id
from skitter.service.api.requests import IdentityParam
from skitter.service.audit import AuditLog
from skitter.service.sessions import SESSION_SECONDS, SessionRecord


def add_session_routes(app: FastAPI, context: AuthContext, features: Sequence[str]) -> None:
    """Add the routes of sessions to an application. ``features``: the parts of the console that this server offers."""
    tokens, sessions = context.tokens, context.sessions

    def shown(identity: RequestIdentity, record: SessionRecord | None) -> dict[str, Any]:
        caller = identity.caller
        return {
            "name": caller.name, "scope": caller.scope.name.lower(), "jobs": list(caller.patterns),
            "csrf": None if record is None else record.csrf, "csrf_header": CSRF_HEADER,
            "expires": None if record is None else record.expires, "features": list(features),
        }  # fmt: skip

    @app.get("/session")
    async def session(identity: IdentityParam) -> dict[str, Any]:
        """Return who calls: the name and the scope of the token and, with a cookie, the value for unsafe calls."""
        return shown(identity, identity.session)

    @app.post("/session", status_code=201)
    async def open_session(identity: IdentityParam, request: Request, response: Response) -> dict[str, Any]:
        """Exchange the token of the call for a session cookie, as the console does."""
        # Before the first await, so that only one of several concurrent calls opens a session.
        if not tokens.use_up(identity.caller):
            raise TokenUsed(
                "this token has opened its session", remedy="use the browser that opened the console"
            )
        value, record = await sessions.open(identity.caller.digest)
        response.set_cookie(
            cookie_name(dict(request.scope["headers"])), value, max_age=SESSION_SECONDS, path="/",
            secure=request.url.scheme == "https", httponly=True, samesite="strict",
        )  # fmt: skip
        return shown(identity, record)

    @app.delete("/session", status_code=204)
    async def close_session(request: Request, response: Response) -> None:
        """End the session of the cookie."""
        headers = dict(request.scope["headers"])
        if found := session_id(headers):
            await sessions.close(found)
        response.delete_cookie(cookie_name(headers), path="/", httponly=True, samesite="strict")


def add_audit_route(app: FastAPI, audit: AuditLog) -> None:
    """Add the route of the audit log to an application."""

    @app.get("/audit")
    async def entries(
        before: Annotated[
            int | None, Query(ge=1, lt=2**53, description="Only entries with lower numbers.")
        ] = None,
        limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of entries.")] = 100,
        contains: Annotated[
            str, Query(max_length=100, description="Only entries whose caller or path contains this text.")
        ] = "",
    ) -> dict[str, Any]:
        """List the calls that changed something or were refused, newest first. For more, pass `next` as `before`."""
        page = await audit.page(before, limit, contains)
        found = [{"number": number, **msgspec.to_builtins(entry)} for number, entry in page.entries]
        return {"entries": found, "next": page.next}
