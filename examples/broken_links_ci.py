"""A check for CI: writes a report, and fails if a link is broken. ``python broken_links_ci.py URL report.md [ALLOWED ...]``."""

import re
import sys
from pathlib import Path

from link_checker import broken_links


def main(site, report, *allowed):
    """Write the report. Return the number of broken links that match none of the allowed patterns."""
    found = broken_links(site)
    bad = {
        link: found[link]
        for link in sorted(found)
        if not any(re.search(pattern, link) for pattern in allowed)
    }
    lines = [f"# {len(bad)} broken links, {len(found) - len(bad)} allowed", ""]
    for link, (error, pages) in bad.items():
        lines.append(f"- {link} ({error}), on {len(pages)} pages, such as {pages[0]}")
    Path(report).write_text("\n".join(lines) + "\n", "utf-8")
    return len(bad)


if __name__ == "__main__":
    sys.exit(1 if main(*sys.argv[1:]) else 0)
