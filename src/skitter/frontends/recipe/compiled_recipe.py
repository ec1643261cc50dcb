"""CompiledRecipe: a recipe that is checked and ready to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from skitter.errors import SettingsError, SkitterError
from skitter.frontends.recipe.compile_context import CompileContext
from skitter.frontends.recipe.forms import LoginStep
from skitter.frontends.recipe.model import Recipe, scripts_in
from skitter.frontends.recipe.pages import PageReader, page_loading
from skitter.frontends.recipe.source import RecipeProblems, RecipeSource
from skitter.frontends.recipe.starts import StartRule, check_domains, domains_of
from skitter.frontends.recipe.validation import given_variables, substitute, validate
from skitter.settings import build_settings
from skitter.store.outputs import open_output
from skitter.worker.item_meter import make_item_meter

if TYPE_CHECKING:
    from skitter.frontends.scripting.engine import ScriptEngine


class CompiledRecipe:
    """The compiled parts of a recipe: starts, pages and login."""

    def __init__(self, recipe: Recipe, compile_context: CompileContext) -> None:
        self.recipe = recipe
        self.name = recipe.name
        self.starts = [
            StartRule(start, number, recipe.languages, context)
            for number, (start, context) in enumerate(compile_context.each("start", recipe.start))
        ]
        self.login = None if recipe.login is None else LoginStep(recipe.login, compile_context.at("login"))
        self.pages = {
            name: PageReader(name, page, compile_context.at("pages", name))
            for name, page in recipe.pages.items()
        }
        self.loading = {
            name: found
            for name, page in recipe.pages.items()
            if (found := page_loading(page, compile_context.at("pages", name))) is not None
        }
        """How pages are loaded, for the kinds of pages that specify it."""
        self.uses_scripts = any(scripts_in(recipe))
        """Whether the recipe needs a JavaScript engine."""
        self.home_domains = domains_of(self.starts, [self.login.host] if self.login is not None else [])
        """Hosts that receive the recipe's own cookies: the hosts of its start URLs."""
        allowed = self.home_domains if recipe.allowed_domains is None else recipe.allowed_domains
        self.allowed_domains: Sequence[str] = () if isinstance(allowed, str) else allowed
        self._check(compile_context)

    def _check(self, compile_context: CompileContext) -> None:
        recipe = self.recipe
        if not self.starts:
            compile_context.problem("empty", "give at least one URL", "start")
        scripted = any(rule.uses_scripts for rule in self.starts)
        if scripted and recipe.allowed_domains is None:
            compile_context.problem(
                "missing: the hosts of a script are unknown", "list them, or write any", "allowed_domains"
            )
        if isinstance(recipe.allowed_domains, list):
            check_domains(recipe.allowed_domains, compile_context.at("allowed_domains"))
        self._check_reach(compile_context)
        for name, value in recipe.settings.items():
            try:
                settings = build_settings({name: value})
                if name in {"rates", "limit_rules"}:
                    settings.politeness()
                if name in {"monitors", "item_schema"}:
                    make_item_meter(settings)
            except SettingsError as error:
                compile_context.add_error(error, "settings", name)
        for target, context in compile_context.each("outputs", recipe.outputs):
            try:
                open_output(target)
            except SkitterError as error:
                context.add_error(error)

    def _check_reach(self, compile_context: CompileContext) -> None:
        if any(rule.uses_scripts for rule in self.starts):
            return  # a script can lead to any page
        reached = {rule.page for rule in self.starts}
        pending = [*reached]
        while pending:
            page = self.pages.get(pending.pop())
            new = page.leads_to - reached if page is not None else set()
            reached |= new
            pending += new
        for name in self.pages.keys() - reached:
            compile_context.problem("not reachable", "add a link to it, or remove it", "pages", name)


def compile_recipe(
    source: RecipeSource,
    arguments: Mapping[str, Any] | None = None,
    *,
    complete: bool = True,
    scripts: ScriptEngine | None = None,
) -> CompiledRecipe:
    """Check and compile a recipe with the given variables.

    ``complete``: every variable must have a value. ``scripts``: checks the syntax of the scripts as well. Raises :class:`~skitter.frontends.recipe.source.RecipeError` with all
    problems.
    """
    problems = RecipeProblems()
    data = source.data
    if isinstance(data, dict):
        variables = given_variables(data, arguments or {}, problems, complete=complete)
        data = substitute(data, variables, problems, complete=complete)
    validate(data, problems)
    if problems:
        raise source.error(problems.found)
    recipe = msgspec.convert(data, Recipe)
    compiled = CompiledRecipe(
        recipe, CompileContext(recipe=recipe.name, problems=problems, pages=recipe.pages.keys())
    )
    if scripts is not None:
        for path, script, is_rule in scripts_in(recipe):
            if fault := scripts.fault_of(script, is_rule=is_rule):
                problems.add(path, fault, "correct the script")
    if problems:
        raise source.error(problems.found)
    return compiled
