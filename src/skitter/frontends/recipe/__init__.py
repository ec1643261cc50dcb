"""Recipes: spiders declared in a YAML or TOML file, checked with messages that name line and field."""
