"""Helpers that run recipes and spiders against local sites."""

import asyncio
from pathlib import Path

import msgspec

from crawl_harness import CrawlHarness
from skitter.frontends.recipe.compiled_recipe import compile_recipe
from skitter.frontends.recipe.source import RecipeSource
from skitter.frontends.recipe.spider import recipe_class
from skitter.item import encode_item

RECIPES = Path(__file__).parent.parent / "examples" / "recipes"


def spider_of(path, **arguments):
    """Create the spider of a recipe file."""
    return recipe_class(path)(**arguments)


async def run_recipe_file(path, folder, workers=1, **arguments):
    """Run a recipe file. The result's ``items`` are as a JSON file would contain them."""
    spider = await asyncio.to_thread(spider_of, path, **arguments)
    return await run_spider(spider, folder, workers)


async def run_recipe_text(text, folder, name="recipe.yaml", workers=1, **arguments):
    """Run the text of a recipe, as :func:`run_recipe_file` runs a file."""
    path = folder / name
    await asyncio.to_thread(path.write_text, text, "utf-8")
    return await run_recipe_file(path, folder, workers, **arguments)


async def run_spider(spider, folder, workers=1, **options):
    """Run a spider. The result's ``items`` are as a JSON file would contain them."""
    ran = await CrawlHarness(spider, folder, **options).run(workers)
    ran.items = [msgspec.json.decode(encode_item(item)) for item in ran.items]
    return ran


def compile_text(text, name="recipe.yaml", **options):
    """Compile the text of a recipe."""
    return compile_recipe(RecipeSource.of_text(text, name), **options)
