"""A generated corpus of pages with known near duplicates, for tests and for ``benchmarks/content.py``.

The texts have words of a Zipf distribution. A page is one of: a unique text; a copy; a near duplicate with another date,
other advertisements, other menus or a few other words; a page of a family. Pages of a family share half of their text, as
the pages of a shop do, but are not duplicates.

"""

from __future__ import annotations

import random
from itertools import accumulate

from skitter.testing.answer import Answer, Visit

LETTERS = "etaoinshrdlucmfwypvbgkjqxz"
CHANGES = ("copy", "date", "advertisement", "menu", "words")


class Corpus:
    """``pages``: URL, group and text of each page. Pages of one group are near duplicates; all others are not."""

    def __init__(self, size: int, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._vocabulary = [
            "".join(self._random.choices(LETTERS, k=self._random.randint(2, 10))) for _ in range(20_000)
        ]
        self._weights = list(accumulate(1 / (rank + 5) for rank in range(len(self._vocabulary))))
        self.pages: list[tuple[str, str, str]] = []
        number = 0
        while len(self.pages) < size:
            number += 1
            kind = self._random.choices(("unique", "duplicates", "family"), (60, 30, 10))[0]
            getattr(self, f"_add_{kind}")(number)
        self._random.shuffle(self.pages)

    def words(self, count: int) -> list[str]:
        return self._random.choices(self._vocabulary, cum_weights=self._weights, k=count)

    def paragraph(self, count: int) -> str:
        return " ".join(self.words(count)).capitalize() + "."

    def _text(self) -> list[str]:
        return [self.paragraph(self._random.randint(20, 80)) for _ in range(self._random.randint(3, 12))]

    def _add(self, name: str, group: str, paragraphs: list[str]) -> None:
        self.pages.append(
            (f"http://site{len(self.pages) % 7}.example/{name}", group, "\n\n".join(paragraphs))
        )

    def _add_unique(self, number: int) -> None:
        self._add(f"{number}", f"{number}", self._text())

    def _add_family(self, number: int) -> None:
        """Add pages with a frame of common sentences, which is about half of their text."""
        frame = self._text()
        for member in range(self._random.randint(2, 12)):
            own = [self.paragraph(len(shared.split())) for shared in frame]
            mixed = [paragraph for pair in zip(frame, own, strict=True) for paragraph in pair]
            self._add(f"{number}/{member}", f"{number}/{member}", mixed)

    def _add_duplicates(self, number: int) -> None:
        original = [f"Published on {self._random.randint(1, 28)} May 2026.", *self._text()]
        self._add(f"{number}", f"{number}", original)
        for member in range(self._random.randint(1, 4)):
            change = self._random.choice(CHANGES)
            self._add(f"{number}-{change}-{member}", f"{number}", self._changed(original, change))

    def _changed(self, original: list[str], change: str) -> list[str]:
        paragraphs = list(original)
        if change == "date":
            paragraphs[0] = f"Published on {self._random.randint(1, 28)} June 2025."
        elif change == "advertisement":
            paragraphs.insert(self._random.randrange(len(paragraphs)), self.paragraph(8))
        elif change == "menu":
            paragraphs = [" ".join(self.words(5)), *paragraphs, " ".join(self.words(4))]
        elif change == "words":
            place = max(range(len(paragraphs)), key=lambda number: len(paragraphs[number]))
            words = paragraphs[place].split()
            for _ in range(max(1, sum(map(len, map(str.split, paragraphs))) // 50)):
                words[self._random.randrange(len(words))] = self._random.choice(self._vocabulary)
            paragraphs[place] = " ".join(words)
        return paragraphs


def pairs_of(groups: dict[str, list[str]]) -> set[tuple[str, str]]:
    """Return all pairs of pages that are in the same group."""
    return {
        (one, other)
        for members in groups.values()
        for place, one in enumerate(sorted(members))
        for other in sorted(members)[place + 1 :]
    }


class TextSite:
    """Serves a corpus: each page as an article between menus, advertisements and a footer, and an index of all pages."""

    def __init__(self, size: int = 200, seed: int = 1) -> None:
        self.corpus = Corpus(size, seed)
        self._bodies = {
            f"/{place}": (
                "<!doctype html><html lang=en><head><title>"
                f"Page {place}</title><meta name=author content='Author {place % 7}'></head><body>"
                "<nav><a href=/>Home</a> <a href=/0>First page</a></nav>"
                f"<main><article><h1>{text.split()[0]}</h1>"
                + "".join(f"<p>{paragraph}</p>" for paragraph in text.split("\n\n"))
                + "</article></main><aside><div>Buy this now</div></aside><footer>Imprint and privacy</footer></body></html>"
            )
            for place, (_, _, text) in enumerate(self.corpus.pages)
        }
        links = "".join(f"<li><a href={path}>{path}</a></li>" for path in self._bodies)
        self._bodies["/"] = f"<!doctype html><title>Index</title><body><nav><ul>{links}</ul></nav></body>"

    def __call__(self, visit: Visit) -> Answer:
        """Return a page."""
        body = self._bodies.get(visit.path)
        return Answer(b"", status=404) if body is None else Answer(body.encode())

    def groups(self) -> dict[str, list[str]]:
        """Return the paths of the pages of each group of near duplicates."""
        found: dict[str, list[str]] = {}
        for place, (_, group, _) in enumerate(self.corpus.pages):
            found.setdefault(group, []).append(f"/{place}")
        return found
