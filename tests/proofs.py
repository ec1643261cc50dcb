"""The tests that ``docs/seed-systems`` names as proofs, and whether they ran: ``python tests/proofs.py FILE``.

FILE holds the names of the tests that passed, as ``conftest.py`` writes them with ``SKITTER_PASSED=FILE``.
"""

import os
import re
import sys
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "docs" / "seed-systems"


def rows(page):
    """Return number, answer and proofs of each row of a page."""
    text = (FOLDER / f"{page}.md").read_text("utf-8")
    found = re.findall(r"^\| [A-Z](\d+) \| .+ \| (.+) \| (.+) \|$", text, re.MULTILINE)
    return [(number, answer, re.findall(r"`([^`]+)`", proof)) for number, answer, proof in found]


def proofs():
    """Return the names of all tests that are listed as proofs."""
    return {name for page in FOLDER.glob("*.md") for _, _, names in rows(page.stem) for name in names}


def main(path):
    passed = set(Path(path).read_text("utf-8").split())
    missing = sorted(proofs() - passed)
    first = f"{len(proofs()) - len(missing)} of {len(proofs())} proofs of docs/seed-systems passed"
    sys.stdout.write("\n  ".join([first, *missing]) + "\n")
    return 1 if missing and os.environ.get("SKITTER_TEST_ALL") else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
