"""Calls the API of a service without a network and without a process."""

import asyncio
import json

from skitter.service.api.access import ApiTokens
from skitter.service.api.app import make_app
from skitter.service.config import ServiceConfig
from skitter.service.jobs import JobService
from skitter.service.node import Node
from skitter.service.recipe_check import RecipeChecker

TOKEN = "a-token-for-tests-only"
CHECKER = RecipeChecker()
"""One process for all tests of a test process, because it is slow to start."""


class Idle(Node):
    """A node that runs no jobs."""

    async def work(self, stopping):
        await stopping.wait()


class Caller:
    """Calls an application without a network."""

    def __init__(self, app):
        self._app = app

    async def __call__(
        self, method, path, body=None, *, token=TOKEN, kind="application/json", chunks=None, headers=None
    ):
        path, _, query = path.partition("?")
        sent_headers = {name.lower().encode(): value.encode() for name, value in (headers or {}).items()}
        headers = list(sent_headers.items())
        if body is not None or chunks:
            headers.append((b"content-type", kind.encode()))
        if token is not None:
            headers.append((b"authorization", b"Bearer " + token.encode()))
        if body is not None and not isinstance(body, bytes):
            body = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        left = [*(chunks or [body or b""])]
        scope = {
            "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": query.encode(),
            "headers": headers, "http_version": "1.1", "scheme": "http", "server": ("x", 80), "root_path": "",
        }  # fmt: skip
        sent = []

        async def receive():
            if not left:  # while the caller stays connected
                await asyncio.Event().wait()
            return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

        async def send(message):
            sent.append(message)

        await self._app(scope, receive, send)
        data = b"".join(message.get("body", b"") for message in sent[1:])
        self.headers = dict(sent[0]["headers"])
        kind = self.headers.get(b"content-type", b"")
        is_json = b"json" in kind and b"ndjson" not in kind
        return sent[0]["status"], json.loads(data) if data and is_json else data.decode() or None


def application(
    tmp_path,
    kind=Idle,
    spiders=True,
    max_rate=None,
    checker=None,
    tokens=(TOKEN,),
    signing_key=None,
    **limits,
):
    folder = tmp_path / "spiders"
    folder.mkdir(exist_ok=True)
    config = ServiceConfig(
        tmp_path / "node", spiders=folder if spiders else None, allow_networks=("127.0.0.1/32",), **limits
    )
    jobs = JobService(config, config.key_value_store(), CHECKER if checker is None else checker)
    return make_app(
        jobs,
        kind(jobs),
        tokens if isinstance(tokens, ApiTokens) else ApiTokens(tokens),
        max_body=10_000,
        max_rate=max_rate,
        signing_key=signing_key,
    ), jobs
