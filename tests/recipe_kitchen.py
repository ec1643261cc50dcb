"""Runs recipes on the engine's bench, against sites on this machine."""

import asyncio
from pathlib import Path

import msgspec

from crawl_harness import CrawlHarness
from skitter.frontends.recipe.plan import make_plan
from skitter.frontends.recipe.source import Source
from skitter.frontends.recipe.spider import recipe_class
from skitter.item import encode_item

RECIPES = Path(__file__).parent.parent / "examples" / "recipes"


def spider_of(path, **arguments):
    """Make the spider of a recipe's file."""
    return recipe_class(path)(**arguments)


async def cook(path, folder, workers=1, **arguments):
    """Run a recipe's file; ``items`` of what came of it are as a file would have them."""
    spider = await asyncio.to_thread(spider_of, path, **arguments)
    return await serve_up(spider, folder, workers)


async def cook_text(text, folder, name="recipe.yaml", workers=1, **arguments):
    """Run a recipe's text, as :func:`cook` runs a file."""
    path = folder / name
    await asyncio.to_thread(path.write_text, text, "utf-8")
    return await cook(path, folder, workers, **arguments)


async def serve_up(spider, folder, workers=1, **options):
    """Run a spider; ``items`` of what came of it are as a file would have them."""
    ran = await CrawlHarness(spider, folder, **options).run(workers)
    ran.items = [msgspec.json.decode(encode_item(item)) for item in ran.items]
    return ran


def plan_of(text, name="recipe.yaml", **options):
    """Make the plan of a recipe's text."""
    return make_plan(Source.of_text(text, name), **options)
