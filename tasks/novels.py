"""The held-out novels that tasks read from. `books/PROVENANCE.md` gives their origin and licence."""

from __future__ import annotations

import gzip
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

BOOKS = tuple(sorted(Path(__file__).with_name("books").glob("*.txt.gz")))
GAP = re.compile(r"\n\n+(?=\S)")


@dataclass(frozen=True)
class Novel:
    """One book: paragraphs separated by one blank line, chapters by two."""

    name: str
    text: str

    def paragraph(self, near: int) -> int:
        """The character offset where the first paragraph after ``near`` starts; 0 when none follows."""
        gap = GAP.search(self.text, near)
        return gap.end() if gap else 0


@cache
def novels() -> tuple[Novel, ...]:
    """All held-out novels, by name."""
    return tuple(Novel(path.name.removesuffix(".txt.gz"), _read(path)) for path in BOOKS)


def _read(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode("utf-8")


def passage(book: int, offset: int, characters: int) -> str:
    """``characters`` of running text from ``offset`` of novel number ``book``.

    Where that novel ends the next one goes on; shorter only when all novels together are.
    """
    shelf = novels()
    text = shelf[book].text[offset : offset + characters]
    for step in range(1, len(shelf)):
        if len(text) >= characters:
            break
        following = shelf[(book + step) % len(shelf)].text
        text += "\n\n" + following[: max(0, characters - len(text) - 2)]
    return text
