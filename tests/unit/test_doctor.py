"""``skitter doctor`` shows every extra."""

import importlib.metadata
import tomllib
from importlib.metadata import PackageNotFoundError

from click.testing import CliRunner

from manual import ROOT
from skitter.cli import doctor as module


def shown():
    """Return the line of each name that the command shows."""
    output = CliRunner().invoke(module.doctor, catch_exceptions=False).output
    return dict(line.split(maxsplit=1) for line in output.splitlines())


def test_each_extra_has_a_line_with_its_packages():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    lines = shown()
    assert set(lines) - {"compiled", "chromium"} == set(extras) - {"docs"}
    assert f"pillow {importlib.metadata.version('pillow')}" in lines["images"]


def test_a_missing_package_is_shown_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(module, "requires", lambda _name: ['no-such-package>=1; extra == "images"', "click"])
    assert shown()["images"] == 'missing; in the clone of skitter: pip install ".[images]"'


def test_a_source_tree_without_an_installation_gets_an_explanation(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(module, "requires", missing)
    assert shown()["skitter"].startswith("is not installed")
