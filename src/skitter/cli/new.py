"""``skitter new`` and ``signing-key``: create a project that runs and has a passing test, and a key for signed requests."""

from __future__ import annotations

import keyword
import os
import re
from importlib.resources import files
from pathlib import Path
from shlex import quote
from string import Template

import click

from skitter.cli.console import say
from skitter.errors import UsageError

_FILES = {
    "README.md.txt": "README.md",
    "gitignore.txt": ".gitignore",
    "init.py.txt": "{package}/__init__.py",
    "pyproject.toml.txt": "pyproject.toml",
    "settings.py.txt": "{package}/settings.py",
    "spider.py.txt": "{package}/spider.py",
    "test_spider.py.txt": "tests/test_spider.py",
}
"""Each template with the file that is created from it."""
_OF_COLLECTOR = {
    "README.md.txt": "README-collector.md.txt",
    "spider.py.txt": "collector.py.txt",
    "test_spider.py.txt": "test_collector.py.txt",
}
"""Templates that ``--collector`` replaces, with the others."""


@click.command()
@click.argument("name")
@click.option(
    "--collector",
    is_flag=True,
    help="Create a collector with callbacks, in the style of Colly, instead of a spider.",
)
def new(name: str, collector: bool) -> None:
    """Create a project with a spider and its test.

    The project is in the folder NAME, which may be `.`. It also has settings and a README. --collector makes a collector in
    place of the spider.
    """
    folder = Path(name)
    title = folder.resolve().name  # for `skitter new .`
    package = _package(title)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists and is not empty", remedy="choose another name")
    kind = "collector" if collector else "spider"
    class_name = "".join(word.capitalize() for word in package.split("_"))
    words = {"name": title, "package": package, "spider": class_name}
    templates, replaced = files("skitter.cli") / "templates", _OF_COLLECTOR if collector else {}
    try:
        for name_of_template, target in _FILES.items():
            template = templates / replaced.get(name_of_template, name_of_template)
            path = folder / target.format(package=package)
            path = path.with_name(path.name.replace("spider", kind))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(Template(template.read_text("utf-8")).substitute(words), "utf-8")
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be written: {error.strerror}", remedy="choose another folder"
        ) from error
    enter = "" if folder.samefile(".") else f"`cd {quote(name)}` and "
    say(f"created {folder}; continue with {enter}`skitter run {package}.{kind} -o items.jsonl`")


def _package(name: str) -> str:
    package = re.sub(r"[-. ]", "_", name).lower()
    if not package.isascii() or not package.isidentifier() or keyword.iskeyword(package) or package in _TAKEN:
        raise UsageError(
            f"{name!r} cannot be the name of a Python package",
            remedy="use letters, digits and dashes, like book-shop",
        )
    return package


_TAKEN = frozenset({"skitter", "tests"})


@click.command("signing-key")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def signing_key(file: Path) -> None:
    """Create a key for signed requests, and print its directory. An existing FILE is kept.

    The directory is the public part of the key, in JSON. Your host publishes it at
    /.well-known/http-message-signatures-directory. Keep FILE secret.
    """
    from skitter.fetch.signatures import SigningKey, new_signing_key

    try:
        if not file.exists():
            pem = new_signing_key()
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
                stream.write(pem)
            say(f"created the private key {file}")
        directory = SigningKey.load(f"file:{file}").directory()
    except OSError as error:
        raise UsageError(
            f"cannot create {file}: {error.strerror}",
            remedy="choose a file in a folder that you may write to",
        ) from error
    click.echo(directory.decode())
