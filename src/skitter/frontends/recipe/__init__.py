"""Recipes: for users who describe a spider in a YAML or TOML file instead of Python.

Recipes are checked before they run; each message names the line and the field. The command line runs a recipe like a
spider: ``skitter run FILE.yaml``. This package has no public names besides those of its modules.
"""

__all__: list[str] = []
