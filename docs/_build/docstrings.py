"""A griffe extension: the cross-references and definition lists of our docstrings become Markdown.

Docstrings write ``:class:`~skitter.request.Request``` and name a parameter on a line of its own, with its description
indented below it. Markdown knows neither.
"""

import re
from textwrap import dedent

import griffe

_ROLE = re.compile(r":(?:class|func|meth|attr|data|mod):`(~?)([\w.]+)`")
_DEFINITION = re.compile(r"^(``.+)\n((?: {4}.*\n?|\n(?= {4}))+)", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Rewrites the docstring of each object that is loaded."""

    def on_object(self, *, obj: griffe.Object, **_) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = _definitions(_references(obj.docstring.value))


def _references(text: str) -> str:
    """Link to what is documented; a name that is not stays plain text."""
    return _ROLE.sub(
        lambda found: (
            f'<autoref optional identifier="{found[2]}"><code>{_shown(*found.groups())}</code></autoref>'
        ),
        text,
    )


def _shown(mark: str, name: str) -> str:
    return name.rpartition(".")[2] if mark else name


def _definitions(text: str) -> str:
    """Write ``term`` and an indented description as a definition list."""
    return _DEFINITION.sub(lambda found: f"\n{found[1]}\n:   {_below(found[2])}\n\n", text)


def _below(text: str) -> str:
    return dedent(text).strip().replace("\n", "\n    ")
