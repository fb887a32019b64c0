"""Haystacks: running text that is cut after any word and takes in sentences (needles) at given depths.

The text is that of the held-out novels (`books/PROVENANCE.md` gives their origin and licence), or of a folder with the
user's own text files.
"""

from __future__ import annotations

import gzip
import itertools
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path

from tasks.base import TaskError, files_hash, texts_hash

# Finer than whitespace: "this—that" may be cut after "this", so that the token count is met closely.
PIECE = re.compile(r"\w+(?:[’'\-]\w+)*|[^\w\s]+")
# A full stop after a title is no sentence end. A closing quote belongs to the sentence before it.
SENTENCE_END = re.compile(r"(?<!\bMr)(?<!\bMrs)(?<!\bMessrs)(?<!\bDr)(?<!\bSt)[.!?][”’)]*(?=\s+[“‘(]*[A-Z])")
# How far before its depth a needle may move to stand at a sentence end, as a share of the haystack. Below the
# distance of neighbouring depths in the usual grids (10 or 11 depths), so that those never change places.
REACH = 0.1
GUESSES = 12  # sizes tried by slope; tokens of running text are met in fewer


@dataclass(frozen=True)
class Haystack:
    """Running text; offsets are in characters, sizes in pieces (words and runs of punctuation)."""

    text: str

    @cached_property
    def cuts(self) -> list[int]:
        """Offsets of the ends of all pieces."""
        return [piece.end() for piece in PIECE.finditer(self.text)]

    def last_cuts(self, count: int) -> list[int]:
        """The last offsets of `cuts`, found from the end: no piece spans a space."""
        start, found = len(self.text), list[int]()
        while start > 0 and len(found) < count:
            start = max(self.text.rfind(" ", 0, start), 0)
            found = [piece.end() for piece in PIECE.finditer(self.text, start)]
        return found[-count:]

    @cached_property
    def gaps(self) -> list[int]:
        """Offsets between words, where a needle can stand."""
        return [cut for cut in self.cuts if self.text[cut : cut + 1].isspace()]

    @cached_property
    def stops(self) -> list[int]:
        """Offsets of sentence ends."""
        return [stop.end() for stop in SENTENCE_END.finditer(self.text)]

    def holding(self, words: int) -> int:
        """The fewest pieces with ``words`` gaps between them."""
        return bisect_left(self.cuts, self.gaps[words]) + 1

    def bury(self, pieces: int, needles: Sequence[tuple[float, str]]) -> str:
        """The first ``pieces`` pieces with each (depth, needle) inserted after a space; depth from 0 to 1.

        Depth is a share of the characters. A needle moves back to the nearest sentence end within `REACH`,
        else to the nearest gap between words; no two share a place, and the first in ``needles`` chooses first.
        Depth 0 is before the first word, without that space (chat templates strip it); depth 1 is the very end.
        """
        end = self.cuts[pieces - 1]
        places: dict[int, str] = {}
        for depth, needle in needles:
            places[self._place(depth, end, places.keys())] = needle
        parts, done = [], 0
        for place in sorted(places):
            parts += [self.text[done:place], " ", places[place]] if place else [places[place], " "]
            done = place
        return "".join([*parts, self.text[done:end]])

    def _place(self, depth: float, end: int, taken: Set[int]) -> int:
        if depth in (0, 1):
            return round(depth * end)
        target = depth * end
        stops = self.stops[bisect_right(self.stops, target - REACH * end) : bisect_right(self.stops, target)]
        first_after = bisect_right(self.gaps, target)
        before, after = self.gaps[:first_after], self.gaps[first_after : bisect_left(self.gaps, end)]
        order = (*reversed(stops), *reversed(before), *after)
        return next(place for place in order if place not in taken)


def most_that_fit(measure: Callable[[int], int], limit: int, low: int, high: int, of_limit: float = 0.5) -> int:
    """The largest size from ``low`` to ``high`` that measures at most ``limit``; ``low`` is known to fit.

    Made for a measure that grows nearly in proportion to the size, as tokens do with words: the first guess is
    ``of_limit`` times the limit, and each later one follows the mean slope so far, between the largest size known to
    fit and the smallest known not to. A measure that grows in steps can make these guesses creep, so after `GUESSES`
    of them the interval is halved each time.
    """
    start, base, above = low, measure(low), high + 1
    guess = int(limit * of_limit)
    for number in itertools.count():
        if above - low < 2:
            break
        guess = min(max(guess, low + 1), above - 1) if number < GUESSES else (low + above) // 2
        tokens = measure(guess)
        low, above = (guess, above) if tokens <= limit else (low, guess)
        slope = max((tokens - base) / (guess - start), 0.1)
        guess += math.floor((limit - tokens) / slope)
    return low


# The held-out novels.

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
    return read_novels(BOOKS)


def read_novels(files: Sequence[Path]) -> tuple[Novel, ...]:
    """The novels in gzipped text files, in the order given."""
    return tuple(
        Novel(file.name.removesuffix(".txt.gz"), gzip.decompress(file.read_bytes()).decode("utf-8")) for file in files
    )


def passage(book: int, offset: int, characters: int) -> str:
    """``characters`` of running text from ``offset`` of novel number ``book``.

    Where that novel ends the next one follows; shorter only when all novels together are.
    """
    books = novels()
    text = books[book].text[offset : offset + characters]
    for step in range(1, len(books)):
        if len(text) >= characters:
            break
        following = books[(book + step) % len(books)].text
        text += "\n\n" + following[: max(0, characters - len(text) - 2)]
    return text


# The carried novels or the user's text files.

NOVELS = "novels"  # the name of the carried ones


@dataclass(frozen=True)
class HaystackTexts:
    """Texts in the order of their names; after the last one the first follows again."""

    texts: tuple[Novel, ...]

    def running(self, text: int, offset: int, characters: int) -> str:
        """``characters`` of running text from ``offset`` of text number ``text``, repeated until long enough."""
        parts, missing = [], characters
        while missing > 0:
            part = self.texts[text].text[offset : offset + missing]
            parts.append(part)
            missing -= len(part)
            text, offset = (text + 1) % len(self.texts), 0
        return "\n\n".join(parts)


def haystack_texts(haystack: str) -> HaystackTexts:
    """The novels, or every ``*.txt`` of a folder; `TaskError` for a folder without text, or a file without UTF-8."""
    return HaystackTexts(novels()) if haystack == NOVELS else HaystackTexts(_folder(haystack, _stamps(haystack)))


def haystack_hash(haystack: str) -> str:
    """Content hash of what `haystack_texts` gives."""
    if haystack == NOVELS:
        return files_hash(*BOOKS)
    return texts_hash(*(part for text in haystack_texts(haystack).texts for part in (text.name, text.text)))


def _stamps(haystack: str) -> tuple[tuple[Path, int], ...]:
    folder = Path(haystack)
    files = sorted(folder.glob("*.txt")) if folder.is_dir() else []
    if not files:
        raise TaskError(
            f"needle.haystack={haystack} is no folder with text files (*.txt): give one, or {NOVELS} for the carried "
            "novels. Paul Graham's essays may not be passed on; put your own copy there."
        )
    return tuple((file, file.stat().st_mtime_ns) for file in files)


@lru_cache(maxsize=2)
def _folder(haystack: str, stamps: tuple[tuple[Path, int], ...]) -> tuple[Novel, ...]:
    return tuple(Novel(file.name, _read_text(file)) for file, _ in stamps)


def _read_text(file: Path) -> str:
    try:
        text = file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise TaskError(f"{file} is not UTF-8 (byte {error.start}). Convert it or take it out of the folder.") from None
    if not text.strip():
        raise TaskError(f"{file} is empty: take it out of the folder.")
    return text
