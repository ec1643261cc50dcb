"""The OpenAPI description of a service against its real responses."""

import asyncio
import re

import jsonschema
import pytest

from api_caller import Caller, application
from skitter.service.node import Node
from skitter.testing import Answer

RECIPE = """name: shop
start: {url}
settings: {{robots: false, delay: 0, max_pages_per_slot: 2}}
pages:
  list: {{follow: [{{css: a, page: book}}]}}
  book: {{items: {{fields: {{title: h1}}}}}}
"""


class DescribedCaller(Caller):
    """Checks each successful JSON response against the description, and that the description has all of its fields."""

    def __init__(self, app):
        super().__init__(app)
        self.description = app.inner.openapi()
        for schema in self.description["components"]["schemas"].values():
            if "properties" in schema:
                schema.setdefault("additionalProperties", False)
        self.unchecked = {
            (method, path)
            for path, methods in self.description["paths"].items()
            for method, operation in methods.items()
            if any("application/json" in answer.get("content", ()) for answer in successes(operation))
        }

    async def __call__(self, method, path, *args, **more):
        status, body = await super().__call__(method, path, *args, **more)
        template = self._template(path.partition("?")[0])
        operation = self.description["paths"][template][method.lower()]
        assert status < 300, (method, path, status, body)
        content = operation["responses"][str(status)].get("content", {}).get("application/json")
        if content is not None:
            name = content["schema"]["$ref"].rpartition("/")[2]
            assert self.description["components"]["schemas"][name]["properties"]
            schema = {**content["schema"], "components": self.description["components"]}
            jsonschema.Draft202012Validator(schema).validate(body)
            self.unchecked.discard((method.lower(), template))
        return status, body

    def _template(self, path):
        def fits(template):
            return re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path)

        return min(filter(fits, self.description["paths"]), key=lambda template: template.count("{"))


def successes(operation):
    return [answer for status, answer in operation["responses"].items() if status.startswith("2")]


@pytest.fixture
async def call(tmp_path):
    app, jobs = application(tmp_path, Node)
    await jobs.store.open()
    stopping = asyncio.Event()
    work = asyncio.create_task(Node(jobs).work(stopping))
    yield DescribedCaller(app)
    stopping.set()
    await work
    await jobs.store.close()


async def until(call, path, is_reached):
    async with asyncio.timeout(60):
        while not is_reached(body := (await call("GET", path))[1]):
            await asyncio.sleep(0.05)
    return body


async def test_every_response_has_the_fields_of_the_description_and_no_others(call, serve):
    site = serve(
        lambda visit: Answer(b"<h1>x</h1><a href='/1'>1</a>", status=404 if visit.path == "/2" else 200)
    )
    recipe = RECIPE.format(url=site.url)
    for path in ("/health", "/nodes", "/settings", "/session", "/jobs", "/recipes"):
        await call("GET", path)
    await call("POST", "/session")
    for _ in range(2):
        await call("PUT", "/recipes/shop", recipe, kind="application/yaml")
    for text in (recipe, "name: shop"):
        await call("POST", "/recipes/shop/check", text, kind="application/yaml")
    await call("GET", "/recipes/shop")
    await call("GET", "/recipes")
    await call("POST", "/recipes/shop/try", {"text": recipe})
    await call("POST", "/jobs", {"name": "later", "recipe": "shop", "schedule": "0 4 * * *"})
    await call("GET", "/jobs/later")
    await call("PUT", "/jobs/later/schedule", {"schedule": "0 5 * * *"})
    await call("POST", "/jobs", {"name": "shop", "recipe": "shop", "settings": {"wait_for_seeds": True}})
    await until(call, "/jobs/shop", lambda job: (job.get("counts") or {}).get("done") == 2)
    added = await call("POST", "/jobs/shop/seeds", {"seeds": [f"{site.url}3", site.url]})
    assert added == (200, {"added": 0, "known": 1, "banned": 0, "over_budget": 1})
    await call("PATCH", "/jobs/shop/settings", {"settings": {"delay": 0.1}})
    await call("GET", "/jobs?figures=true")
    await call("GET", "/nodes")
    for action in ("pause", "resume", "stop"):
        await call("POST", f"/jobs/shop/{action}")
    await until(call, "/jobs/shop", lambda job: job["state"] == "stopped")
    assert (await call("GET", "/jobs/shop/items"))[1]["items"]
    await call("POST", "/jobs/shop/start")

    failing = RECIPE.format(url=f"{site.url}2").replace("shop", "failing")
    await call("PUT", "/recipes/failing", failing, kind="application/yaml")
    await call("POST", "/jobs", {"name": "failing", "recipe": "failing"})
    await until(call, "/jobs/failing", lambda job: job["state"] == "failed")
    assert (await call("GET", "/jobs/failing/failures"))[1]["failures"]
    assert (await call("GET", "/jobs/failing/log"))[1]["lines"]
    assert (await call("GET", "/jobs/failing/hosts"))[1]["hosts"]
    assert (await call("POST", "/jobs/failing/failures/retry", {})) == (200, {"queued": 1})
    await call("POST", "/jobs/failing/failures/drop", {})

    plain = "".join(line for line in recipe.splitlines(keepends=True) if not line.startswith("settings"))
    await call("PUT", "/recipes/plain", plain.replace("shop", "plain"), kind="application/yaml")
    await call("POST", "/jobs", {"name": "many", "tasks": True})
    await call("POST", "/jobs/many/tasks", {"recipe": "plain", "outputs": ["items"], "schedule": "0 4 * * *"})
    assert (await call("GET", "/jobs/many/tasks"))[1]["tasks"]
    await call("GET", "/jobs/many/tasks/plain/items")
    for action in ("pause", "resume"):
        await call("POST", f"/jobs/many/tasks/plain/{action}")
    for job in ("many", "shop", "failing", "later"):
        await call("DELETE", f"/jobs/{job}")
    assert (await call("GET", "/audit"))[1]["entries"]
    assert not call.unchecked
