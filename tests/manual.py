"""Reads the manual for tests: pages, code blocks, commands with their documented output, and links."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").rglob("*.md"))

_BLOCK = re.compile(r"^```(\w+)(?: title=\"(.+?)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SNIPPET = re.compile(r'^--8<-- "(.+)"$', re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_PROGRESS = re.compile(r"^[\d:]{8} INFO +[\d,]+ pages, .*\n", re.MULTILINE)
"""Progress lines, logged every ten seconds. A slow machine may print one that the manual does not show."""
_SECONDS = 100


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    title: str
    text: str

    @property
    def snippet(self):
        """The file of the repository that the block includes, or ``None``."""
        found = _SNIPPET.search(self.text)
        return None if found is None else ROOT / found[1]


class Command(NamedTuple):
    """A command of a page, and its expected output, in which ``...`` matches any text."""

    line: str
    expected: str

    def check(self, printed):
        """Compare with the expected output. Without one, any output is accepted."""
        if self.expected:
            parts = _in_one_width(self.expected).split("...")
            pattern = ".*".join(re.escape(part) for part in parts)
            assert re.fullmatch(pattern, _in_one_width(printed), re.DOTALL), (
                f"$ {self.line}\nexpected:\n{self.expected}\nprinted:\n{printed}"
            )


def _in_one_width(text):
    """Remove differences in column widths, which depend on ports and times."""
    return re.sub(r"[ \t]+", " ", text).strip()


def name_of(page: Path) -> str:
    """Return the path of a page within the manual or the repository, as mkdocs and pytest show it."""
    docs = ROOT / "docs"
    return page.relative_to(docs if page.is_relative_to(docs) else ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    """Read the fenced blocks of a page."""
    return [Block(*found) for found in _BLOCK.findall(page.read_text("utf-8"))]


def commands(block: Block) -> Iterator[Command]:
    """Return the commands of a console block."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        line, _, expected = part.partition("\n")
        yield Command(line, expected.strip())


def links(page: Path) -> list[str]:
    """Return the targets of a page's links that are in the repository."""
    text = _BLOCK.sub("", page.read_text("utf-8"))
    return [target for target in _LINK.findall(text) if not target.startswith(("http://", "https://"))]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page, as GitHub and mkdocs name them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


class Reader:
    """Follows a page: saves its files, runs its commands and compares their output.

    ``words`` are replaced in files, commands and expected output: ports and hosts that this machine may not have.
    """

    def __init__(self, folder, environment, words=(), not_run=()):
        self._folder = folder
        self._environment = environment
        self._words = words
        self._not_run = not_run
        self._background = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self._background:
            process.terminate()
            process.communicate()

    def follow(self, page: Path) -> None:
        """Carry out all steps of a page in order."""
        for block in blocks(page):
            if block.language == "console":
                for command in commands(block):
                    self._run(Command(self._replaced(command.line), self._replaced(command.expected)))
            elif block.title and block.snippet is None:
                (self._folder / block.title).write_text(self._replaced(block.text), "utf-8")

    def _replaced(self, text):
        if not self._words:
            return text
        # Replace all words in one pass: a new port may contain the digits of the next old one.
        any_word = "|".join(re.escape(word) for word, _ in self._words)
        return re.sub(any_word, lambda found: dict(self._words)[found[0]], text)

    def _run(self, command):
        if command.line in self._not_run:
            return
        if command.line.endswith("&"):
            command.check(self._start(command.line.rstrip(" &")))
            return
        if command.line.startswith("curl ") and shutil.which("curl") is None:
            pytest.skip("a command of the manual needs curl, which is not installed")
        result = subprocess.run(
            command.line, shell=True, cwd=self._folder, env=self._environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=_SECONDS, check=False,
        )  # fmt: skip
        expected = 137 if command.line.startswith("timeout --signal=KILL") else 0
        assert result.returncode == expected, (command.line, result.returncode, result.stdout)
        command.check(_PROGRESS.sub("", result.stdout))

    def _start(self, line):
        """Start a command that keeps running. Return the first line that it prints."""
        process = subprocess.Popen(
            line.split(), cwd=self._folder, env=self._environment, stdout=subprocess.PIPE, text=True
        )
        self._background.append(process)
        return process.stdout.readline()
