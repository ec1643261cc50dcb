"""``skitter recipe``: checks recipes, suggests a recipe for a page, and prints the schema."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from skitter.cli.console import USAGE, complain, say, write_file
from skitter.cli.fetch import robots_option, single_settings, url_argument
from skitter.cli.options import complete_file, setting_option
from skitter.errors import UsageError


@click.group(no_args_is_help=False)
def recipe() -> None:
    """Check, suggest and describe recipes.

    A recipe is a spider declared in YAML or TOML.
    """


@recipe.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, shell_complete=complete_file)
def check(files: tuple[str, ...]) -> int:
    """Check recipes, and report every problem with its line and field. Exits with 2 if there are problems."""
    from skitter.frontends.recipe.compiled_recipe import compile_recipe
    from skitter.frontends.recipe.source import RecipeError, RecipeSource
    from skitter.frontends.scripting.engine import ScriptEngine

    scripts: ScriptEngine | None = None
    code = 0
    for file in files:
        try:
            source = RecipeSource.of_file(file)
            compiled = compile_recipe(source, complete=False)
            if compiled.uses_scripts:
                scripts = ScriptEngine() if scripts is None else scripts
                compile_recipe(source, complete=False, scripts=scripts)
        except RecipeError as error:
            code = USAGE
            complain(error.lines[0], error.remedy)
            for line in error.lines[1:]:
                complain(line)
        else:
            say(f"{file}: {compiled.name} is valid")
    if scripts is not None:
        scripts.close()
    return code


@recipe.command()
def schema() -> None:
    """Print the JSON Schema of recipes, for editors."""
    from importlib.resources import files

    click.echo((files("skitter.frontends.recipe") / "schema.json").read_text("utf-8"), nl=False)


@recipe.command("from")
@url_argument
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File to write. [default: standard output]",
)
@robots_option
@setting_option
def from_page(url: str, output: Path | None, robots: bool, settings: tuple[str, ...]) -> None:
    """Suggest a recipe for a page: its repeated blocks, their fields, and the next page. The recipe runs unchanged."""
    if output is not None and output.exists():
        raise UsageError(f"{output} exists", remedy="choose another name")
    text = asyncio.run(_suggest(url, settings, robots=robots))
    if output is None:
        click.echo(text, nl=False)
        return
    write_file(output, text.encode())
    say(f"wrote {output}; continue with `skitter run {output}`")


async def _suggest(url: str, settings: tuple[str, ...], *, robots: bool) -> str:
    from skitter.frontends.recipe.suggest import suggest_recipe
    from skitter.run.page_fetcher import PageFetcher

    async with PageFetcher(single_settings(settings, robots=robots)) as fetcher:
        response = await fetcher.fetch(url)
    if not response.ok:
        raise UsageError(f"{url} returned status {response.status}", remedy="use a URL that returns a page")
    return suggest_recipe(response)
