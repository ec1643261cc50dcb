"""The routes of the recipe editor: check a recipe without storing it, and try it on one page."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response

from skitter.frontends.recipe.source import RecipeError
from skitter.service.api.requests import NamePath, TrialRequest, recipe_text
from skitter.service.errors import ApiError
from skitter.service.jobs import JobService
from skitter.service.models import StoredRecipe
from skitter.service.recipe_trial import TrialCommand, run_trial


def add_recipe_tools(app: FastAPI, jobs: JobService) -> None:
    """Add the routes to an application."""

    @app.post("/recipes/{name}/check", openapi_extra=RECIPE_BODY)
    async def check(name: NamePath, request: Request) -> dict[str, Any]:
        """Check a recipe without storing it. The body is its text, as for `PUT`. Each of `errors` names its line."""
        text, syntax = await recipe_text(request)
        try:
            await jobs.checker.check(StoredRecipe(name=name, text=text, syntax=syntax), None)
        except RecipeError as error:
            return {"valid": False, "errors": error.lines, "remedy": error.remedy}
        except ApiError as error:
            return {"valid": False, "errors": [str(error)], "remedy": error.remedy}
        return {"valid": True, "errors": [], "remedy": ""}

    @app.post("/recipes/{name}/try")
    async def try_out(name: NamePath, body: TrialRequest) -> Response:
        """Fetch one page with a recipe, and return its items and requests. Nothing is stored."""
        recipe = StoredRecipe(name=name, text=body.text, syntax=body.syntax)
        await jobs.checker.check(recipe, body.arguments)
        networks = list(jobs.config.allow_networks)
        order = TrialCommand(body.text, body.syntax, body.arguments, body.url, body.page, networks)
        return Response(msgspec.json.encode(await run_trial(order)), media_type="application/json")


RECIPE_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            kind: {"schema": {"type": "string"}}
            for kind in ("application/yaml", "application/toml", "text/plain")
        },
    }
}
"""The OpenAPI description of a body with the text of a recipe."""
