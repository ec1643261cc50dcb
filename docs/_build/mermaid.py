"""A mkdocs hook: Mermaid diagrams become SVG while the site is built, so that readers load no script for them."""

import re
from itertools import count

import mermaidx

_NUMBERS = count(1)
_THEME = '%%{init: {"theme": "neutral", "flowchart": {"htmlLabels": false}}}%%\n'


def on_config(config):
    """Have fenced blocks of the language ``mermaid`` drawn."""
    options = config["mdx_configs"].setdefault("pymdownx.superfences", {})
    options["custom_fences"] = [{"name": "mermaid", "class": "diagram", "format": _draw}]
    return config


def _draw(source, _language, _css_class, _options, _markdown, **_):
    """Return the SVG of a diagram, with an id of its own: a page may have several."""
    svg = mermaidx.render(_THEME + source).svg()
    name = f"diagram-{next(_NUMBERS)}"
    return f'<div class="diagram">{re.sub(r"my-svg", name, svg)}</div>'
