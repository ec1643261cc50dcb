"""Shows the landing page without sidebars, which would hold nothing but its own title.

A hook, because Markdown with a header for mkdocs would show that header on GitHub.
"""


def on_page_markdown(_markdown, page, **_):
    """Hide the sidebars of the first page."""
    if page.is_homepage:
        page.meta["hide"] = ["navigation", "toc"]
