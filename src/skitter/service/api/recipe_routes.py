"""The routes of recipes: storing them, checking them without storing, and trying them on a page."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response

from skitter.frontends.recipe.source import RecipeError
from skitter.service.api.requests import CallerParam, NamePath, TrialRequest, recipe_text
from skitter.service.errors import ApiError
from skitter.service.jobs import JobService
from skitter.service.models import StoredRecipe
from skitter.service.recipe_trial import TrialCommand, run_trial

_RECIPE_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            kind: {"schema": {"type": "string"}}
            for kind in ("application/yaml", "application/toml", "text/plain")
        },
    }
}
"""The OpenAPI description of a body with the text of a recipe."""


def add_recipe_routes(app: FastAPI, jobs: JobService) -> None:
    """Add the routes to an application."""

    @app.get("/recipes")
    async def recipes(caller: CallerParam) -> dict[str, Any]:
        """List the recipes."""
        found = await jobs.records.recipes()
        return {"recipes": [_without_text(recipe) for recipe in found if caller.may_use(recipe.name)]}

    @app.put(
        "/recipes/{name}",
        status_code=201,
        openapi_extra=_RECIPE_BODY,
        responses={200: {"description": "Replaced"}},
    )
    async def put_recipe(name: NamePath, request: Request, response: Response) -> dict[str, Any]:
        """Upload or replace a recipe. The body is its text: TOML if the content type says so, otherwise YAML."""
        text, syntax = await recipe_text(request)
        recipe = StoredRecipe(name=name, text=text, syntax=syntax)
        response.status_code = 201 if await jobs.put_recipe(recipe) else 200
        return _without_text(recipe)

    @app.get("/recipes/{name}")
    async def recipe(name: NamePath) -> dict[str, Any]:
        """Return a recipe with its text."""
        found = await jobs.records.recipe(name)
        return {**_without_text(found), "text": found.text}

    @app.delete("/recipes/{name}", status_code=204)
    async def delete_recipe(name: NamePath) -> None:
        """Delete a recipe that no job uses."""
        await jobs.delete_recipe(name)

    @app.post("/recipes/{name}/check", openapi_extra=_RECIPE_BODY)
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
        settings = jobs.config.operator_settings
        command = TrialCommand(body.text, body.syntax, body.arguments, body.url, body.page, settings)
        return Response(msgspec.json.encode(await run_trial(command)), media_type="application/json")


def _without_text(recipe: StoredRecipe) -> dict[str, Any]:
    return {"name": recipe.name, "syntax": recipe.syntax, "stored": recipe.stored}
