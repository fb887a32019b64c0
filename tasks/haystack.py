"""A haystack: running text that can be cut after any word and takes sentences in at given depths."""

from __future__ import annotations

import itertools
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

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


def most_that_fit(measure: Callable[[int], int], limit: int, low: int, high: int) -> int:
    """The largest size from ``low`` to ``high`` that measures at most ``limit``; ``low`` is known to fit.

    For a measure that grows nearly in proportion to the size, as tokens do with words: each guess follows the
    mean slope so far, between what is known to fit and what is known not to. Where a measure that grows in steps would
    have it creep from size to size, the rest is halved each time.
    """
    start, base, above = low, measure(low), high + 1
    guess = limit // 2
    for number in itertools.count():
        if above - low < 2:
            break
        guess = min(max(guess, low + 1), above - 1) if number < GUESSES else (low + above) // 2
        tokens = measure(guess)
        low, above = (guess, above) if tokens <= limit else (low, guess)
        slope = max((tokens - base) / (guess - start), 0.1)
        guess += math.floor((limit - tokens) / slope)
    return low
