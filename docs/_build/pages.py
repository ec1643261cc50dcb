"""Adapts pages that are written for GitHub to mkdocs."""

import re

_CODE = re.compile(r"`[^`]+`")


def on_page_markdown(markdown, page, **_):
    """Show the landing page without sidebars, and undo the escapes of bars in code within tables, which GitHub needs.

    The landing page has no header for mkdocs, because GitHub would show it.
    """
    if page.is_homepage:
        page.meta["hide"] = ["navigation", "toc"]
    return re.sub(r"^\|.*\|$", lambda row: _CODE.sub(_unescaped, row[0]), markdown, flags=re.MULTILINE)


def _unescaped(code):
    return code[0].replace(r"\|", "|")
